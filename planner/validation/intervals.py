"""90 % intervals from the residuals of published runs, and how near those runs are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from planner.arrays import FloatArray
from planner.validation.cases import Case
from planner.validation.tables import FrameworkRule, read_table

LEVEL = 0.9
KEYS = ("framework", "gpu_class", "scale", "kind")
INFERENCE_KEYS = ("engine", "gpu_class", "mode", "kind")
FEWEST_ROWS = 20


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Factors on a prediction between which measurements of similar runs lie.

    ``keys`` are the values of ``KEYS`` it holds for; an empty one means any.
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


def interval(quantity: str, case: Case) -> tuple[float, float]:
    """The factors of the most specific interval with enough rows behind it.

    ``quantity`` is ``step_time`` or ``peak_memory``.
    """
    return interval_of(quantity, keys_of(case))


def keys_of(case: Case) -> tuple[str, ...]:
    """The values of ``KEYS`` of a case."""
    return (case.rule.label, case.gpu_class, case.scale, case.kind)


def basis(case: Case) -> str:
    """How near the calibration runs are: measured, transferred or roofline.

    ``measured``: some used this profile on this class of GPU with this kind of model;
    ``transferred``: some used the profile, or its silicon; else ``roofline``.
    """
    return basis_of(case.rule, case.gpu_class, case.kind)


def basis_of(rule: FrameworkRule, silicon: str, kind: str) -> str:
    """As `basis`, for a framework, a class of GPUs and a kind of model."""
    key = (rule.profile, silicon, kind)
    return basis_among(calibrated_kinds("calibrated.csv"), key, exact=not rule.nearest)


def basis_among(
    calibrated: frozenset[tuple[str, str, str]], key: tuple[str, str, str], *, exact: bool
) -> str:
    """The basis of a profile, class of GPUs and kind of model among those calibrated.

    ``exact``: the profile is of the software itself, not only the closest to it.
    """
    if exact and key in calibrated:
        return "measured"
    near = any((exact and key[0] == row[0]) or key[1] == row[1] for row in calibrated)
    return "transferred" if near else "roofline"


def conformal_factors(
    residuals: Sequence[float],
    coverage: float,
    weights: Sequence[float] | None = None,
    new_weight: float = 1.0,
) -> tuple[float, float]:
    """Factors that hold a new ``measured / predicted`` with at least this probability.

    ``residuals`` are logarithms of measured over predicted. With equal weights they are of
    exchangeable runs, and each end stands at the rank ``ceil((n + 1) q)`` of split conformal
    prediction [1]_, half of what may be missed beyond it. Runs of one source are not: with
    ``weights`` that make each source count alike, ``new_weight`` is that of a new source [2]_.
    Where there are too few, an end is infinite, or zero.

    References
    ----------
    .. [1] A. Angelopoulos and S. Bates, "A gentle introduction to conformal prediction,"
       2021, arXiv:2107.07511, section 1.
    .. [2] R. Dunn, L. Wasserman and A. Ramdas, "Distribution-free prediction sets for
       two-layer hierarchical models," 2022, arXiv:1809.07441.
    """
    values = np.asarray(residuals, dtype=np.float64)
    shares = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64)
    level = (1 + coverage) / 2
    low = _quantile(-values, shares, new_weight, level)
    return math.exp(-low), math.exp(_quantile(values, shares, new_weight, level))


def _quantile(values: FloatArray, weights: FloatArray, new_weight: float, level: float) -> float:
    """The weighted quantile with one value more at infinity."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    needed = level * (np.sum(weights) + new_weight)
    index = int(np.searchsorted(reached, needed * (1 - 1e-12)))
    return float(values[order][index]) if index < len(values) else math.inf


@cache
def interval_of(
    quantity: str, keys: tuple[str, ...], table: str = "intervals.csv"
) -> tuple[float, float]:
    """As `interval`, for a kind of run named by the values of the keys of a ``table``."""
    matching = [
        row
        for row in _intervals(table)
        if row.quantity == quantity
        and all(mine in ("", given) for mine, given in zip(row.keys, keys, strict=True))
    ]
    if not matching:
        return 0.0, math.inf
    best = max(matching, key=lambda row: row.weight)
    return best.low, best.high


@cache
def _intervals(table: str) -> tuple[Interval, ...]:
    return tuple(
        Interval(
            quantity=row["quantity"],
            keys=tuple(row.values())[1 : 1 + len(KEYS)],
            low=float(row["low"]),
            high=float(row["high"]),
            rows=int(row["rows"]),
        )
        for row in read_table(table)
        if int(row["rows"]) >= FEWEST_ROWS
    )


@cache
def calibrated_kinds(table: str) -> frozenset[tuple[str, str, str]]:
    """The profiles, classes of GPUs and kinds of models that were calibrated on runs."""
    return frozenset((row["profile"], row["gpu_class"], row["kind"]) for row in read_table(table))
