"""The sizes of one GPU type: its best fleets, a day, and the budget of a service."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field

from planner.base.csv_cells import Value, number_or_nan
from planner.base.records import record
from planner.base.units import DAY, HOUR, KILOWATT, MEGAWATT, MONTH, YEAR, parse_quantity
from planner.confidence.intervals import MEDIAN
from planner.confidence.ranking import RankedPlan
from planner.decide.api_comparison import ApiComparison, Offer
from planner.decide.assumptions import SensitiveAssumption
from planner.decide.sizing.daily_schedule import DailySchedule
from planner.decide.sizing.fleet import (
    CHEAPEST,
    FASTEST,
    FEWEST,
    LIMITS_WIDENED,
    MOST,
    SIMPLEST,
    SUFFIXES,
    FeasiblePlan,
    Margin,
    rank_row_by_cost,
)
from planner.errors import SearchSpaceError
from planner.optimize.collector import value_or_none
from planner.question.names import LIMITS_PROBABILITY
from planner.question.terms import glossary

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


_OF_COST = "value", "low", "high", "bad"
DEFAULT_CONFIDENCE = 0.9
"""Default confidence of sizes: 9 of 10 runs like the plan keep its limits."""
GPUS_BY_CONFIDENCE = {"num_gpus_predicted": MEDIAN, "num_gpus_at_90": DEFAULT_CONFIDENCE}
"""Columns of the number of GPUs that keeps the limits with a probability."""


@record(kw_only=True)
class Size:
    """GPUs of one type under one contract that a run or a service needs.

    Parameters
    ----------
    gpu : name of the GPU
    contract : contract
    fewest : fleet with the fewest GPUs; None: see ``reason``
    cheapest : fleet with the lowest cost, with a ``day`` that at the peak
    fastest : fleet with the shortest time within a budget
    simplest : recommended plan, if published runs do not distinguish its slightly higher number of
        GPUs from the fewest
    reason : why there is no fleet
    tried : numbers of GPUs that were searched, ascending
    not_tried : whole nodes below the fewest that may suffice and were not searched
    is_other_contract : no contract was requested and only another than the usual one has a price
    precision : effect of the assumed precision on the cheapest run; None: specified, or no effect
    day : cheapest day of a service with a load; None: no load
    day_of_fewest : cheapest day of the layout with the fewest GPUs at the peak
    carried : load that fits a limit of power or a budget; None: no such limit
    assumed : limits that planner assumes, by name [SI units]
    fewest_at_assumed : fleet within the assumed limits, if wider limits need fewer GPUs
    is_relaxed : the assumed limits were widened, as fewer GPUs keep the wider ones
    at_confidence : sizes that keep the same limits with other probabilities, by probability
    """

    gpu: str
    contract: str
    fewest: FeasiblePlan | None = None
    cheapest: FeasiblePlan | None = None
    fastest: FeasiblePlan | None = None
    simplest: FeasiblePlan | None = None
    reason: str = ""
    tried: tuple[int, ...] = ()
    not_tried: tuple[int, ...] = ()
    is_other_contract: bool = False
    precision: SensitiveAssumption | None = None
    day: DailySchedule | None = None
    day_of_fewest: DailySchedule | None = None
    carried: BudgetResult | None = None
    assumed: Mapping[str, float] = field(default_factory=dict)
    fewest_at_assumed: FeasiblePlan | None = None
    is_relaxed: bool = False
    at_confidence: Mapping[float, Size] = field(default_factory=dict)

    @property
    def choices(self) -> dict[str, FeasiblePlan]:
        """Return the different fleets by the criteria in which they are best (cheapest, ...)."""
        choices: dict[str, FeasiblePlan] = {}
        if self.carried is not None:
            return {MOST: self.carried.fleet}
        for name in (FEWEST, CHEAPEST, FASTEST, SIMPLEST):
            fleet = getattr(self, name)
            if fleet is None:
                continue
            same = next(
                (other for other, same_fleet in choices.items() if same_fleet is fleet), None
            )
            if same is not None:
                choices = {
                    f"{same}, {name}" if other == same else other: same_fleet
                    for other, same_fleet in choices.items()
                }
            else:
                choices[name] = fleet
        return choices

    @property
    def has_wider_limits(self) -> bool:
        """Whether the cheapest fleet keeps only wider limits than those that planner assumes."""
        best = self.cheapest or self.fewest
        margins = () if best is None else best.margins
        return any(
            self.assumed.get(margin.name, margin.bound) != margin.bound for margin in margins
        )

    @property
    def is_proven(self) -> bool:
        """Whether the software of the cheapest fleet was measured on its GPU."""
        best = self.cheapest or self.fewest
        return best is not None and best.is_proven

    @property
    def ranked_plan(self) -> RankedPlan:
        """Return the cost with its interval to detect ties; with a load, the cost of a day."""
        best = self.cheapest or self.fewest
        ranked = RankedPlan(math.nan) if best is None else rank_row_by_cost(best.row)
        if self.day is None or not ranked.value:
            return ranked
        ends = {n: getattr(ranked, n) * self.day.cost / ranked.value for n in _OF_COST}
        return ranked._replace(**ends)

    @property
    def order(self) -> tuple[bool, float, float]:
        """Return the sort key of a size: no plan last, then by cost in a bad case, then by GPUs.

        With a power limit or a budget, the size with most tokens/s comes first.
        """
        best = self.cheapest or self.fewest
        if best is None:
            return True, math.inf, math.inf
        if self.carried is not None:
            return False, -self.carried.output_tokens, float(best.num_gpus)
        cost = best.bad_case_cost if self.day is None else self.day.cost
        return False, math.inf if math.isnan(cost) else cost, float(best.num_gpus)

    def gpus_by_confidence(self, choice: str, confidence: float) -> dict[str, int | None]:
        """Return the columns `GPUS_BY_CONFIDENCE` of a choice; None: no plan; empty: not sized.

        Parameters
        ----------
        choice : name of a choice of `choices`
        confidence : probability to keep the limits of this size
        """
        if not self.at_confidence:
            return {}
        of_choice = (name for name in (FEWEST, CHEAPEST, FASTEST) if name in choice)
        name = next(of_choice, FEWEST)
        columns: dict[str, int | None] = {}
        for column, probability in GPUS_BY_CONFIDENCE.items():
            if probability == confidence:
                columns[column] = self.choices[choice].num_gpus
                continue
            size = self.at_confidence.get(probability)
            fleet = None if size is None else getattr(size, name) or size.fewest
            columns[column] = None if fleet is None else fleet.num_gpus
        return columns

    def peak_gpus_by_confidence(self, confidence: float) -> dict[str, int | None]:
        """Return the columns `GPUS_BY_CONFIDENCE` of the cheapest fleet; empty: not sized.

        Parameters
        ----------
        confidence : probability to keep the limits of this size
        """
        choices = [*self.choices]
        name = next((name for name in choices if CHEAPEST in name), next(iter(choices), ""))
        return self.gpus_by_confidence(name, confidence) if name else {}

    def rows(self, confidence: float) -> Iterator[dict[str, Value]]:
        """Return a row of result columns per choice; without a plan, one row with the reason.

        Parameters
        ----------
        confidence : probability to keep the limits
        """
        head = {"gpu": self.gpu, "contract": self.contract}
        if not self.choices:
            yield {**head, "choice": "", "feasible": False, "reason": self.reason}
        for name, fleet in self.choices.items():
            choice_columns: dict[str, Value] = {
                **head,
                "choice": name,
                "feasible": True,
                "reason": "",
            }
            more = {} if self.carried is None else self.carried.columns
            if self.assumed:
                before = self.fewest_at_assumed
                choice_columns["assumed_limits"] = ", ".join(self.assumed)
                choice_columns["num_gpus_at_assumed"] = None if before is None else before.num_gpus
                choice_columns[LIMITS_WIDENED] = self.has_wider_limits
            choice_columns |= self.gpus_by_confidence(name, confidence)
            yield {
                **choice_columns, "confidence": confidence,
                LIMITS_PROBABILITY: fleet.limits_probability,
                **_margin_columns(fleet.margins), **fleet.row, **more,
            }  # fmt: skip


def _margin_columns(margins: Iterable[Margin]) -> dict[str, float]:
    """Return columns with limit, value at the confidence and distance to the limit, per limit."""
    columns = {}
    for margin in margins:
        end, scale = SUFFIXES.get(glossary()[margin.name].unit, ("", 1.0))
        for prefix, value in (
            ("limit", margin.bound),
            ("sure", margin.value_at_confidence),
            ("spare", margin.spare),
        ):
            columns[f"{prefix}_{margin.name}{end}"] = value / scale
    return columns
