"""Intervals that hold a run of a publisher that nobody has seen.

Errors are pooled by kinds of runs, each drawn to the wider kind the more, the fewer publishers it
has: where the middle is, and how far errors are from it, each publisher counting the same. How many
such distances an interval reaches is told by publishers left out, each judged by what the others
say, so that 9 of 10 of their runs lie inside (split conformal prediction on normalized errors [1]_
with whole publishers as what is exchangeable [2]_). The next publisher is one more draw from as few
as there are: the reach is wider by Student's t over the normal distribution (`student`).

References
----------
.. [1] J. Lei et al., "Distribution-free predictive inference for regression," 2018,
   arXiv:1604.04173, section 5.2.
.. [2] R. Dunn, L. Wasserman and A. Ramdas, "Distribution-free prediction sets for two-layer
   hierarchical models," 2022, arXiv:1809.07441.
.. [3] T. Gneiting and A. Raftery, "Strictly proper scoring rules, prediction, and estimation,"
   2007, J. Am. Stat. Assoc. 102, section 6.2.
.. [4] M. Abramowitz and I. Stegun, "Handbook of Mathematical Functions," 1964, 26.7.5.
.. [5] A. Gelman et al., "Bayesian Data Analysis," 3rd ed., 2013, section 3.2: the next one of
   normal draws whose mean and variance are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import BoolArray, FloatArray
from planner.confidence.evidence import Conditions, classify
from planner.confidence.intervals import LEVEL, MEASURED, ROOFLINE, TRANSFERRED

Keys = tuple[str, ...]
Names = NDArray[np.str_]

# Publishers that a wider kind is worth against those of a kind of its own, and what a run that
# parameters were fitted to is worth against another where the reach is told: chosen among 1.5, 3
# and 6, and 1, 0.3 and 0.1, by the interval score of publishers left out.
WIDER = 3.0
FITTED = 0.1
_LEAST_SPREAD = 1e-3


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Logarithms of measured over predicted of one quantity.

    ``levels`` are the kinds of each run, the widest first; ``folds`` names what is left out
    together, a part of what one of the ``publishers`` has; ``fitted``: parameters were fitted to
    the run; ``software`` and ``conditions`` of each say how near the others' runs are to it.
    ``scaled``: kinds differ in how far errors are spread, else all are spread alike. ``setups``
    names who set up each run: intervals of each reach as far as its own publishers tell.
    """

    values: FloatArray
    levels: Sequence[Sequence[Keys]]
    folds: Names
    publishers: Names
    fitted: BoolArray
    software: Names
    conditions: Sequence[Conditions]
    setups: Names
    scaled: bool = True

    @cached_property
    def bases(self) -> Names:
        """How near the runs of other folds are to each (`planner.confidence.evidence`)."""
        found = np.empty(len(self.values), dtype=object)
        for name in np.unique(self.folds):
            own = np.flatnonzero(self.folds == name)
            known: dict[str, set[Conditions]] = {}
            for at in np.flatnonzero(self.folds != name).tolist():
                known.setdefault(self.software[at], set()).add(self.conditions[at])
            for at in own.tolist():
                near = known.get(self.software[at], set())
                found[at] = classify(self.conditions[at], near)
        return found.astype(str)

    @property
    def weights(self) -> FloatArray:
        """What each run counts of the reach: a publisher by the square root of its runs."""
        return _weights(self.publishers, 0.5)

    @cached_property
    def publisher_codes(self) -> NDArray[np.intp]:
        """A number for each publisher."""
        return _codes(self.publishers.tolist())

    @cached_property
    def level_codes(self) -> list[NDArray[np.intp]]:
        """A number for each kind, level by level."""
        return [_codes(level) for level in self.levels]

    @cached_property
    def normalized(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Middle and spread of each run's kind without its fold, and its distance in spreads."""
        middle, spread = np.empty_like(self.values), np.empty_like(self.values)
        for name in np.unique(self.folds):
            kinds = _spreads(self, np.flatnonzero(self.folds != name))
            for at in np.flatnonzero(self.folds == name).tolist():
                of_run = zip(self.levels[::-1], kinds[::-1], strict=True)
                middle[at], spread[at] = next(
                    known[level[at]] for level, known in of_run if level[at] in known
                )
        return middle, spread, (self.values - middle) / spread


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """Intervals of logarithms: of every kind its ends and runs, and what bases widen them by."""

    ends: Mapping[Keys, tuple[float, float, int]]
    widening: Mapping[str, tuple[float, int]]


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """The ends that intervals made without its publisher have for each run."""

    low: FloatArray
    high: FloatArray

    def inside(self, values: FloatArray) -> BoolArray:
        """Which errors lie inside."""
        return np.asarray((self.low <= values) & (values <= self.high))

    def scores(self, values: FloatArray) -> FloatArray:
        """The interval score [3]_ of each: the width, and 2 / alpha times what is beyond it."""
        beyond = np.maximum(self.low - values, 0.0) + np.maximum(values - self.high, 0.0)
        return np.asarray(self.high - self.low + 2 / (1 - LEVEL) * beyond)


def _codes(names: Iterable[Hashable]) -> NDArray[np.intp]:
    """The same number for the same name."""
    known: dict[Hashable, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], dtype=np.intp)


def pooled(errors: Errors) -> Pooled:
    """The intervals of every kind, told by all runs."""
    every = np.arange(len(errors.values))
    away = errors.normalized[2]
    down, up = _reach(errors, away, every)
    farther = _reach_of_setups(errors, away, every, (down, up))
    found = {}
    for level, kinds in zip(errors.levels, _spreads(errors, every), strict=True):
        counts = Counter(level)
        for keys, (middle, spread) in kinds.items():
            factor = next((farther[key] for key in keys if key in farther), 1.0)
            low, high = middle - factor * down * spread, middle + factor * up * spread
            found[keys] = low, high, counts[keys]
    return Pooled(ends=found, widening=_widening(errors, away, every, (down, up)))


def left_out(errors: Errors) -> LeftOut:
    """What the others say of each publisher's runs."""
    middle, spread, away = errors.normalized
    low, high = np.empty_like(middle), np.empty_like(middle)
    for name in np.unique(errors.folds):
        own = np.flatnonzero(errors.folds == name)
        others = np.flatnonzero(errors.folds != name)
        reach = _reach(errors, away, others)
        wider = _widening(errors, away, others, reach)
        farther = _reach_of_setups(errors, away, others, reach)
        factor = np.array([wider.get(basis, (1.0, 0))[0] for basis in errors.bases[own].tolist()])
        factor *= [farther.get(setup, 1.0) for setup in errors.setups[own].tolist()]
        low[own] = middle[own] - factor * reach[0] * spread[own]
        high[own] = middle[own] + factor * reach[1] * spread[own]
    return LeftOut(low=low, high=high)


def _spreads(errors: Errors, rows: NDArray[np.intp]) -> list[dict[Keys, tuple[float, float]]]:
    """Middle and mean distance from it of every kind of some runs, level by level."""
    found: list[dict[Keys, tuple[float, float]]] = []
    for number, codes in enumerate(errors.level_codes):
        by_kind = rows[np.argsort(codes[rows], kind="stable")]
        kinds = {}
        for own in np.split(by_kind, np.flatnonzero(np.diff(codes[by_kind])) + 1):
            keys, values = errors.levels[number][own[0]], errors.values[own]
            publishers = errors.publisher_codes[own]
            sizes = np.bincount(publishers)
            weights, several = 1.0 / sizes[publishers], int(np.count_nonzero(sizes))
            middle = _weighted_quantile(values, weights, 0.5)
            spread = 1.0
            if errors.scaled:
                away = float(np.average(np.abs(values - middle), weights=weights))
                spread = max(away, _LEAST_SPREAD)
            if number:
                above = found[-1][errors.levels[number - 1][own[0]]]
                share = several / (several + WIDER)
                middle = share * middle + (1 - share) * above[0]
                spread = share * spread + (1 - share) * above[1]
            kinds[keys] = middle, spread
        found.append(kinds)
    return found


def _reach(errors: Errors, away: FloatArray, rows: NDArray[np.intp]) -> tuple[float, float]:
    """Spreads below and above the middle that leave out half of what may be missed each."""
    weights = _counted(errors)[rows]
    share = (1 + LEVEL) / 2
    wider = student(len(np.unique(errors.publishers[rows])), share)
    return (
        wider * _weighted_quantile(-away[rows], weights, share),
        wider * _weighted_quantile(away[rows], weights, share),
    )


def student(publishers: int, share: float) -> float:
    r"""How much farther than the normal quantile the next publisher is, told by so many [5]_.

    .. math:: t_{n - 1}(share) \sqrt{1 + 1 / n} / z(share)

    The quantile of t is the expansion [4]_ in 1 / (n - 1); one publisher counts as two.

    >>> round(student(11, 0.95), 3), round(student(101, 0.95), 3)
    (1.15, 1.014)
    """
    number = max(publishers, 2)
    z, free = NormalDist().inv_cdf(share), number - 1
    t = z + (z**3 + z) / (4 * free) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * free**2)
    return float(t * (1 + 1 / number) ** 0.5 / z)


def _widening(
    errors: Errors, away: FloatArray, rows: NDArray[np.intp], reach: tuple[float, float]
) -> dict[str, tuple[float, int]]:
    """By basis the factor on the reach that holds 9 of 10 of its runs; its runs.

    It is drawn to 1 the more, the fewer publishers have runs of the basis. Less evidence never has
    a smaller factor than more.
    """
    weights, found = _counted(errors), dict[str, tuple[float, int]]()
    needed = np.maximum(away / reach[1], -away / reach[0])
    least = 0.0
    for basis in (MEASURED, TRANSFERRED, ROOFLINE):
        own = rows[errors.bases[rows] == basis]
        factor = 1.0
        if own.size:
            publishers = len(np.unique(errors.publishers[own]))
            factor = _weighted_quantile(needed[own], weights[own], LEVEL)
            factor **= publishers / (publishers + WIDER)
        least = max(factor, least)
        found[basis] = least, len(own)
    return found


def _reach_of_setups(
    errors: Errors, away: FloatArray, rows: NDArray[np.intp], reach: tuple[float, float]
) -> dict[str, float]:
    """By set-up the factor on the reach that holds 9 of 10 of its runs, at least 1.

    It is drawn to 1 the more, the fewer publishers have runs of the set-up.
    """
    weights = _counted(errors)
    needed = np.maximum(away / reach[1], -away / reach[0])
    found = {}
    for setup in np.unique(errors.setups[rows]).tolist():
        own = rows[errors.setups[rows] == setup]
        publishers = len(np.unique(errors.publishers[own]))
        factor = max(_weighted_quantile(needed[own], weights[own], LEVEL), 1.0)
        found[setup] = factor ** (publishers / (publishers + WIDER))
    found.pop("", None)
    return found


def _counted(errors: Errors) -> FloatArray:
    return errors.weights * np.where(errors.fitted, FITTED, 1.0)


def _weights(publishers: Names, power: float) -> FloatArray:
    sizes = Counter(publishers.tolist())
    return np.array([sizes[name] ** -power for name in publishers.tolist()])


def _weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> float:
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-12)))
    return float(values[order][min(place, len(order) - 1)])
