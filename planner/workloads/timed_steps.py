"""The parts of a step with their times and the kernel work behind them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from planner.base.arrays import Numeric
from planner.base.records import record
from planner.estimators.kernel_work import KernelWork, Ledger
from planner.optimize.source import SearchInputs

ALL_MODULES = ""
"""The module of parts that belong to none."""


@record(kw_only=True)
class RepeatedWork:
    """Work of one kind in a part of a step: ``times`` counts its exposed repetitions."""

    work: KernelWork
    times: float

    def figure(self, name: str) -> float:
        """One of its figures, in SI units."""
        return at_longest(self.work, self.work.figures[name])

    @property
    def once(self) -> float:
        """Seconds of the work once."""
        return at_longest(self.work, self.work.time)

    @property
    def at_peak(self) -> float:
        """Seconds of the work once if silicon and links reached their peaks."""
        return at_longest(self.work, self.work.at_peak)

    @property
    def terms(self) -> dict[str, float]:
        """Seconds of one execution of the work, by bound (compute, memory...), without zeros."""
        seconds_by_term = {
            name: at_longest(self.work, term) for name, term in self.work.terms.items()
        }
        return {name: seconds for name, seconds in seconds_by_term.items() if seconds > 0}


@record(kw_only=True)
class TimedPart:
    """An operator, or a part of a step that belongs to none, on the slowest GPU.

    ``seconds`` are those of a step; ``terms`` the same by term of the step's time. ``done`` is the
    work of the part; its seconds add up to ``seconds``. ``like``: the kind of step with the same
    kernels, if the part has no recorded work.
    """

    name: str
    module: str
    seconds: float
    terms: Mapping[str, float]
    part: str = "compute"
    done: tuple[RepeatedWork, ...] = ()
    like: str = ""

    @classmethod
    def of(
        cls,
        name: str,
        module: str,
        terms: Mapping[str, float],
        works: Sequence[KernelWork],
        **extra: str,
    ) -> TimedPart:
        """A part that takes the sum of its ``terms`` [s], with the ``works`` that take the time."""
        seconds = sum(terms.values())
        working = [work for work in works if at_longest(work, work.time) > 0]
        once = sum(at_longest(work, work.time) for work in working)
        done = tuple(RepeatedWork(work=work, times=seconds / once) for work in working)
        shown = {term: value for term, value in terms.items() if value}
        return cls(name=name, module=module, seconds=seconds, terms=shown, done=done, **extra)


@record(kw_only=True)
class TimedStep:
    """A step of one kind: its ``seconds``, and the parts that add up to them.

    ``software``: the profile with its efficiencies, if it is not the plan's.
    """

    seconds: float
    parts: tuple[TimedPart, ...] = field(default_factory=tuple)
    software: str = ""


def at_longest(work: KernelWork, values: Numeric) -> float:
    """The value for the pipeline stage on which the work takes longest."""
    time = np.asarray(work.time)
    if np.size(time) == np.size(values) == 1:
        return float(np.ravel(values)[0])
    shape = np.broadcast_shapes(time.shape, np.shape(values))
    longest = int(np.argmax(np.broadcast_to(time, shape)))
    return float(np.ravel(np.broadcast_to(values, shape))[longest])


def merge_parts(parts: Iterable[TimedPart]) -> tuple[TimedPart, ...]:
    """Sum parts of the same name and module; parts of 0 s are left out."""
    merged_parts: dict[tuple[str, str, str], TimedPart] = {}
    for part in parts:
        key = (part.module, part.name, part.part)
        before = merged_parts.get(key)
        merged_parts[key] = part if before is None else _add_parts(before, part)
    return tuple(part for part in merged_parts.values() if part.seconds)


def with_ledger(inputs: SearchInputs) -> SearchInputs:
    """The inputs with a ledger that records the kernel work of predictions."""
    return replace(inputs, machine=replace(inputs.machine, ledger=Ledger()))


def _add_parts(first: TimedPart, second: TimedPart) -> TimedPart:
    """The sum of two timed parts: seconds, terms and work."""
    names = dict.fromkeys((*first.terms, *second.terms))
    return replace(
        first,
        seconds=first.seconds + second.seconds,
        terms={name: first.terms.get(name, 0.0) + second.terms.get(name, 0.0) for name in names},
        done=_combine_equal((*first.done, *second.done)),
    )


def _combine_equal(done: Iterable[RepeatedWork]) -> tuple[RepeatedWork, ...]:
    """Merge equal entries of work and add up their repetitions."""
    distinct: list[RepeatedWork] = []
    for addition in done:
        position = next(
            (index for index, existing in enumerate(distinct) if _is_same(existing, addition)), None
        )
        if position is None:
            distinct.append(addition)
        else:
            distinct[position] = replace(addition, times=distinct[position].times + addition.times)
    return tuple(distinct)


def _is_same(first: RepeatedWork, second: RepeatedWork) -> bool:
    """True if two entries have the same formula and figures, so that they can be merged."""
    if (first.work.formula, first.work.key) != (second.work.formula, second.work.key):
        return False
    if first.work.figures.keys() != second.work.figures.keys() or first.once != second.once:
        return False
    return all(first.figure(name) == second.figure(name) for name in first.work.figures)
