"""The GPUs of a service whose load changes over a day: a reserved base, the peak on demand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

from planner.base.csv_cells import Value
from planner.base.enums import Contract
from planner.base.records import record
from planner.base.units import DAY, HOUR
from planner.decide.sizing.autoscaling import (
    HOURS,
    MAX_LATE_SHARE,
    SPARE_SHARES,
    Fleets,
    LoadPeriod,
    LoadProfile,
    ScaledFleet,
    ValueSpans,
    autoscaled_counts,
    size_autoscaled,
)  # fmt: skip
from planner.decide.sizing.fleet import FeasiblePlan
from planner.question.names import GPU, NUM_GPUS, REQUEST_RATE, REQUESTS_PER_S, TIME
from planner.specs.price import TERMS

DAYS_PER_MONTH = 365 / 12


@record(kw_only=True)
class HourlyPrices:
    """Price of a GPU all day and by the hour.

    Parameters
    ----------
    base : price all day [USD/s]
    base_contract : contract of this price
    hourly : price by the hour [USD/s]
    hourly_contract : contract of this price
    """

    base: float
    base_contract: str
    hourly: float
    hourly_contract: str


@record(kw_only=True)
class DayPeriod:
    """A period of the day and the GPUs that serve it.

    Parameters
    ----------
    period : period with its request rate
    num_gpus : GPUs that serve
    base : of these, GPUs that are paid all day
    capacity : request rate that the GPUs can serve [1/s]
    paid : hours and running GPUs of each part of the period, with GPUs that start for a later one
    """

    period: LoadPeriod
    num_gpus: int
    base: int
    capacity: float
    paid: tuple[tuple[float, float], ...]

    @property
    def on_demand(self) -> int:
        """GPUs beyond the base."""
        return max(self.num_gpus - self.base, 0)

    def hours_beyond(self, base: int) -> float:
        """Return the GPU-hours of this period beyond ``base`` GPUs.

        Parameters
        ----------
        base : number of GPUs
        """
        return sum(hours * max(gpus - base, 0) for hours, gpus in self.paid)


@record(kw_only=True)
class DailySchedule:
    """A day of a service on one GPU type: one layout, with copies for each hour.

    Parameters
    ----------
    load : request rate over the day
    peak : fleet at the peak
    hours : periods with their GPUs
    base : GPUs that are paid all day
    terms : price of the GPUs
    startup_time : time from the start of a GPU to its first request [s]
    """

    load: LoadProfile
    peak: FeasiblePlan
    hours: tuple[DayPeriod, ...]
    base: int
    terms: HourlyPrices
    startup_time: float = 0.0

    @property
    def gpu(self) -> str:
        """Name of the GPU."""
        return str(self.peak.row["gpu"])

    @property
    def gpu_hours(self) -> float:
        """GPU-hours of a day that are paid."""
        beyond = sum(hour.hours_beyond(self.base) for hour in self.hours)
        return HOURS * self.base + self.load.repeats * beyond

    @property
    def starting_hours(self) -> float:
        """GPU-hours of a day that are paid while GPUs start."""
        serving = sum(hour.on_demand * hour.period.hours for hour in self.hours)
        return self.gpu_hours - HOURS * self.base - self.load.repeats * serving

    @property
    def base_cost(self) -> float:
        """Cost of the GPUs that are paid all day [USD/day]."""
        return HOURS * self.base * HOUR * self.terms.base

    @property
    def commitment_cost(self) -> float:
        """Cost of the base GPUs for the whole term of their contract [USD]; NaN: no term."""
        base = self.terms.base_contract or Contract.ON_DEMAND
        return self.base_cost * (TERMS.get(Contract(base), math.nan) or math.nan) / DAY

    @property
    def base_utilization(self) -> float:
        """Share of the hours of the base GPUs in which they are needed; NaN: no base GPUs."""
        needed = sum(min(hour.num_gpus, self.base) * hour.period.hours for hour in self.hours)
        return needed / (self.load.hours * self.base) if self.base else math.nan

    @cached_property
    def autoscaled(self) -> tuple[ScaledFleet, ...]:
        """Return the results of an autoscaler that follows the load, one per spare capacity."""
        return tuple(
            size_autoscaled(self.load, self._fleets, spare, self.startup_time)
            for spare in SPARE_SHARES
        )

    def autoscaler_counts(self, spare: float) -> tuple[ValueSpans, ValueSpans]:
        """Return the GPUs that an autoscaler requests over time, and the rate served [1/s].

        Parameters
        ----------
        spare : capacity beyond the current load, as a share of the load
        """
        return autoscaled_counts(self.load, self._fleets, spare, self.startup_time)

    @property
    def _fleets(self) -> Fleets:
        """The fleets of its rates, with capacities at the confidence of the size."""
        share = self.peak.rate_share_at_confidence
        each = {hour.period.request_rate: hour for hour in self.hours}
        return [(rate, each[rate].num_gpus, share * each[rate].capacity) for rate in sorted(each)]

    @property
    def with_spare(self) -> ScaledFleet | None:
        """The autoscaler with the least spare that delays at most `MAX_LATE_SHARE` of the
        requests.
        """
        return next((fleet for fleet in self.autoscaled if fleet.late <= MAX_LATE_SHARE), None)

    @property
    def order(self) -> tuple[float, float]:
        """Sort key of days: cost, then GPU-hours if no price is known."""
        return math.inf if math.isnan(self.cost) else self.cost, self.gpu_hours

    @property
    def cost(self) -> float:
        """Cost of a day [USD]; NaN: unknown price."""
        return day_cost(self.hours, self.base, self.terms, self.load.repeats)

    @property
    def cost_per_month(self) -> float:
        """Cost of a twelfth of a year [USD]."""
        return self.cost * DAYS_PER_MONTH

    @property
    def cost_at_peak(self) -> float:
        """Cost of a day that pays the GPUs of the peak all day, at the lower price [USD]."""
        peak_gpus = max(hour.num_gpus for hour in self.hours)
        return peak_gpus * HOURS * HOUR * min(self.terms.base, self.terms.hourly)

    @property
    def utilization(self) -> float:
        """Request rate over the capacity of the running GPUs, in the mean of the day."""
        could = sum(hour.capacity * hour.period.hours for hour in self.hours)
        return self.load.requests / HOUR / (self.load.repeats * could) if could else math.nan

    def rows(self) -> Iterator[dict[str, Value]]:
        """Yield a row per period: time, rate [requests/s], GPUs, contracts and cost [USD]."""
        for hour in self.hours:
            period = hour.period
            yield {
                GPU: self.gpu,
                TIME: period.clock,
                "hours": period.hours,
                REQUEST_RATE: period.request_rate,
                NUM_GPUS: hour.num_gpus,
                "base_gpus": hour.base,
                "on_demand_gpus": hour.on_demand,
                REQUESTS_PER_S: hour.capacity,
                "base_contract": self.terms.base_contract,
                "hourly_contract": self.terms.hourly_contract,
                "starting_gpu_hours": hour.hours_beyond(hour.base) - hour.on_demand * period.hours,
                "cost_usd": HOUR
                * (
                    period.hours * hour.base * self.terms.base
                    + hour.hours_beyond(hour.base) * self.terms.hourly
                ),
                "basis": self.peak.row.get("basis"),
                "assumed": self.peak.row.get("assumed"),
            }


def day_cost(
    hours: Sequence[DayPeriod], base: int, terms: HourlyPrices, repeats: float = 1.0
) -> float:
    """Return the cost of a day [USD] with ``base`` GPUs paid all day, others by the hour."""
    beyond = repeats * sum(hour.hours_beyond(base) for hour in hours)
    return HOUR * (base * HOURS * terms.base + beyond * terms.hourly)


def cheapest_base(hours: Sequence[DayPeriod], terms: HourlyPrices, repeats: float = 1.0) -> int:
    """Return how many GPUs to pay all day at the lowest cost; the fewest if costs are equal.

    The cost is a piecewise linear function of this number, with a bend at the GPUs of each period.
    """
    least = min(hour.num_gpus for hour in hours)
    if terms.base == terms.hourly or math.isnan(terms.base + terms.hourly):
        return least
    numbers = sorted({0, *(hour.num_gpus for hour in hours)})
    return min(numbers, key=lambda base: (day_cost(hours, base, terms, repeats), base))
