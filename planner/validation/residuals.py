"""From the errors of published runs to intervals, each source judged by the others."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from planner.validation.compare import Row, layout_problems
from planner.validation.intervals import FEWEST_ROWS, KEYS, LEVEL, conformal_factors, keys_of

# Orders of magnitude are no residuals but rows that say something else than they seem to.
LARGEST = math.log(10)
FEWEST_SHAPES = 3
_QUANTITIES = ("step_time", "peak_memory")
_CALIBRATION = {"step_time": "calibration", "peak_memory": "memory_calibration"}
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


def layout_factor(rows: Iterable[Row]) -> tuple[float, int]:
    """How far two layouts of one problem must be apart to be told apart, and from how many pairs.

    The factor that holds, in the share ``LEVEL`` of the pairs, the error of the ratio of
    their two step times. Every problem counts the same.
    """
    groups = layout_problems(rows)
    return apart([math.log(row.time_ratio) for row in group if row.time_ratio] for group in groups)


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
    """The residuals of step time and of memory, absurd ones left out."""
    alone = {quantity: _alone(rows, flag) for quantity, flag in _CALIBRATION.items()}
    return [
        residual
        for row in rows
        for quantity, ratio in zip(_QUANTITIES, (row.time_ratio, row.memory_ratio), strict=True)
        if ratio is not None and abs(math.log(ratio)) < LARGEST
        for residual in _residual(row, quantity, ratio, alone[quantity])
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


def _residual(row: Row, quantity: str, ratio: float, alone: Set[str]) -> Iterator[Residual]:
    case = row.prediction.case
    if case is None:
        return
    source = _publisher(row)
    shape = f"{case.model.name} {case.model.num_hidden_layers} {case.model.hidden_size}"
    yield Residual(
        quantity=quantity,
        keys=keys_of(case),
        source=source,
        fold=f"{source} {shape}" if source in alone else source,
        shape=shape,
        calibration=bool(row.run.flag(_CALIBRATION[quantity])),
        value=-math.log(ratio),
    )


def _alone(rows: Iterable[Row], flag: str) -> set[str]:
    """Publishers whose runs alone calibrate a framework."""
    publishers: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        if row.prediction.case is not None and row.run.flag(flag):
            publishers[row.prediction.case.rule.label].add(_publisher(row))
    return {name for names in publishers.values() if len(names) == 1 for name in names}


def _publisher(row: Row) -> str:
    return row.run.text("publisher") or row.run.text("source")


def _kinds(keys: Keys) -> Iterator[Keys]:
    """Every kind a run belongs to: each key given or left open."""
    for chosen in product((False, True), repeat=len(KEYS)):
        yield tuple(key if given else "" for key, given in zip(keys, chosen, strict=True))


def _cell(quantity: str, keys: Keys, members: Sequence[Residual]) -> Iterator[Cell]:
    calibrated = sum(residual.calibration for residual in members) >= FEWEST_ROWS
    # One model's runs say how far they are from each other, not how far the next model is.
    several = len({(residual.source, residual.shape) for residual in members}) >= FEWEST_SHAPES
    basis = "runs" if calibrated and several and keys[0] and keys[1] else "sources"
    low, high = _runs_ends(members) if basis == "runs" else _sources_ends(members, any(keys))
    if len(members) >= FEWEST_ROWS and low > 0 and math.isfinite(high):
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
