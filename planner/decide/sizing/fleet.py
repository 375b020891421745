"""Results of sizing: feasible plans, their margins, sizes by GPU type, and near misses."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from planner.base.arrays import first
from planner.base.csv_cells import Row, Value, number_or_nan
from planner.base.formatting import format_gpus, format_limit, summarize_assumed
from planner.base.records import record
from planner.base.units import GIB
from planner.confidence.intervals import MEDIAN
from planner.confidence.ranking import RankedPlan, are_plans_tied, recommended_index
from planner.configurations.configuration_tables import PREFILL
from planner.optimize.collector import NearestMiss, main_rejection
from planner.optimize.goals import Constraint
from planner.optimize.problem import (
    factor_at_confidence,
    is_unknown,
    joint_probability,
    judged_value,
    limit_probability_or_none,
    value_at_confidence,
    with_rate_limit,
)
from planner.optimize.result import SearchResult
from planner.optimize.result_columns import (
    BASIS,
    RUNS,
    TIE_FACTOR,
    bad_case_value,
    distinguishing_interval,
    ends_of,
    full_row,
    rank_row,
)
from planner.optimize.source import Candidates, Source
from planner.question.terms import ENDINGS, terms_about
from planner.workloads.make_plan import EACH_ITS_DEFAULT, Plan

AnyRow = TypeVar("AnyRow", bound=Row)
RATE = "request_rate"
SUFFIXES = {unit: ENDINGS[unit] for unit in ("d", "s", "GiB", "USD")}
"""Suffix and unit of the columns of a limit, by the unit of the limit."""

RUN_COST, HOURLY_COST = "cost_usd", "cost_per_hour_usd"
COSTS = RUN_COST, HOURLY_COST
"""Columns of the cost of a fleet: of a run, of an hour of a service."""
# Experts are on the GPUs that the other degrees make.
_OF_REPLICAS = [
    name for name in terms_about("parallel_degree", "serve") if name != "expert_parallel"
]

# Fields of the request that are the same for all fleets.
_OF_WORK = terms_about("plan_purpose")
FEWEST, CHEAPEST, FASTEST = "fewest", "cheapest", "fastest"
SIMPLEST, MOST = "simplest", "most"
LIMITS_WIDENED = "limits_widened"
"""Column: a fleet keeps only wider limits than those that planner assumes."""


@record(kw_only=True)
class Margin:
    """Margin of a plan within a limit, in SI units.

    Parameters
    ----------
    name : name of the limit
    unit : unit in the table of terms
    sign : 1: upper bound, -1: lower bound
    bound : bound
    predicted : predicted value, the median
    value_at_confidence : value that the requested ``confidence`` of runs keeps
    has_errors : published runs determine the error; otherwise ``value_at_confidence`` is the
        prediction
    probability : probability to keep the limit; None: unknown
    """

    name: str
    unit: str
    sign: int
    bound: float
    predicted: float
    value_at_confidence: float
    has_errors: bool
    probability: float | None = None

    @property
    def spare(self) -> float:
        """Distance of ``sure`` to the bound [SI unit]; at least 0 if the limit is kept."""
        return self.sign * (self.bound - self.value_at_confidence)

    @property
    def share(self) -> float:
        """Distance of ``sure`` to the bound as a share of the bound."""
        return self.spare / self.bound if self.bound else math.inf


@record(kw_only=True)
class FeasiblePlan:
    """A plan that keeps every limit.

    Parameters
    ----------
    row : result columns with intervals
    margins : margin of each limit
    limit_names : question in sentences
    chosen : assumed values by question
    """

    row: Row
    margins: tuple[Margin, ...]
    limit_names: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)

    @property
    def num_gpus(self) -> int:
        """GPUs of the plan."""
        return int(number_or_nan(self.row["num_gpus"]))

    @property
    def cost(self) -> float:
        """Cost of a run [USD] or of a service [USD/h]; NaN: unknown price."""
        return number_or_nan(self.row.get("cost_usd", self.row.get("cost_per_hour_usd")))

    @property
    def bad_case_cost(self) -> float:
        """Cost that 9 of 10 published runs like the plan keep [USD or USD/h]."""
        return bad_case_cost(self.row)

    @property
    def with_spare(self) -> tuple[int, float] | None:
        """Return GPUs and cost [USD/h] with one spare replica, or one spare worker of each kind;
        None: the plan is no service.

        Each kind of worker may then lose one without missing a limit. Also None if the row lacks
        the GPUs of a replica, or workers have GPUs of different prices.
        """
        row = self.row
        if row.get(HOURLY_COST) is None or row.get("prefill_gpu") not in (None, "", row["gpu"]):
            return None
        if not (workers := gpus_of_workers(row)):
            return None
        more = self.num_gpus + sum(workers)
        return more, self.cost * more / self.num_gpus

    @property
    def is_proven(self) -> bool:
        """Whether the software was measured on the GPU at such work, or errors are unknown."""
        return self.row.get(RUNS) != 0

    @property
    def tightest(self) -> Margin | None:
        """The limit with the smallest share to spare; None where there is no limit."""
        return min(self.margins, key=lambda margin: margin.share, default=None)

    @property
    def spare(self) -> float:
        """Margin of the tightest limit as a share of its bound; infinite without limits."""
        return math.inf if self.tightest is None else self.tightest.share

    @property
    def limits_probability(self) -> float:
        """The probability to keep all limits together; NaN: unknown."""
        chances = {m.name: m.probability for m in self.margins if m.probability is not None}
        return float(joint_probability(chances)) if chances else math.nan

    @property
    def rate_share_at_confidence(self) -> float:
        """The request rate at the required confidence over the predicted one; 1 without limit."""
        rates = (margin for margin in self.margins if margin.name == RATE)
        return next(
            (rate.value_at_confidence / rate.predicted for rate in rates if rate.predicted), 1.0
        )

    @classmethod
    def of(cls, plan: Plan, candidates: Candidates) -> FeasiblePlan:
        """Build the fleet of one configuration of a plan.

        Parameters
        ----------
        plan : plan of the request
        candidates : one judged configuration
        """
        source = candidates.source
        row = full_row(candidates, [source])
        row = {**row, **_evidence_columns(plan, candidates, row)}
        return cls(
            row=row,
            margins=tuple(_margins(plan, candidates)),
            limit_names=tuple(plan.workload.wording.question_lines(source.inputs)),
            chosen={
                name: default_text
                for name in _OF_WORK
                if (default_text := plan.defaults.get(name)) and default_text != EACH_ITS_DEFAULT
            },
        )


def gpus_of_workers(row: Row) -> list[int]:
    """Return the GPUs per replica, or per decode and prefill worker; empty: the row lacks them."""
    sizes = list[tuple[int, int]]()
    for worker in ("", PREFILL):
        if replicas := row.get(f"{worker}replicas"):
            degrees = (number_or_nan(row.get(worker + name) or 1) for name in _OF_REPLICAS)
            sizes.append((int(number_or_nan(replicas)), int(math.prod(degrees))))
    is_all = sum(replicas * gpus for replicas, gpus in sizes) == number_or_nan(row["num_gpus"])
    return [gpus for _, gpus in sizes] if is_all else []


_CAPACITY = "capacity_requests_per_s"


def cost_ends(row: Row) -> tuple[float, float, float]:
    """Return the cost of a row and its interval [USD, or USD/h of a service]; NaN: unknown.

    The hourly price of a service has no error; its number of GPUs has the error of the capacity.
    """
    column = RUN_COST if row.get(RUN_COST) is not None else HOURLY_COST
    value = number_or_nan(row.get(column))
    low, high = distinguishing_interval(column, row) or (math.nan, math.nan)
    if column == HOURLY_COST and not math.isfinite(low + high):
        carried = number_or_nan(row.get(_CAPACITY))
        min_capacity, max_capacity = (number_or_nan(row.get(end)) for end in ends_of(_CAPACITY))
        if carried > 0 and min_capacity > 0:
            low, high = value * carried / max_capacity, value * carried / min_capacity
    return value, low, high


def bad_case_cost(row: Row) -> float:
    """Return the cost that 9 of 10 runs like this row do not exceed [USD, or USD/h]; NaN: unknown.

    A service is sized at its confidence, so that its cost already covers the bad case.
    """
    if row.get(RUN_COST) is None:
        return number_or_nan(row.get(HOURLY_COST))
    return bad_case_value(RUN_COST, row, 1)


def order_by_cost(rows: Sequence[AnyRow]) -> list[AnyRow]:
    """Sort rows: the recommended one, then by cost in a bad case, then by number of GPUs.

    Recommended is the cheapest in a bad case, or a row tied with the cheapest that has more
    evidence. Rows that keep the assumed limits come before rows that keep only wider ones.
    """

    def order(row: Row) -> tuple[float, float]:
        cost = bad_case_cost(row)
        return math.inf if math.isnan(cost) else cost, number_or_nan(row.get("num_gpus"))

    by_cost = sorted(rows, key=order)
    cheapest = [row for row in by_cost if CHEAPEST in str(row.get("choice") or CHEAPEST)]
    if not cheapest:
        return by_cost
    within_limits = [row for row in cheapest if not row.get(LIMITS_WIDENED)] or cheapest
    first = within_limits[recommended_index([rank_row_by_cost(row) for row in within_limits])]
    return [first, *(row for row in by_cost if row is not first)]


def rank_row_by_cost(row: Row) -> RankedPlan:
    """Return the cost and its interval of a row as a ranked plan, to detect ties."""
    value, low, high = cost_ends(row)
    ranked = rank_row(RUN_COST if row.get(RUN_COST) is not None else HOURLY_COST, row)
    time = number_or_nan(row.get("time_to_train_days"))
    return ranked._replace(value=value, low=low, high=high, bad=bad_case_cost(row), time=time)


def are_tied_with_first(rows: Sequence[Row]) -> list[bool]:
    """Return, per row, True if its cost is tied with that of the first; False for the first."""
    standings = [rank_row_by_cost(row) for row in rows]
    first = standings[0]
    return [
        place > 0 and first.value > 0 and are_plans_tied(first, standing)
        for place, standing in enumerate(standings)
    ]


def _evidence_columns(plan: Plan, candidates: Candidates, row: Row) -> dict[str, Value]:
    """Return the columns on how reliable a plan is: basis, tie factor and assumptions."""
    source = candidates.source
    confidence = source.confidence_of(row)
    return {
        BASIS: None if confidence is None else confidence.basis,
        TIE_FACTOR: None if confidence is None else float(confidence.layout_tie_factor),
        "assumed": summarize_assumed(plan.assumed),
    }


def _margins(plan: Plan, candidates: Candidates) -> Iterator[Margin]:
    """Yield each limit of the plan, and the request rate, with predicted and bad-case value."""
    source, rate = candidates.source, plan.request.request_rate
    limits = with_rate_limit(plan.problem.constraints, rate)
    chances = {limit.name: limit_probability_or_none(candidates, limit) for limit in limits}
    for limit in plan.problem.constraints:
        yield Margin(
            name=limit.name,
            unit=limit.unit,
            sign=limit.sign,
            bound=limit.bound,
            predicted=first(candidates.value(limit.name)),
            value_at_confidence=first(judged_value(candidates, limit)),
            has_errors=not is_unknown(source, limit.name, limit.confidence, limit.sign),
            probability=chances[limit.name],
        )
    confidence = plan.request.limit_confidence
    if rate is None or any(limit.name == RATE for limit in plan.problem.constraints):
        return
    yield Margin(
        name=RATE,
        unit="1/s",
        sign=-1,
        bound=rate,
        predicted=first(candidates.value(RATE)),
        value_at_confidence=first(value_at_confidence(candidates, RATE, confidence, -1)),
        has_errors=confidence == MEDIAN or not is_unknown(source, RATE, confidence, -1),
        probability=chances[RATE],
    )


DEADLINES = ("calendar_time", "time_to_train")
"""Limits of the time of a run, in the order of evaluation."""

MORE_EFFICIENT = 1.25
"""Factor by which an untried number of GPUs may be more efficient than all tried ones."""


def time_limit(plan: Plan) -> Constraint | None:
    """The limit of the time of a run; None: no limit."""
    limits = {limit.name: limit for limit in plan.problem.constraints}
    return next((limits[name] for name in DEADLINES if name in limits), None)


@dataclass
class LowerBound:
    """Lower bound of the number of GPUs, from the runs predicted so far.

    It falls when a more efficient run is seen: what it ruled out before is then open again.
    ``efficient`` is the least GPU time of a run, ``limit`` its deadline at the least sure factor,
    ``needed`` are numbers of GPUs whose memory is enough for what was nearest to fitting on fewer,
    ``held`` is the least number that something fits. ``factors``: the least sure factor of each
    source, whatever its number of GPUs.
    """

    efficient: float = math.inf
    limit: float = math.inf
    needed: set[float] = field(default_factory=set)
    held: float = math.inf
    factors: dict[str, float] = field(default_factory=dict)

    @property
    def fewest(self) -> float:
        """Return a lower bound of the number of GPUs, from time and memory of earlier tries."""
        has_time = self.limit > 0 and math.isfinite(self.efficient)
        time = self.efficient / self.limit if has_time else 0.0
        # A contradicted bound comes from a number that divides layers or batch badly.
        memory = max((count for count in self.needed if count <= self.held), default=0.0)
        return max(time, memory) / MORE_EFFICIENT

    def record_run(self, plan: Plan, candidates: Candidates, count: int) -> None:
        """Record that a run fits on ``count`` GPUs and how long it takes, even if it misses limits.

        GPU time usually grows with the number of GPUs, so that a run bounds the GPUs from below.
        Interruptions would only lengthen the run.
        """
        self.held = min(self.held, count)
        limit = time_limit(plan)
        time = float(np.ravel(candidates.value("time_to_train"))[0])
        if limit is None or not math.isfinite(time):
            return
        self.efficient = min(self.efficient, count * time)
        for source in plan.problem.sources:
            if source.description not in self.factors:
                self.factors[source.description] = _min_time_factor(source, limit)
        self.limit = limit.bound / min(
            self.factors[plan_source.description] for plan_source in plan.problem.sources
        )

    def record_out_of_memory(self, result: SearchResult, count: int) -> None:
        """Record that nothing fits ``count`` GPUs, and how many GPUs its memory needs at least.

        Ignored if the memory of the host is too small, since more GPUs bring more hosts.
        """
        host, memory = result.problem.rejections[result.problem.first_soft - 1 :][:2]
        if host in result.rejected_by:
            return
        for miss in result.nearest_misses:
            if miss.rejection == memory and math.isfinite(miss.value):
                self.needed.add(count * miss.value / miss.bound)


def _min_time_factor(source: Source, limit: Constraint) -> float:
    """Return the smallest factor from predicted to bad-case time over sizes of the cluster."""
    per_node = source.inputs.machine.cluster.gpus_per_node
    numbers = (1, per_node, per_node + 1, 10**6)
    factors = [
        factor_at_confidence(
            source.confidence(number, group), limit.name, limit.confidence, limit.sign
        )
        for number in numbers
        for group in source.groups
    ]
    return min(factor or 1.0 for factor in factors)


@record(kw_only=True)
class NearMiss:
    """The nearest miss; ``excess`` is the distance beyond the bound, as a share of it.

    ``num_gpus`` is 0 if their number follows from other answers.
    ``limit`` is the index of the missed limit in the order of evaluation: all before it are kept.
    -1: it does not fit or breaks a rule.
    """

    num_gpus: int
    description: str
    excess: float
    limit: int

    @property
    def is_limit(self) -> bool:
        """Whether it runs, but misses a limit."""
        return self.limit >= 0

    @property
    def order(self) -> tuple[int, float, int]:
        """Return the sort key of a miss, nearest first; among broken rules, the most GPUs first.

        A plan that misses a later limit keeps the limits before. Few GPUs break more rules.
        """
        return -self.limit, self.excess, -self.num_gpus

    @classmethod
    def of(cls, plan: Plan, result: SearchResult, num_gpus: int = 0) -> NearMiss:
        """Return the nearest miss of a search without a feasible plan: limit, memory or rule."""
        limits = [limit.name for limit in plan.problem.constraints]
        misses = [miss for miss in result.nearest_misses if miss.rejection in limits]
        if misses:
            last = max(misses, key=lambda miss: limits.index(miss.rejection))
            place = limits.index(last.rejection)
            description = _missed_limit_text(plan.problem.constraints[: place + 1], last, num_gpus)
            excess = last.excess if math.isfinite(last.value) else math.inf
            return cls(num_gpus=num_gpus, description=description, excess=excess, limit=place)
        for miss in sorted(result.nearest_misses, key=lambda near_miss: near_miss.excess):
            needed, room = miss.value / GIB, miss.room / GIB
            description = (
                f"nothing fits{_gpu_count_text(num_gpus)}: {needed:,.1f} GiB "
                f"needed, {room:,.1f} GiB usable"
            )
            return cls(num_gpus=num_gpus, description=description, excess=miss.excess, limit=-1)
        rule = main_rejection(result.problem, result.groups)
        descriptions = {rule.name: rule.description for rule in plan.problem.sources[0].rules}
        description = f"nothing is possible: {descriptions.get(rule, rule)}".removesuffix(": ")
        return cls(num_gpus=num_gpus, description=description, excess=math.inf, limit=-1)


def closest_reason(missed: Sequence[NearMiss]) -> str:
    """The reason of the nearest miss; limits count before memory and rules."""
    best = min(missed, key=lambda miss: miss.order, default=None)
    return "no number of GPUs left to try" if best is None else best.description


def _missed_limit_text(limits: Sequence[Constraint], miss: NearestMiss, num_gpus: int) -> str:
    """Describe the last of ``limits``, which was missed, and name the others, which were kept."""
    *kept_limits, limit = limits
    name = _limit_name(limit)
    if not math.isfinite(miss.value):
        return f"{name} is unknown: give --price"
    value, bound = (format_limit(number, limit.unit) for number in (miss.value, miss.bound))
    side = "above" if limit.sign > 0 else "below"
    side = f"just {side}" if value == bound else side
    text = f"{name} {value}{limit.format_confidence}{_gpu_count_text(num_gpus)}, {side} {bound}"
    names = " and ".join(map(_limit_name, kept_limits))
    if kept_limits:
        return f"{text}, where {names} {'is' if len(kept_limits) == 1 else 'are'} kept"
    return text


def _limit_name(limit: Constraint) -> str:
    return limit.name.replace("_", " ")


def _gpu_count_text(num_gpus: int) -> str:
    return f" with {format_gpus(num_gpus)}" if num_gpus else ""
