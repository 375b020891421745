"""Goals of a search: the limits that plans keep, and the objectives that rank them."""

from __future__ import annotations

from planner.base.records import record
from planner.confidence.intervals import MEDIAN


@record(kw_only=True)
class Constraint:
    """``bound`` in SI units on an attribute of candidates: from above (``sign`` 1) or below (-1).

    ``unit`` is the type of its term. ``assumed``: the user did not specify it, see
    `planner.optimize.exhaustive`. ``confidence``: the share of published runs like these that
    would keep it.
    """

    name: str
    bound: float
    sign: int
    unit: str
    assumed: bool = False
    confidence: float = MEDIAN

    @property
    def format_confidence(self) -> str:
        """`` at 90 %``; empty where predictions are judged as they are."""
        return "" if self.confidence == MEDIAN else f" at {100 * self.confidence:g} %"


@record(kw_only=True)
class Objective:
    """An attribute of candidates; ``sign`` is 1 to minimize it, -1 to maximize it."""

    name: str
    sign: int
