"""From the errors of published runs to intervals, each source judged by the others."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from compile_runs import COLLECTION
from pooling import Errors, Keys, left_out, pooled
from publishers import publisher

from planner.confidence.error_classes import has_experts
from planner.confidence.evidence import Conditions
from planner.confidence.intervals import (
    FEWEST_ROWS,
    INFERENCE_TABLES,
    LEVEL,
    TRAINING_TABLES,
    ErrorTables,
    quantile,
)
from planner.validation.accuracy import (
    STEP_TIME,
    TOKEN_TIME,
    TRAINING_KIND,
    ComparedQuantity,
    ComparedRun,
    layout_problems,
)
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.run_tables import Case

# Orders of magnitude are no residuals but rows that say something else than they seem to.
LARGEST = math.log(10)
# The kinds of runs by their keys, the widest first.
_LEVELS: dict[ErrorTables, tuple[tuple[str, ...], ...]] = {
    TRAINING_TABLES: (
        ("task",),
        ("scale", "task"),
        ("framework", "scale", "task"),
        ("framework", "gpu_class", "scale", "task"),
    ),
    INFERENCE_TABLES: (
        (),
        ("mode",),
        ("mode", "setup"),
        ("mode", "setup", "load_class"),
        ("engine", "mode", "setup", "load_class"),
        ("engine", "gpu_class", "mode", "setup", "load_class"),
    ),
}
# Runs whose errors are pooled apart, and those of which too few publishers tell kinds apart: one
# of ten fine-tunes three times as slowly as the others, whatever its kind.
_APART = {TRAINING_TABLES: "task"}
_TOO_FEW = ("finetune",)


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Logarithm of measured over predicted of one run, and what kind of run it is.

    ``row`` is the number of the run; ``fold`` is what is left out together: its publisher, or a
    part of what that has.
    """

    row: int
    quantity: str
    tables: ErrorTables
    keys: Keys
    fold: str
    publisher: str
    calibration: bool
    software: str
    conditions: Conditions
    value: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An interval for a kind of run, and the runs of the kind."""

    quantity: str
    keys: Keys
    low: float
    high: float
    rows: int


@dataclass(frozen=True, kw_only=True)
class Held:
    """Whether the interval made without its publisher holds a run; its score, its high over low."""

    residual: Residual
    basis: str
    inside: bool
    score: float
    width: float


def layout_factors(rows: Sequence[ComparedRun]) -> dict[Keys, tuple[float, int]]:
    """`layout_factor` by the keys of intervals: of all runs and, to serve, by kind of model.

    Runs of training are too few to be parted.
    """
    empty = [""] * len(rows[0].kind.tables.keys)
    found = {tuple(empty): layout_factor(rows)}
    if rows[0].kind is TRAINING_KIND:
        return found
    for kind in ("dense", "moe"):
        mine = [row for row in rows if _kind_of(row) == kind]
        found[*empty[:-1], kind] = layout_factor(mine)
    return found


def _kind_of(row: ComparedRun) -> str:
    case = row.prediction.case
    return "" if case is None else "moe" if has_experts(case.model) else "dense"


def layout_factor(rows: Sequence[ComparedRun]) -> tuple[float, int]:
    """How far two layouts of one problem must be apart to be told apart, and from how many pairs.

    The factor that holds, in the share ``LEVEL`` of the pairs, the error of the ratio of
    their two times. Every problem counts the same.
    """
    training = rows[0].kind is TRAINING_KIND
    return apart(_training_problems(rows) if training else _serving_problems(rows))


def _training_problems(rows: Iterable[ComparedRun]) -> Iterator[list[float]]:
    for group in layout_problems(rows, STEP_TIME):
        yield [math.log(ratio) for row in group if (ratio := row.ratio(STEP_TIME))]


def _serving_problems(rows: Iterable[ComparedRun]) -> Iterator[list[float]]:
    """Of requests of the same lengths at the same concurrency on the same engine and GPU."""
    problems: defaultdict[Hashable, dict[Hashable, float]] = defaultdict(dict)
    for row in rows:
        case, ratio = row.prediction.case, row.ratio(TOKEN_TIME)
        if isinstance(case, InferenceCase) and case.mode is Mode.ONLINE and ratio:
            version = row.run.text("framework_version")
            problem = (case.model.name, case.gpu.name, case.rule.profile, version, case.traffic)
            problems[problem][case.replica] = math.log(ratio)
    yield from (list(found.values()) for found in problems.values() if len(found) > 1)


def apart(groups: Iterable[Sequence[float]]) -> tuple[float, int]:
    """The same from the logarithms of predicted over measured time of each problem's layouts."""
    errors, weights = [], []
    for logs in groups:
        pairs = [abs(a - b) for a, b in combinations(logs, 2)]
        errors += pairs
        weights += [1 / len(pairs)] * len(pairs) if pairs else []
    order = np.argsort(errors)
    share = np.cumsum(np.asarray(weights)[order]) / sum(weights)
    return float(np.exp(np.asarray(errors)[order][np.searchsorted(share, LEVEL)])), len(errors)


def residuals(rows: Sequence[ComparedRun]) -> list[Residual]:
    """The residuals of what is compared of every row.

    Absurd ones are left out, and layouts that cannot be.
    """
    return [
        _residual(number, row, case, one, ratio)
        for number, row in enumerate(rows)
        if (case := row.prediction.case) is not None and not row.prediction.impossible
        for one in row.kind.compared
        if (ratio := row.ratio(one)) is not None and abs(math.log(ratio)) < LARGEST
    ]


def cells(found: Sequence[Residual]) -> list[Cell]:
    """The intervals of every kind of run with enough runs, general ones first."""
    return [
        Cell(quantity=name, keys=keys, low=math.exp(low), high=math.exp(high), rows=rows)
        for name in _quantities(found)
        for mine in _parts(found, name)
        for keys, (low, high, rows) in sorted(
            pooled(_errors(mine)).ends.items(),
            key=lambda kind: (sum(map(bool, kind[0])), kind[0]),
        )
        if rows >= FEWEST_ROWS
    ]


def widening(found: Sequence[Residual]) -> dict[tuple[str, str], tuple[float, int]]:
    """By quantity and basis what its intervals are wider by, and the runs that tell it.

    Of runs that are pooled apart, the wider.
    """
    wider: dict[tuple[str, str], tuple[float, int]] = {}
    for name in _quantities(found):
        for mine in _parts(found, name):
            for basis, (factor, runs) in pooled(_errors(mine)).widening.items():
                before = wider.get((name, basis), (0.0, 0))
                wider[name, basis] = max(factor, before[0]), runs + before[1]
    return wider


def _parts(found: Iterable[Residual], quantity: str) -> list[list[Residual]]:
    """The residuals of a quantity, those that are pooled apart in lists of their own."""
    parts: defaultdict[str, list[Residual]] = defaultdict(list)
    for residual in found:
        if residual.quantity == quantity and residual.tables in _LEVELS:
            apart = _APART.get(residual.tables)
            at = residual.tables.keys.index(apart) if apart else None
            parts["" if at is None else residual.keys[at]].append(residual)
    return [parts[name] for name in sorted(parts)]


def held_when_left_out(found: Sequence[Residual], quantity: str) -> list[Held]:
    """Each run of a quantity, and what intervals made without its publisher say of it.

    The collections of serving runs are left out model by model.
    """
    held = []
    for mine in _parts(found, quantity):
        errors = _errors(mine)
        out = left_out(errors)
        inside, scores = out.inside(errors.values), out.scores(errors.values)
        held += [
            Held(
                residual=residual,
                basis=str(errors.bases[at]),
                inside=bool(inside[at]),
                score=float(scores[at]),
                width=float(np.exp(out.high[at] - out.low[at])),
            )
            for at, residual in enumerate(mine)
        ]
    return held


def shares_within(
    found: Sequence[Residual], quantity: str, limits: Iterable[tuple[float, int]]
) -> tuple[list[float], int]:
    """How many runs that no fit saw stay within `planner.confidence.intervals.quantile`.

    Each is judged by intervals made without its publisher. The share at each confidence and side,
    and the runs.
    """
    values, intervals = list[float](), list[tuple[float, float]]()
    for mine in _parts(found, quantity):
        errors = _errors(mine)
        out, own = left_out(errors), ~errors.fitted
        values += np.exp(errors.values[own]).tolist()
        intervals += map(tuple, np.exp(np.stack((out.low, out.high), axis=1)[own]).tolist())
    shares = []
    for confidence, side in limits:
        factors = [quantile((low, high), confidence, side) for low, high in intervals]
        held = [
            factor is not None and side * value <= side * factor
            for value, factor in zip(values, factors, strict=True)
        ]
        shares.append(sum(held) / len(held))
    return shares, len(values)


def _quantities(found: Iterable[Residual]) -> list[str]:
    return sorted({residual.quantity for residual in found})


def shares_that_keep_all(
    found: Sequence[Residual], sides: Mapping[str, int], confidences: Sequence[float], name: str
) -> list[dict[str, tuple[float, int]]]:
    """How many runs keep a limit on each measured quantity, for each of ``confidences``.

    A limit is the quantile of an interval made without the run's publisher; ``sides`` is 1 where a
    quantity must not exceed it, -1 where it must not fall below. Returns the share and the number
    of runs with two quantities or more, by the key ``name``.
    """
    kept: list[defaultdict[tuple[int, str], list[bool]]] = [defaultdict(list) for _ in confidences]
    for quantity, side in sides.items():
        for mine in _parts(found, quantity):
            errors = _errors(mine)
            out = left_out(errors)
            ends = np.exp(np.stack((out.low, out.high), axis=1))
            for residual, pair in zip(mine, ends.tolist(), strict=True):
                group = residual.keys[residual.tables.keys.index(name)]
                value = side * math.exp(residual.value)
                for confidence, runs in zip(confidences, kept, strict=True):
                    limit = quantile((pair[0], pair[1]), confidence, side)
                    runs[residual.row, group].append(limit is not None and value <= side * limit)
    return [_shares_by_group(runs) for runs in kept]


def _shares_by_group(
    kept: Mapping[tuple[int, str], Sequence[bool]],
) -> dict[str, tuple[float, int]]:
    by_group: defaultdict[str, list[bool]] = defaultdict(list)
    for (_, group), each in kept.items():
        if len(each) > 1:
            by_group[group].append(all(each))
    return {group: (sum(each) / len(each), len(each)) for group, each in by_group.items()}


def _errors(mine: Sequence[Residual]) -> Errors:
    tables = mine[0].tables
    is_alike = bool({*mine[0].keys} & {*_TOO_FEW})
    levels = _LEVELS[tables][:1] if is_alike else _LEVELS[tables]
    return Errors(
        values=np.array([residual.value for residual in mine]),
        levels=[[_part(residual, names) for residual in mine] for names in levels],
        folds=np.array([residual.fold for residual in mine]),
        publishers=np.array([residual.publisher for residual in mine]),
        fitted=np.array([residual.calibration for residual in mine]),
        software=np.array([residual.software for residual in mine]),
        conditions=[residual.conditions for residual in mine],
        scaled=not is_alike,
        setups=np.array([_setup(residual) for residual in mine]),
    )


def _setup(residual: Residual) -> str:
    """Who set up a server; empty for other runs."""
    keys = residual.tables.keys
    return residual.keys[keys.index("setup")] if "setup" in keys else ""


def _part(residual: Residual, names: Sequence[str]) -> Keys:
    given = zip(residual.tables.keys, residual.keys, strict=True)
    return tuple(key if name in names else "" for name, key in given)


def _residual(
    number: int, row: ComparedRun, case: Case, compared: ComparedQuantity, ratio: float
) -> Residual:
    source = publisher(row)
    # The models of a publisher of nearly all kinds of serving runs differ as sources do.
    fold = f"{source} {case.model.name}" if source == COLLECTION else source
    return Residual(
        row=number,
        quantity=compared.interval,
        tables=row.kind.tables,
        keys=case.keys,
        fold=fold,
        publisher=source,
        calibration=bool(row.run.flag(compared.calibration)),
        software=case.software.label,
        conditions=case.conditions,
        value=-math.log(ratio),
    )
