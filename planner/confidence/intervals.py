"""Intervals and one-sided quantiles of published errors, and how near those runs are."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from functools import cache
from statistics import NormalDist
from typing import Protocol

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.confidence.profile_rules import read_table
from planner.errors import SearchSpaceError
from planner.formulas.normal import normal_upper_tail
from planner.formulas.power import range_of_product

LEVEL = 0.9
FEWEST_ROWS = 5
MEASURED, TRANSFERRED, ROOFLINE, ASSUMED = "measured", "transferred", "roofline", "assumed"
BASES = MEASURED, TRANSFERRED, ROOFLINE, ASSUMED
SEPARATE_KEYS = ("mode",)
"""Keys whose values are separate where kernels are assumed: ways to serve, not tasks of training,
which have the same kernels."""
FIXED = 1.0, 1.0


class Rule(Hashable, Protocol):
    """Which profile stands for a software; ``nearest``: it is only the closest to it."""

    @property
    def label(self) -> str:
        """The name of the software."""

    @property
    def profile(self) -> str:
        """The name of the profile."""

    @property
    def nearest(self) -> bool:
        """Whether the profile is of another software."""


@record(kw_only=True)
class ErrorTables:
    """The files of a kind of runs: of intervals by ``keys``, of fits, of published runs.

    ``widening`` has what intervals are wider by with less evidence, ``evidence`` how many runs
    there are under which conditions (`planner.confidence.evidence`).
    """

    keys: tuple[str, ...]
    intervals: str
    fits: str
    widening: str
    evidence: str
    defaults: str = "fit_defaults.csv"


TRAINING_TABLES = ErrorTables(
    keys=("framework", "gpu_class", "scale", "task", "kind"),
    intervals="intervals.csv",
    fits="fits.csv",
    widening="widening.csv",
    evidence="training_evidence.csv",
)
INFERENCE_TABLES = ErrorTables(
    keys=("engine", "gpu_class", "mode", "setup", "load_class", "kind"),
    intervals="inference_intervals.csv",
    fits="inference_fits.csv",
    widening="inference_widening.csv",
    evidence="inference_evidence.csv",
)


@record(kw_only=True)
class Interval:
    """Factors on a prediction between which measurements of similar runs lie.

    ``keys`` are those of the runs it holds for; an empty one means any.
    """

    quantity: str
    keys: tuple[str, ...]
    low: float
    high: float
    rows: int

    @property
    def weight(self) -> tuple[int, tuple[bool, ...]]:
        """How specific it is: the number of keys, then which of them."""
        return sum(map(bool, self.keys)), tuple(map(bool, self.keys))


MAX_TIE_FACTOR = 1.25
"""Largest factor of a tie: beyond it no plan is as good, however wide the errors are."""


@record(kw_only=True)
class Confidence:
    """90 % intervals of the predictions of a plan, from published runs like it.

    Parameters
    ----------
    factors : lower and upper factor on the prediction, by quantity
    layout_tie_factor : factor between speeds of two layouts below which they are tied, at most
        ``MAX_TIE_FACTOR``
    basis : evidence: measured, transferred, roofline or assumed
        (`planner.confidence.evidence.Evidence`), and whether a first run counts
    max_utilization : upper bound of MFU, which bounds the interval of the time
    runs : published runs of this software on this GPU with this layout
    missing : what no published run of this software has, as phrases
    price : factors on the price between which nine of ten sellers ask
    cost_is_fixed : a longer run costs no more
    """

    factors: Mapping[str, tuple[float, float]]
    layout_tie_factor: float
    basis: str
    max_utilization: float = math.inf
    runs: int = 0
    missing: tuple[str, ...] = ()
    price: tuple[float, float] = (1.0, 1.0)
    cost_is_fixed: bool = False

    @property
    def is_proven(self) -> bool:
        """Whether a published run used this software on this GPU with this layout."""
        return self.runs > 0

    def money_interval(self, ends: tuple[float, float]) -> tuple[float, float]:
        """Return lower and upper factor on a cost, with the range of the price included.

        Parameters
        ----------
        ends : lower and upper factor on the time or rate that money is proportional to
        """
        return range_of_product(FIXED if self.cost_is_fixed else ends, self.price)


@cache
def interval_of(
    quantity: str, keys: tuple[str, ...], tables: ErrorTables, basis: str = ""
) -> tuple[float, float]:
    """Return the (low, high) factors of the most specific interval with enough measurements.

    ``keys`` are the values of those of the ``tables``. The less evidence a ``basis`` is, the wider
    the interval. Where kernels are assumed, all intervals count: of serving those of the same
    mode, of training those of both tasks, which have the same kernels.
    """
    of_quantity = [row for row in _intervals(tables) if row.quantity == quantity]
    matching = [row for row in of_quantity if _matches_keys(row, keys)]
    best = [max(matching, key=lambda row: row.weight)] if matching else []
    if basis == ASSUMED:
        separate = [i for i, key in enumerate(tables.keys) if key in SEPARATE_KEYS]
        best += [row for row in of_quantity if all(row.keys[i] == keys[i] for i in separate)]
    if not best:
        return 0.0, math.inf
    wider = _widening(tables).get((quantity, basis if basis != ASSUMED else ROOFLINE), 1.0)
    low, high = min(row.low for row in best), max(row.high for row in best)
    return low ** (wider if low < 1 else 1), high ** (wider if high > 1 else 1)


def layout_tie_factor(keys: tuple[str, ...], tables: ErrorTables) -> float:
    """Return the factor between two layouts below which they are tied: their error, but no more
    than ``MAX_TIE_FACTOR``."""
    return min(interval_of("layout", keys, tables)[1], MAX_TIE_FACTOR)


def farther_basis(first: str, second: str) -> str:
    """The basis of two whose runs are farther."""
    return max(first, second, key=BASES.index)


def _matches_keys(row: Interval, keys: tuple[str, ...]) -> bool:
    return all(interval_key in ("", key) for interval_key, key in zip(row.keys, keys, strict=True))


@cache
def _widening(tables: ErrorTables) -> dict[tuple[str, str], float]:
    rows = read_table(tables.widening)
    return {(row["quantity"], row["basis"]): float(row["factor"]) for row in rows}


@cache
def _intervals(tables: ErrorTables) -> tuple[Interval, ...]:
    """Return the error intervals of a table that rest on at least FEWEST_ROWS measurements."""
    return tuple(
        Interval(
            quantity=row["quantity"],
            keys=tuple(row[name] for name in tables.keys),
            low=float(row["low"]),
            high=float(row["high"]),
            rows=int(row["rows"]),
        )
        for row in read_table(tables.intervals)
        if int(row["rows"]) >= FEWEST_ROWS
    )


MEDIAN = 0.5
"""The confidence of a prediction as it is."""

MAX_CONFIDENCE = (1 + LEVEL) / 2
"""The confidence at the end of an interval; published runs support no more."""

BAD_CASE = 0.9
"""The share of runs like a plan that are no worse than its bad case."""
_DEVIATION = NormalDist()


def check_confidence(confidence: float, option_name: str = "confidence") -> float:
    """Return the confidence; raise an error outside the range that intervals support.

    Raises SearchSpaceError if it is outside.
    """
    if not MEDIAN <= confidence <= MAX_CONFIDENCE:
        raise SearchSpaceError(
            f"{option_name} is from {MEDIAN:g} (the prediction) to {MAX_CONFIDENCE:g} (the "
            "end of the "
            f"{LEVEL:.0%} "
            f"interval; published runs support no more), or {MEDIAN:.0%} to "
            f"{MAX_CONFIDENCE:.0%}, not "
            f"{confidence:g}."
        )
    return confidence


def quantile(ends: tuple[float, float], confidence: float, side: int) -> float | None:
    r"""Return the factor on a prediction that a share ``confidence`` of runs stays within.

    ``ends`` are those of the 90 % interval, as factors; ``side`` is 1 for the factor that runs
    stay below, -1 for the one that they stay above. None where that end is unknown.

    Logarithms of errors are taken as normal on each side of the prediction, which is the median,
    with the spread of the end on this side:

    .. math:: f(q) = f_{0.95}^{z(q) / z(0.95)}

    An end on the other side of the prediction counts as the prediction.

    >>> quantile((0.5, 2.0), 0.95, 1), quantile((0.5, 2.0), 0.5, -1)
    (2.0, 1.0)
    """
    if confidence == MEDIAN:
        return 1.0
    end = max(ends[1], 1.0) if side > 0 else min(ends[0], 1.0)
    if not 0 < end < math.inf:
        return None
    if confidence == MAX_CONFIDENCE:
        return end
    share = _DEVIATION.inv_cdf(confidence) / _DEVIATION.inv_cdf(MAX_CONFIDENCE)
    return float(end**share)


def are_tied(best: tuple[float, float], worst: tuple[float, float]) -> bool:
    """Return whether two values differ by less than the error of published runs.

    Each is a positive quantity and the end of its 90 % interval on the side of the other. The
    errors of both are taken as independent; with unknown ends there is no tie.

    >>> are_tied((1.0, 1.5), (1.4, 1.1)), are_tied((1.0, 1.1), (1.4, 1.3))
    (True, False)
    """
    faces = [max(end / value, value / end) if end > 0 else math.nan for value, end in (best, worst)]
    if not all(map(math.isfinite, faces)):
        return False
    return math.log(worst[0] / best[0]) < math.hypot(*map(math.log, faces))


_NORMAL = NormalDist()


def probability_below(bound: float, predicted: float, ends: tuple[float, float]) -> float:
    r"""Return the probability that a run stays below ``bound``; ``ends``: 90 % interval.

    All are in the same unit. The inverse of `planner.confidence.intervals.quantile`: errors are
    log-normal on each side of the prediction, their median, with the spread of this side:

    .. math:: P = \Phi\left(z_{0.95} \frac{|\ln(bound / predicted)|}{\ln(end / predicted)}\right)

    An end on the other side of the prediction counts as the prediction. NaN where a number is
    unknown.

    >>> round(probability_below(2.0, 1.0, (0.5, 2.0)), 3), probability_below(1.0, 1.0, (0.5, 2.0))
    (0.95, 0.5)
    """
    if not all(math.isfinite(number) and number > 0 for number in (bound, predicted, *ends)):
        return math.nan
    side = 1 if bound >= predicted else -1
    away = side * math.log(bound / predicted)
    spread = side * math.log(ends[side > 0] / predicted)
    if spread <= 0:
        return 0.5 if away == 0 else float(side > 0)
    return _NORMAL.cdf(side * _NORMAL.inv_cdf(MAX_CONFIDENCE) * away / spread)


@record(kw_only=True)
class MemoryErrors:
    r"""The distribution of needed over predicted memory of runs of a kind: log-normal.

    .. math:: P(needed < m) = \Phi\left(\frac{\ln(m / predicted) - center}{deviation}\right)

    Fitted to runs that report their memory, and to runs that only fit or ran out of memory
    (``scripts/memory_fits.py``). The interval of the memory and the fit probability both follow
    from it.

    Parameters
    ----------
    center : mean of the logarithm
    deviation : standard deviation of the logarithm
    """

    center: float
    deviation: float

    @property
    def interval(self) -> tuple[float, float]:
        """Lower and upper factor on the prediction: the quantiles of 5 % and 95 %.

        >>> low, high = MemoryErrors(center=0.0, deviation=0.1).interval
        >>> round(low, 3), round(high, 3)
        (0.848, 1.179)
        """
        reach = self.deviation * _NORMAL.inv_cdf(MAX_CONFIDENCE)
        return math.exp(self.center - reach), math.exp(self.center + reach)

    def fit_probability(self, *, predicted: Numeric, usable: Numeric) -> FloatArray:
        """Return the probability that ``usable`` bytes of memory suffice; NaN: unknown.

        >>> errors = MemoryErrors(center=0.0, deviation=0.1)
        >>> round(float(errors.fit_probability(predicted=8.0, usable=8.0)), 6)
        0.5
        """
        return fit_probability(
            predicted=predicted, usable=usable, center=self.center, deviation=self.deviation
        )

    def usable_share(self, confidence: float) -> float:
        """The share of usable memory that a prediction may reach for this fit probability."""
        return math.exp(-self.center - self.deviation * _NORMAL.inv_cdf(confidence))


def fit_probability(
    *, predicted: Numeric, usable: Numeric, center: Numeric, deviation: Numeric
) -> FloatArray:
    """Return the probability that ``usable`` bytes suffice, errors given per row; NaN: unknown."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return normal_upper_tail((np.log(np.divide(predicted, usable)) + center) / deviation)


@cache
def memory_errors(
    tables: ErrorTables, software: str, kind: str, scale: str = "", work: str = ""
) -> MemoryErrors:
    """Return the memory errors of the most specific group of runs that is large enough.

    Parameters
    ----------
    software : name of a framework or engine
    kind : dense or moe, of an engine `planner.confidence.error_classes.batching_kind`
    scale : of training, `planner.confidence.error_classes.scale_class`
    work : of training, `planner.confidence.error_classes.training_task`: runs that tune a model
        err more than those that are tuned themselves
    """
    errors = _errors(tables.fits)
    key = (kind, software, scale)
    levels = ((*(key[:number] + ("",) * (3 - number)), work) for number in (3, 2, 1, 0))
    return next(errors[level] for level in levels if level in errors)


@cache
def default_fit_confidence(tables: ErrorTables) -> float:
    """The confidence at which both wrong verdicts on published runs left out are as frequent."""
    (row,) = (row for row in read_table(tables.defaults) if row["fits"] == tables.fits)
    return float(row["confidence"])


@cache
def _errors(table: str) -> dict[tuple[str, str, str, str], MemoryErrors]:
    """Return the memory errors by kind, software, scale and work."""
    return {
        (row["kind"], row["software"], row["scale"], row["work"]): MemoryErrors(
            center=float(row["center"]), deviation=float(row["deviation"])
        )
        for row in read_table(table)
    }
