"""Search of the largest load that a service carries within a power limit or a budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from planner.base.csv_cells import number_or_nan
from planner.base.formatting import format_gpus, format_kw, format_usd
from planner.base.units import HOUR, KILOWATT
from planner.decide.api_comparison import compare_with_apis
from planner.decide.sizing.day_search import request_with_layout
from planner.decide.sizing.fleet import (
    RATE,
    FeasiblePlan,
    NearMiss,
    closest_reason,
    gpus_of_workers,
)
from planner.decide.sizing.searches import (
    Searches,
    best_plan_of_each_group,
    plan_with_fewest_gpus,
    serving_size,
)
from planner.decide.sizing.size import POWER, BudgetResult
from planner.optimize.source import Candidates
from planner.question.names import BUDGET
from planner.question.request import Request
from planner.specs.gpu import ClusterSpec
from planner.workloads.make_plan import Plan, make_plan
from planner.workloads.priced_hardware import LARGEST_OF_ALL
from planner.workloads.serving.results import POOLED

MOST_GPUS = "max_gpus"
NUMBERS = ("replicas", "prefill_replicas")
_ROUNDED = 1e-9
# Number of nodes on which layouts are compared by tokens per watt and per dollar.
_NODES = 8
# Larger pools are multiples of pools with so many GPUs.
_MOST_AT_ONCE = 512
# Layouts that are looked at on all GPUs, and how often their number is corrected.
_LAYOUTS, _CORRECTIONS = 3, 8
# Rates for which fleets within a budget are sized: each is the last one's scaled to all GPUs, and
# at least so much larger than a rate that all GPUs serve.
_RATES, _GROWTH = 4, 1.02
_THROUGHPUT = ("throughput", "request_latency")
_CAPACITY = ("capacity_per_gpu", "request_latency")
_PER_TOKEN = {POWER: "energy_per_million_tokens", BUDGET: "cost_per_million_tokens"}
_COLUMN = {POWER: "energy_per_million_tokens_kwh", BUDGET: "cost_per_million_tokens_usd"}


@dataclass
class BudgetSearch:
    """The search of one GPU under one contract: the most tokens within watts, dollars or both.

    ``request`` has the bound of power, ``budget`` [USD/s] that of the price of all GPUs.
    """

    request: Request
    budget: float | None = None

    def find_largest_load(self) -> tuple[BudgetResult | None, str]:
        """Return the fleet that carries the largest load, or None and the reason for none.

        Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
        """
        max_gpus = self._max_gpus_or_reason()
        if isinstance(max_gpus, str):
            return None, max_gpus
        node = self._cluster.gpus_per_node
        count = min(max_gpus // node, _NODES) * node or 2 ** (max_gpus.bit_length() - 1)
        layouts, reason = self._efficient_layouts(count)
        if not layouts:
            return None, reason
        candidates = [self._largest_fleet(fleet, max_gpus) for fleet in layouts]
        results = [result for result in candidates if result is not None]
        if self.budget is not None and self._power is None:
            largest = max(results, key=_most_tokens, default=None)
            fleet = layouts[0] if largest is None else largest.fleet
            results += self._sized_by_rate(fleet, max_gpus)
        best = max(results, key=_most_tokens, default=None)
        return best, "" if best is not None else self._too_little_power_reason(
            layouts[0], min(node, count)
        )

    @cached_property
    def _plan(self) -> Plan:
        return make_plan(replace(self.request, num_gpus=1))

    @property
    def _cluster(self) -> ClusterSpec:
        return self._plan.problem.inputs.machine.cluster

    @property
    def _power(self) -> float | None:
        return self.request.constraints.get(POWER)

    def _max_gpus_or_reason(self) -> int | str:
        """Return the most GPUs that budget, cluster and max_gpus allow, or why none are."""
        machine = self._plan.problem.inputs.machine
        if self._power is not None and machine.gpu.thermal_design_power is None:
            return f"the power of {self.request.gpu} is unknown"
        bounds = [self._cluster.max_gpus, self.request.constraints.get(MOST_GPUS), LARGEST_OF_ALL]
        if self.budget is not None:
            site = self._plan.problem.sources[0].site
            least = int(site.had(1))  # as few as are sold together
            price = float(site.rate(least))
            if math.isnan(price):
                return "the price is unknown: give --price"
            bounds.append(math.floor(self.budget / price + _ROUNDED) * least)
            if not bounds[-1]:
                budget = format_usd(self.budget * HOUR)
                each = format_usd(price * HOUR)
                gpus = "one GPU" if least == 1 else f"{least} GPUs, which are sold together,"
                return f"a budget of {budget} an hour is below {gpus} at {each} an hour"
        return int(min(bound for bound in bounds if bound is not None))

    def _efficient_layouts(self, count: int) -> tuple[list[FeasiblePlan], str]:
        """Return the layouts with most tokens per watt or dollar on ``count`` GPUs, or a reason."""
        open_ones = {name for name in self.request.constraints if name not in (POWER, MOST_GPUS)}
        bounds = {name: self.request.constraints[name] for name in open_ones}
        request = replace(self.request, num_gpus=count, constraints=bounds)
        searches = Searches((self.request.one_contract,))
        fleets_by_layout = dict[str, FeasiblePlan]()
        missed = []
        for name, bound in ((POWER, self._power), (BUDGET, self.budget)):
            if bound is None:
                continue
            plan, result = searches.of(replace(request, objectives=(_PER_TOKEN[name],)))
            missed.append(NearMiss.of(plan, result))
            fleets = [FeasiblePlan.of(*pair) for pair in best_plan_of_each_group(plan, result)]
            fleets.sort(key=lambda fleet: number_or_nan(fleet.row[_COLUMN[name]]))
            fleets_by_layout |= {
                str(request_with_layout(request, layout_fleet)): layout_fleet
                for layout_fleet in fleets[:_LAYOUTS]
            }
        return [*fleets_by_layout.values()], "" if fleets_by_layout else closest_reason(missed)

    def _largest_fleet(self, fleet: FeasiblePlan, max_gpus: int) -> BudgetResult | None:
        """Return the largest fleet of a layout within all bounds; None: no size keeps them."""
        step = self._gpu_step(fleet, max_gpus)
        count = max_gpus // step * step
        if self._power is not None:
            each = number_or_nan(fleet.row["power_kw"]) * KILOWATT / fleet.num_gpus
            count = min(count, math.floor(self._power / each / step) * step)
        best: BudgetResult | None = None
        tried = set[int]()
        while count >= step and count not in tried and len(tried) < _CORRECTIONS:
            tried.add(count)
            result, share = self._evaluate_count(fleet, count, step)
            if result is not None:
                best = result if best is None else max(best, result, key=_most_tokens)
                share = 1.0 if math.isnan(share) else share
                count = result.fleet.num_gpus
                tried.add(count)
            left = count - step if math.isnan(share) else math.floor(count / share / step) * step
            count = min(left, max_gpus // step * step if result is not None else count - step)
        return best

    def _gpu_step(self, fleet: FeasiblePlan, max_gpus: int) -> int:
        """Return by how many GPUs a fleet grows: copies of the layout that fill full nodes."""
        is_pool = fleet.row.get("prefill_replicas") is not None
        copy = 1 if is_pool else fleet.num_gpus // int(number_or_nan(fleet.row["replicas"]))
        node = self._cluster.gpus_per_node
        if max_gpus < node or self._power is None:
            return fleet.num_gpus if is_pool and max_gpus < node else copy
        return math.lcm(copy, node)

    def _sized_by_rate(self, best: FeasiblePlan, max_gpus: int) -> list[BudgetResult]:
        """Size fleets for request rates at which their cost is about the budget.

        The rate determines replicas and latencies, so that another layout may be the best.
        """
        rate = number_or_nan(best.row["requests_per_s"]) * max(max_gpus / best.num_gpus, 1.0)
        at_budget = self._fleet_at_rate(best, rate, max_gpus)
        rate = (
            rate
            if at_budget is None
            else _rate_at_confidence(at_budget) * max_gpus / at_budget.num_gpus
        )
        fleets = [] if at_budget is None else [at_budget]
        for _ in range(_RATES):
            searches = Searches((self.request.one_contract,))
            size = serving_size(replace(self.request, request_rate=rate), searches)
            sized = size.cheapest or size.fewest
            if sized is None:
                break
            fleets.append(sized)
            at_confidence = _rate_at_confidence(sized)
            step = sum(gpus_of_workers(sized.row)) or 1
            scaled = at_confidence * (max_gpus // step * step) / sized.num_gpus * (1 - _ROUNDED)
            if (larger := self._fleet_at_rate(sized, scaled, max_gpus)) is not None:
                fleets.append(larger)
            growth = max_gpus / sized.num_gpus
            rate = at_confidence * (growth if growth < 1 else max(growth, _GROWTH))
        within = [fleet for fleet in fleets if fleet.num_gpus <= max_gpus]
        if (largest := self._fleet_of_largest_capacity(within)) is not None:
            within.append(largest)
        loads = map(self._largest_load_of, within)
        return [load for load in loads if load is not None]

    def _fleet_of_largest_capacity(self, fleets: Sequence[FeasiblePlan]) -> FeasiblePlan | None:
        """Return the fleet with the largest capacity on the GPUs of the largest of some fleets.

        It keeps the limits at each rate that a worker fewer would not carry. None: there is none.
        """
        fleet = max(fleets, key=lambda fleet: fleet.num_gpus, default=None)
        if fleet is None:
            return None
        rate, step = _rate_at_confidence(fleet), min(gpus_of_workers(fleet.row) or [1])
        request = replace(
            self.request, num_gpus=fleet.num_gpus, objectives=_CAPACITY,
            request_rate=rate * max(1 - step / fleet.num_gpus, 1 / 2),
        )  # fmt: skip
        plan, result = Searches((self.request.one_contract,)).of(request)
        plans = [FeasiblePlan.of(*pair) for pair in best_plan_of_each_group(plan, result)]
        return max(plans, key=_capacity, default=None)

    def _fleet_at_rate(
        self, fleet: FeasiblePlan, rate: float, max_gpus: int
    ) -> FeasiblePlan | None:
        """Size the layout for a rate [1/s], lowered until ``max_gpus`` suffice; None: never."""
        for _ in range(_CORRECTIONS):
            request = replace(self.request, num_gpus=None, request_rate=rate)
            fleet_at_rate = plan_with_fewest_gpus(
                replace(request_with_layout(request, fleet), request_rate=rate)
            )
            if fleet_at_rate is None or fleet_at_rate.num_gpus <= max_gpus:
                return fleet_at_rate
            rate *= max_gpus / fleet_at_rate.num_gpus * (1 - _ROUNDED)
        return None

    def _largest_load_of(self, fleet: FeasiblePlan) -> BudgetResult | None:
        """Return the largest load of a fleet without its rate limit; None: above power limit."""
        request = replace(self.request, num_gpus=fleet.num_gpus, objectives=_THROUGHPUT)
        pinned = request_with_layout(request, fleet)
        numbers = {name: fleet.row[name] for name in NUMBERS if fleet.row.get(name) is not None}
        power = {POWER: self._power} if self._power is not None else {}
        is_pool = fleet.row.get("prefill_replicas") is not None
        request = replace(
            pinned, settings={**pinned.settings, **(numbers if is_pool else {})}, constraints=power
        )
        plan, result = Searches((self.request.one_contract,)).of(request)
        best = next(best_plan_of_each_group(plan, result), None)
        if best is None:
            return None
        margins = tuple(margin for margin in fleet.margins if margin.name != RATE)
        carried = _result_of_plan(*best)
        return replace(carried, fleet=replace(carried.fleet, margins=margins))

    def _evaluate_count(
        self, fleet: FeasiblePlan, count: int, step: int
    ) -> tuple[BudgetResult | None, float]:
        """Evaluate a layout on ``count`` GPUs (None: misses a limit), and power over its limit.

        Power over its limit is NaN without a power limit, or if another limit is missed.
        """
        pinned = request_with_layout(
            replace(self.request, num_gpus=count, objectives=_THROUGHPUT), fleet
        )
        times = math.ceil(count / _MOST_AT_ONCE) if pinned.mode in POOLED else 1
        part = count // times // step * step
        power = {POWER: self._power / times} if self._power is not None else {}
        request = replace(pinned, num_gpus=part, constraints={**self.request.constraints, **power})
        plan, result = Searches((self.request.one_contract,)).of(request)
        best = next(best_plan_of_each_group(plan, result), None)
        if best is not None and times > 1:
            row = FeasiblePlan.of(*best).row
            numbers = {name: times * int(number_or_nan(row[name])) for name in NUMBERS}
            settings = {**pinned.settings, **numbers}
            request = replace(
                request,
                num_gpus=part * times,
                settings=settings,
                constraints=self.request.constraints,
            )
            plan, result = Searches((self.request.one_contract,)).of(request)
            best = next(best_plan_of_each_group(plan, result), None)
        if best is None:
            misses = [miss for miss in result.nearest_misses if miss.rejection == POWER]
            return None, misses[0].value / misses[0].bound if misses else math.nan
        carried = _result_of_plan(*best)
        shares = [
            margin.value_at_confidence / margin.bound
            for margin in carried.fleet.margins
            if margin.name == POWER
        ]
        return carried, shares[0] if shares else math.nan

    def _too_little_power_reason(self, fleet: FeasiblePlan, count: int) -> str:
        """Say that one node of a layout exceeds the power limit, or carries nothing."""
        unlimited = BudgetSearch(request=replace(self.request, constraints={}), budget=self.budget)
        result, _ = unlimited._evaluate_count(fleet, count, count)
        if result is None or self._power is None:
            return f"nothing carries requests on {format_gpus(count)} within the limits"
        draws = format_kw(KILOWATT * number_or_nan(result.fleet.row["power_kw"]))
        return f"a node of {count} draws {draws}, above {format_kw(self._power)}"


def _rate_at_confidence(fleet: FeasiblePlan) -> float:
    """Requests per second that a fleet for a rate serves at the confidence."""
    return next(margin.value_at_confidence for margin in fleet.margins if margin.name == RATE)


def _capacity(fleet: FeasiblePlan) -> float:
    return number_or_nan(fleet.row["capacity_requests_per_s"])


def _result_of_plan(plan: Plan, candidates: Candidates) -> BudgetResult:
    """Return the load that one configuration carries, with API prices and PUE."""
    profile = plan.problem.sources[0].site.power
    return BudgetResult(
        fleet=FeasiblePlan.of(plan, candidates),
        api=compare_with_apis(plan, candidates),
        pue=None if profile is None else profile.pue.value,
    )


def _most_tokens(budget_result: BudgetResult) -> tuple[float, int]:
    return budget_result.output_tokens, -budget_result.fleet.num_gpus
