"""Whether a plan fits in memory: errors of published runs, those that ran out among them."""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.confidence.intervals import Tables
from planner.confidence.software import read_table


@record(kw_only=True)
class MemoryErrors:
    r"""How needed over predicted memory of runs of a kind is distributed: log-logistic.

    .. math:: P(needed < m) = \frac{1}{1 + e^{-z}}, \quad
              z = \frac{\ln(m / predicted) - center}{spread}

    Runs that say how much they needed tell it, and so do those that only ran, or ran out.
    """

    center: float
    spread: float

    def chance(self, *, predicted: Numeric, usable: Numeric) -> FloatArray:
        """The probability that ``usable`` memory is enough; NaN where either is unknown.

        >>> float(MemoryErrors(center=0.0, spread=0.1).chance(predicted=8.0, usable=8.0))
        0.5
        """
        return chance(predicted=predicted, usable=usable, center=self.center, spread=self.spread)

    def share(self, confidence: float) -> float:
        """The share of the usable memory that a prediction may reach to fit this surely."""
        odds = math.log(confidence / (1.0 - confidence))
        return math.exp(-self.center - self.spread * odds)


def chance(*, predicted: Numeric, usable: Numeric, center: Numeric, spread: Numeric) -> FloatArray:
    """`MemoryErrors.chance` with errors that differ from row to row."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        away = (np.log(np.divide(usable, predicted)) - center) / spread
        return np.asarray(1.0 / (1.0 + np.exp(-away)))


@cache
def memory_errors(tables: Tables, software: str, kind: str, scale: str) -> MemoryErrors:
    """Those of the most specific runs that there are enough of.

    ``software`` is the name of a framework or engine. ``kind`` is dense or moe, of an engine
    `planner.confidence.classes.batching`, ``scale`` that of training as
    `planner.confidence.classes.scale` has it.
    """
    known = _errors(tables.fits)
    asked = (kind, software, scale)
    levels = (asked[:number] + ("",) * (3 - number) for number in (3, 2, 1, 0))
    return next(known[level] for level in levels if level in known)


@cache
def default_fit_confidence(tables: Tables) -> float:
    """The confidence at which both wrong verdicts on published runs left out are as frequent."""
    (row,) = (row for row in read_table(tables.defaults) if row["fits"] == tables.fits)
    return float(row["confidence"])


@cache
def _errors(table: str) -> dict[tuple[str, str, str], MemoryErrors]:
    return {
        (row["kind"], row["software"], row["scale"]): MemoryErrors(
            center=float(row["center"]), spread=float(row["spread"])
        )
        for row in read_table(table)
    }
