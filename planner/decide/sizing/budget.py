"""A budget, and the load that a fleet carries within a budget or a power limit."""

from __future__ import annotations

import math
import re

from planner.base.csv_cells import Value, number_or_nan
from planner.base.records import record
from planner.base.units import DAY, HOUR, KILOWATT, MEGAWATT, MONTH, YEAR, parse_quantity
from planner.decide.api_comparison import ApiComparison, Offer
from planner.decide.sizing.fleet import (
    FeasiblePlan,
)
from planner.errors import SearchSpaceError
from planner.optimize.collector import value_or_none

POWER = "power"
_PERIODS = {"h": HOUR, "hour": HOUR, "day": DAY, "d": DAY, "month": MONTH, "year": YEAR}
_PER = re.compile(r"\s*(?:/|\bper\b|\ba\b)\s*")


@record(kw_only=True)
class Budget:
    """Money to spend, in total or per period.

    Parameters
    ----------
    amount : amount [USD]
    period : duration of the period [s]; None: in total
    """

    amount: float
    period: float | None = None

    @property
    def rate(self) -> float:
        """Budget per second [USD/s]; NaN: in total."""
        return math.nan if self.period is None else self.amount / self.period


def read_budget(budget: object, option_name: str = "budget") -> Budget:
    """Parse a budget: a total, or one with its period (``2MUSD``, ``50kUSD/month``).

    Raises SearchSpaceError if it is no amount, or its period is none.

    >>> read_budget("50k/month").period == 365 * 24 * 3600 / 12
    True
    """
    parts = _PER.split(str(budget).strip().removeprefix("$"), maxsplit=1)
    amount, period = parts[0], parts[1] if len(parts) > 1 else None
    if period is not None and period not in _PERIODS:
        raise SearchSpaceError(
            f"{option_name} {budget}: {period!r} is no period; write per hour, day, month or year."
        )
    try:
        value = parse_quantity(amount, "usd", "USD")
    except ValueError as error:
        raise SearchSpaceError(f"{option_name} {budget}: {error}.") from error
    if value <= 0:
        raise SearchSpaceError(f"{option_name} {budget}: must be above 0.")
    return Budget(amount=value, period=None if period is None else _PERIODS[period])


@record(kw_only=True)
class BudgetResult:
    """Load that a fleet carries within a limit of power or a budget.

    Parameters
    ----------
    fleet : fleet
    api : published prices per token of the model
    pue : power of the building over that of the IT equipment; None: unknown
    """

    fleet: FeasiblePlan
    api: ApiComparison
    pue: float | None = None

    @property
    def output_tokens(self) -> float:
        """Generated tokens per second [1/s]."""
        return number_or_nan(self.fleet.row["output_tokens_per_s"])

    @property
    def users(self) -> float:
        """Requests in flight at once: by Little's law those of a second times their latency."""
        row = self.fleet.row
        return number_or_nan(row["requests_per_s"]) * number_or_nan(row["request_latency_s"])

    @property
    def megawatts(self) -> float:
        """Power of the building [MW]; NaN: unknown power of the GPU."""
        return number_or_nan(self.fleet.row["power_kw"]) * KILOWATT / MEGAWATT

    @property
    def offer(self) -> Offer | None:
        """The offer with the median price of the model's tokens, current offers first."""
        return self.api.marked.get("median")

    @property
    def revenue(self) -> float:
        """Revenue at the median API price [USD/h]; NaN: no published price."""
        if self.offer is None:
            return math.nan
        return self.offer.cost * number_or_nan(self.fleet.row["requests_per_s"]) * HOUR

    @property
    def profit(self) -> float:
        """Revenue less the cost of the GPUs [USD/h]."""
        return self.revenue - self.fleet.cost

    @property
    def columns(self) -> dict[str, Value]:
        """Return the result columns per megawatt, of users, revenue and API prices."""
        row, mega = self.fleet.row, self.megawatts
        offer = self.offer
        each = {
            "gpus_per_megawatt": self.fleet.num_gpus / mega,
            "output_tokens_per_s_per_megawatt": self.output_tokens / mega,
            "requests_per_s_per_megawatt": number_or_nan(row["requests_per_s"]) / mega,
            "users": self.users,
            "users_per_megawatt": self.users / mega,
            "cost_per_hour_per_megawatt_usd": self.fleet.cost / mega,
            "revenue_per_hour_usd": self.revenue,
            "profit_per_hour_usd": self.profit,
            "profit_per_hour_per_megawatt_usd": self.profit / mega,
            "break_even_utilization": math.nan if offer is None else offer.utilization,
        }
        return {
            **{name: value_or_none(value) for name, value in each.items()},
            "pue": self.pue,
            "api_provider": None if offer is None else offer.price.provider,
            "api_prices": len(self.api.current) or len(self.api.offers),
        }
