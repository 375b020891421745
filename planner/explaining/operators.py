"""Operators one by one, as estimates time them: seconds, rates, what bounds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import ComputePrecision
from planner.base.records import record
from planner.errors import SearchSpaceError
from planner.estimators.ledger import Ledger, Work
from planner.estimators.machine import Machine
from planner.explaining.formulas import FORMULAS
from planner.explaining.operator_kinds import KINDS, OWN_OF_FRAMEWORK, Case, Kind
from planner.explaining.operator_question import OperatorQuestion
from planner.explaining.steps import largest_term
from planner.question.request import ALL
from planner.question.terms import glossary
from planner.specs.catalogue import Catalogue
from planner.specs.framework import FrameworkProfile
from planner.workloads.notes import Notes
from planner.workloads.place import hardware
from planner.workloads.timed import Done

_MOST_ROWS = 100_000
_UNSAID = (None, OWN_OF_FRAMEWORK)
_GIGA, _TERA = 1e9, 1e12
_USUAL = {"precision": ComputePrecision.BF16.word}


@record(kw_only=True)
class OperatorTimes:
    """Operators with their times: a row for each, equally long columns by name.

    ``works``: what each does, as `planner explain` tells it. ``assumed``: what was chosen for the
    user, and what was left out.
    """

    columns: Mapping[str, Sequence[Any]]
    works: Sequence[tuple[Done, ...]]
    assumed: Sequence[str]

    def __len__(self) -> int:
        return len(self.works)


def operator_times(question: OperatorQuestion, catalogue: Catalogue) -> OperatorTimes:
    """Seconds of every combination.

    Raises
    ------
    SpecError, SearchSpaceError
        A name is unknown, there are too many operators, or none on these GPUs.
    """
    assumed: list[str] = []
    defaults: dict[str, dict[str, None]] = {}
    rows: list[tuple[dict[str, Any], tuple[Done, ...]]] = []
    crosses = any(KINDS[kind].crosses for kind in question.kinds)
    gpus = _gpus(question, catalogue)
    for gpu, profile in product(gpus, _profiles(question, catalogue)):
        notes = Notes(catalogue)
        machine = _machine(question, gpu, notes)
        for name, words in notes.defaults.items():
            if name != "cluster" or crosses:
                defaults.setdefault(f"{name} {words}", {})[machine.gpu.name] = None
        for kind in question.kinds:
            rows += _of_kind(question, kind, machine, profile, assumed)
            if len(rows) > _MOST_ROWS:
                raise SearchSpaceError(f"That is more than {_MOST_ROWS:,} operators: give fewer.")
    if not rows:
        raise SearchSpaceError(" ".join(dict.fromkeys(assumed)))
    told = [
        words if len(of) == len(gpus) else f"{words}: {', '.join(of)}"
        for words, of in defaults.items()
    ]
    names = [name for name in rows[0][0] if any(row[name] not in _UNSAID for row, _ in rows)]
    return OperatorTimes(
        columns={name: [row[name] for row, _ in rows] for name in names},
        works=[works for _, works in rows],
        assumed=[*dict.fromkeys((*told, *assumed))],
    )


def _gpus(question: OperatorQuestion, catalogue: Catalogue) -> Sequence[str | None]:
    if list(question.gpus) == [ALL]:
        return catalogue.names("gpus")
    return question.gpus or [None]


def _profiles(
    question: OperatorQuestion, catalogue: Catalogue
) -> Sequence[FrameworkProfile | None]:
    names = question.frameworks
    if list(names) == [ALL]:
        names = catalogue.names("frameworks")
    return [catalogue.load_framework(name).spec for name in names] or [None]


def _machine(question: OperatorQuestion, gpu: str | None, notes: Notes) -> Machine:
    counts = [int(n) for n in question.sizes.get("num_gpus", ())]
    strides = [int(n) for n in question.sizes.get("stride", (1,))]
    distances = [int(n) + 1 for n in question.sizes.get("distance", ())]
    most = [(max(counts) - 1) * max(strides) + 1] if counts else []
    spec, cluster = hardware(gpu, question.cluster, [*most, *distances], notes)
    return Machine(gpu=spec, cluster=cluster, catalogue=notes.catalogue, ledger=Ledger())


def _of_kind(
    question: OperatorQuestion,
    name: str,
    machine: Machine,
    framework: FrameworkProfile | None,
    assumed: list[str],
) -> Iterator[tuple[dict[str, Any], tuple[Done, ...]]]:
    """The rows of a kind; what it assumes, or why it has none, goes into ``assumed``."""
    kind = KINDS[name]
    if name == "custom-all-reduce" and not machine.has_collective("custom_all_reduce"):
        assumed.append(f"{machine.gpu.name} has no measured custom all-reduce: left out.")
        return
    sizes = _sizes(question, kind, machine, assumed)
    if name == "drive-copy" and machine.cluster.drive_bandwidth is None:
        assumed.append(f"drives {machine.drive_bandwidth / _GIGA:g} GB/s per GPU")
    for words in _words(question, kind):
        for case in _cases(machine, sizes, words, framework):
            machine.ledger.taken()  # type: ignore[union-attr]
            seconds = kind.seconds(case)
            works = machine.ledger.taken()  # type: ignore[union-attr]
            if not np.all(np.isfinite(seconds)):
                assumed.append(_unknown(machine, name, words))
                continue
            yield from _rows(name, case, np.asarray(seconds), works)


def _unknown(machine: Machine, kind: str, words: Mapping[str, str]) -> str:
    what = f"products in {words['precision']}" if "precision" in words else f"known {kind} rate"
    return f"{machine.gpu.name} has no {what}: left out."


def _sizes(
    question: OperatorQuestion, kind: Kind, machine: Machine, assumed: list[str]
) -> dict[str, FloatArray]:
    """Every combination of the sizes of a kind, as equally long arrays."""
    given: dict[str, Sequence[float]] = {}
    for name in kind.sizes:
        term = glossary().get(name)
        if name in question.sizes:
            given[name] = question.sizes[name]
        elif name == "num_gpus":
            given[name] = [machine.cluster.gpus_per_node]
            assumed.append(f"gpus {machine.cluster.gpus_per_node} (one node)")
        elif term is not None and term.default:
            given[name] = [float(term.default)]
    total = float(np.prod([float(len(values)) for values in given.values()]))
    if total > _MOST_ROWS:
        raise SearchSpaceError(f"That is {total:,.0f} operators: give {_MOST_ROWS:,} at most.")
    mesh = np.meshgrid(*(np.asarray(v, np.float64) for v in given.values()), indexing="ij")
    sizes = {name: values.ravel() for name, values in zip(given, mesh, strict=True)}
    if "key_value_heads" in kind.sizes:
        sizes.setdefault("key_value_heads", sizes["heads"])
    return {name: sizes[name] for name in kind.sizes}


def _words(question: OperatorQuestion, kind: Kind) -> Iterator[dict[str, str]]:
    values = [
        question.words.get(name) or [_USUAL.get(name, glossary()[name].default)]
        for name in kind.words
    ]
    for chosen in product(*values):
        yield dict(zip(kind.words, chosen, strict=True))


def _cases(
    machine: Machine,
    sizes: dict[str, FloatArray],
    words: dict[str, str],
    framework: FrameworkProfile | None,
) -> Iterator[Case]:
    """Cases of one size of a head each: that is a kernel of its own."""
    whole = Case(machine=machine, sizes=sizes, words=words, framework=framework)
    if "head_dim" not in sizes:
        yield whole
        return
    for head_dim in np.unique(sizes["head_dim"]):
        chosen = sizes["head_dim"] == head_dim
        yield replace(whole, sizes={name: values[chosen] for name, values in sizes.items()})


def _rows(
    kind: str, case: Case, seconds: FloatArray, works: Sequence[Work]
) -> Iterator[tuple[dict[str, Any], tuple[Done, ...]]]:
    """A row for each of the case's operators, with what it does."""
    number = next(iter(case.sizes.values())).size
    whole = np.broadcast_to(seconds, (number,))
    for at in range(number):
        done = tuple(Done(work=_one(work, at, number), times=1.0) for work in works)
        yield _row(kind, case, at, float(whole[at]), done), done


def _one(work: Work, at: int, number: int) -> Work:
    """The work of one of some operators."""

    def value(values: Any) -> Any:
        return np.broadcast_to(np.asarray(values, np.float64), (number,))[at]

    return replace(
        work,
        time=value(work.time),
        at_peak=value(work.at_peak),
        terms={name: value(term) for name, term in work.terms.items()},
        figures={name: value(figure) for name, figure in work.figures.items()},
    )


def _row(kind: str, case: Case, at: int, time: float, done: Sequence[Done]) -> dict[str, Any]:
    sizes = {name: values[at] for name, values in case.sizes.items()}
    known = dict.fromkeys(n for each in KINDS.values() for n in (*each.words, *each.sizes))
    told = {n: case.words.get(n) or _whole(sizes.get(n)) for n in known if n != "num_gpus"}
    first = done[0]
    flops = _figure(first, "flops")
    moved = _figure(first, "num_bytes")
    volume = _figure(first, "volume")
    of_roofline = sum(each.at_peak for each in done) / time
    peak = _figure(first, "peak_flops")
    return {
        "operator": kind,
        "gpu": case.machine.gpu.name,
        "framework": None if case.framework is None else case.framework.name,
        "num_gpus": int(sizes.get("num_gpus", 2 if kind == "send" else 1)),
        **told,
        "time_s": time,
        "tflops": None if flops is None else flops / time / _TERA,
        "bandwidth_gb_per_s": None if moved is None else moved / time / _GIGA,
        "algorithm_bandwidth_gb_per_s": _rate(sizes, "num_bytes", time, volume),
        "bus_bandwidth_gb_per_s": None if volume is None else volume / time / _GIGA,
        "of_peak": of_roofline if not flops or not peak else flops / time / peak,
        "of_roofline": of_roofline,
        "bound": bound_of(done),
    }


def _rate(sizes: Mapping[str, float], name: str, time: float, volume: float | None) -> float | None:
    """GB/s of what users call the size of a collective or message; None of what moves none."""
    return None if volume is None else float(sizes[name]) / time / _GIGA


def _figure(done: Done, name: str) -> float | None:
    return done.figure(name) if name in done.work.figures else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def bound_of(works: Sequence[Done]) -> str:
    """What bounds most of the time of some works, each of which counts whole."""
    seconds: dict[str, float] = {}
    for work in works:
        name = largest_term(work)
        seconds[name] = seconds.get(name, 0.0) + work.once
    return max(seconds, key=lambda name: seconds[name])


def work_dict(done: Done) -> dict[str, Any]:
    """Plain words and numbers, as JSON takes them; times in seconds."""
    formula = FORMULAS[done.work.formula]
    return {
        "kind": formula.title,
        "formula": formula.place,
        "words": formula.words(done),
        "time_s": done.once,
        "at_peak_s": done.at_peak,
        "terms_s": done.terms,
    }
