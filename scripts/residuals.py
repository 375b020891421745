"""From the errors of published runs to intervals, each source judged by the others."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cache
from itertools import combinations, product

import numpy as np
from compile_runs import COLLECTION
from conformal import conformal_factors

from planner.confidence.classes import has_experts
from planner.confidence.intervals import FEWEST_ROWS, LEVEL
from planner.validation.compare import Row
from planner.validation.inference.cases import InferenceCase, Mode
from planner.validation.kinds import STEP_TIME, TOKEN_TIME, TRAINING_KIND, Compared
from planner.validation.prediction import Case
from planner.validation.regret import layout_problems

# Orders of magnitude are no residuals but rows that say something else than they seem to.
LARGEST = math.log(10)
FEWEST_SHAPES = 3
Keys = tuple[str, ...]
Ends = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Residual:
    """Logarithm of measured over predicted of one run, and what kind of run it is.

    ``source`` is the first word of the run's: the same figures recur over releases and
    tables of a publisher. ``fold`` is what is left out together, ``shape`` the model it is of.
    """

    quantity: str
    keys: Keys
    source: str
    fold: str
    shape: str
    calibration: bool
    value: float


@dataclass(frozen=True, kw_only=True)
class Cell:
    """An interval for a kind of run.

    ``basis``: ``runs`` where the parameters were calibrated on runs of the kind and of several
    shapes, which then count one by one; else ``sources``, which count together.
    """

    quantity: str
    keys: Keys
    low: float
    high: float
    rows: int
    basis: str

    @property
    def width(self) -> float:
        """Logarithm of the ratio of its ends."""
        return math.log(self.high / self.low)


def layout_factors(rows: Sequence[Row]) -> dict[Keys, tuple[float, int]]:
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


def _kind_of(row: Row) -> str:
    case = row.prediction.case
    return "" if case is None else "moe" if has_experts(case.model) else "dense"


def layout_factor(rows: Sequence[Row]) -> tuple[float, int]:
    """How far two layouts of one problem must be apart to be told apart, and from how many pairs.

    The factor that holds, in the share ``LEVEL`` of the pairs, the error of the ratio of
    their two times. Every problem counts the same.
    """
    training = rows[0].kind is TRAINING_KIND
    return apart(_training_problems(rows) if training else _serving_problems(rows))


def _training_problems(rows: Iterable[Row]) -> Iterator[list[float]]:
    for group in layout_problems(rows, STEP_TIME):
        yield [math.log(ratio) for row in group if (ratio := row.ratio(STEP_TIME))]


def _serving_problems(rows: Iterable[Row]) -> Iterator[list[float]]:
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


def residuals(rows: Sequence[Row]) -> list[Residual]:
    """The residuals of what is compared of every row, absurd ones left out.

    Publishers are left out whole; one whose runs alone calibrate a profile, and the
    collections of serving runs, model by model.
    """
    compared = rows[0].kind.compared
    alone = {flag: _alone(rows, flag) for flag in {one.calibration for one in compared}}
    return [
        _residual(row, case, one, ratio, alone[one.calibration])
        for row in rows
        if (case := row.prediction.case) is not None
        for one in compared
        if (ratio := row.ratio(one)) is not None and abs(math.log(ratio)) < LARGEST
    ]


def cells(found: Iterable[Residual]) -> list[Cell]:
    """The intervals of every kind of run with enough rows or sources, general ones first."""
    kinds: defaultdict[tuple[str, Keys], list[Residual]] = defaultdict(list)
    for residual in found:
        for keys in _kinds(residual.keys):
            kinds[residual.quantity, keys].append(residual)
    ordered = sorted(kinds, key=lambda kind: (kind[0], sum(map(bool, kind[1])), kind[1]))
    made = [cell for kind in ordered for cell in _cell(*kind, kinds[kind])]
    # Few sources of a kind give wide ends: then the kind says less than all runs together.
    widest = {cell.quantity: cell.width for cell in made if not any(cell.keys)}
    return [cell for cell in made if cell.width <= widest.get(cell.quantity, math.inf)]


def held_when_left_out(found: Sequence[Residual], quantity: str) -> dict[str, tuple[int, int]]:
    """Per source: its runs, and those that intervals made without them hold.

    A source whose runs alone calibrate its framework is left out model by model.
    """
    mine = [residual for residual in found if residual.quantity == quantity]
    folds: defaultdict[str, list[Residual]] = defaultdict(list)
    for residual in mine:
        folds[residual.fold].append(residual)
    held: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for fold, members in folds.items():
        others = cells(residual for residual in mine if residual.fold != fold)
        for residual in members:
            runs, inside = held[residual.source]
            low, high = _ends(others, residual.keys)
            held[residual.source] = runs + 1, inside + (low <= residual.value <= high)
    return dict(held)


def _residual(row: Row, case: Case, compared: Compared, ratio: float, alone: Set[str]) -> Residual:
    source = _publisher(row)
    shape = f"{case.model.name} {case.model.num_hidden_layers} {case.model.hidden_size}"
    fold = f"{source} {shape}" if source in alone else source
    return Residual(
        quantity=compared.interval,
        keys=case.keys,
        # The models of a publisher of many kinds of serving runs differ as sources do.
        source=source if row.kind is TRAINING_KIND else fold,
        fold=fold,
        shape=shape,
        calibration=bool(row.run.flag(compared.calibration)),
        value=-math.log(ratio),
    )


def _alone(rows: Iterable[Row], flag: str) -> set[str]:
    """Publishers whose runs alone calibrate a profile, and the collections of serving runs."""
    publishers: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        case = row.prediction.case
        if case is not None and row.run.flag(flag):
            software = case.software
            name = software.label if row.kind is TRAINING_KIND else software.profile
            publishers[name].add(_publisher(row))
    alone = {name for names in publishers.values() if len(names) == 1 for name in names}
    return alone | {COLLECTION}


def _publisher(row: Row) -> str:
    return row.run.text("publisher") or row.run.text("source")


@cache
def _kinds(keys: Keys) -> tuple[Keys, ...]:
    """Every kind a run belongs to: each key given or left open."""
    return tuple(
        tuple(key if given else "" for key, given in zip(keys, chosen, strict=True))
        for chosen in product((False, True), repeat=len(keys))
    )


def _cell(quantity: str, keys: Keys, members: Sequence[Residual]) -> Iterator[Cell]:
    if len(members) < FEWEST_ROWS:
        return
    calibrated = sum(residual.calibration for residual in members) >= FEWEST_ROWS
    # One model's runs say how far they are from each other, not how far the next model is.
    several = len({(residual.source, residual.shape) for residual in members}) >= FEWEST_SHAPES
    basis = "runs" if calibrated and several and keys[0] and keys[1] else "sources"
    low, high = _runs_ends(members) if basis == "runs" else _sources_ends(members, any(keys))
    if low > 0 and math.isfinite(high):
        yield Cell(quantity=quantity, keys=keys, low=low, high=high, rows=len(members), basis=basis)


def _runs_ends(members: Sequence[Residual]) -> Ends:
    return conformal_factors([residual.value for residual in members], LEVEL)


def _sources_ends(members: Sequence[Residual], special: bool) -> Ends:
    """The ends for a run of a new source; a source counts by the square root of its runs.

    Where all runs together have too few sources, the new one counts less.
    """
    sizes = Counter(residual.source for residual in members)
    weights = [sizes[residual.source] ** -0.5 for residual in members]
    mean = sum(weights) / len(sizes)
    values = [residual.value for residual in members]
    ends = (0.0, math.inf)
    for share in (1.0,) if special else (1.0, 0.5, 0.0):
        ends = conformal_factors(values, LEVEL, weights, share * mean)
        if ends[0] > 0 and math.isfinite(ends[1]):
            break
    return ends


def _ends(found: Iterable[Cell], keys: Keys) -> Ends:
    """Logarithms of the ends of the most specific interval for ``keys``."""
    kinds = set(_kinds(keys))
    mine = [cell for cell in found if cell.keys in kinds]
    if not mine:
        return -math.inf, math.inf
    best = max(mine, key=lambda cell: (sum(map(bool, cell.keys)), tuple(map(bool, cell.keys))))
    return math.log(best.low), math.log(best.high)
