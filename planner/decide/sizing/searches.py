"""Searches for the GPUs of a run or a service; each is made once for all contracts."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.base.csv_cells import number_or_nan
from planner.decide.assumptions import SensitiveAssumption, sensitive_assumptions
from planner.decide.sizing.fleet import (
    MORE_EFFICIENT,
    FeasiblePlan,
    LowerBound,
    NearMiss,
    closest_reason,
)
from planner.decide.sizing.size import Size
from planner.estimators.rl.rl_inputs import RlInputs
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.optimize.exhaustive import double_limit
from planner.optimize.goals import Constraint
from planner.optimize.problem import Problem
from planner.optimize.reprice import search_with_shared_predictions
from planner.optimize.result import SearchResult
from planner.optimize.source import Candidates
from planner.question.request import ALL, Request
from planner.specs.gpu import ClusterSpec
from planner.specs.training_workload import RlWorkload
from planner.workloads.make_plan import Plan, make_plan
from planner.workloads.priced_hardware import LARGEST_OF_ALL, gpu_counts, powers_of_two_counts
from planner.workloads.serving.results import POOLED


@dataclass
class Searches:
    """Cached searches of one GPU under several ``contracts``, by request."""

    contracts: tuple[str | None, ...]
    results: dict[Hashable, dict[str | None, tuple[Plan, SearchResult]]] = field(
        default_factory=dict
    )

    def of(self, request: Request, limits: Sequence[Constraint] = ()) -> tuple[Plan, SearchResult]:
        """Search (once) and return plan and result; ``limits`` replace limits of the same name.

        Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
        """
        key = (
            request.objectives, request.num_gpus, request.mode, request.request_rate, tuple(limits),
        )  # fmt: skip
        if key not in self.results:
            plans = [make_plan(replace(request, contract=contract)) for contract in self.contracts]
            problems = [_with_limits(plan, limits) for plan in plans]
            pairs = zip(plans, search_with_shared_predictions(problems), strict=True)
            each = ((replace(plan, problem=result.problem), result) for plan, result in pairs)
            self.results[key] = dict(zip(self.contracts, each, strict=True))
        return self.results[key][request.one_contract]


def _with_limits(plan: Plan, limits: Sequence[Constraint]) -> Problem:
    """Return the plan's problem with these limits, which replace those of the same name."""
    if not limits:
        return plan.problem
    new_limits = {limit.name: replace(limit, assumed=False) for limit in limits}
    plan_limits = {limit.name: limit for limit in plan.problem.constraints}
    return replace(plan.problem, constraints=tuple({**plan_limits, **new_limits}.values()))


_PRIMES = (2, 3, 5, 7)


def node_multiples(gpus_per_node: int, max_gpus: int | None) -> tuple[int, ...]:
    """Return the usual numbers of GPUs of a run, ascending.

    Powers of two within a node, then numbers of whole nodes with prime factors 2, 3, 5 and 7 only,
    since others rarely divide batch, layers and heads. ``max_gpus`` None: up to 16,384.

    >>> node_multiples(8, 100)
    (1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96)
    """
    end = max_gpus or LARGEST_OF_ALL
    counts = {power for power in powers_of_two_counts(end) if power < gpus_per_node}
    counts |= {
        nodes * gpus_per_node for nodes in range(1, end // gpus_per_node + 1) if _is_smooth(nodes)
    }
    return tuple(sorted(counts))


def spaced_by_doubling(counts: tuple[int, ...]) -> tuple[int, ...]:
    """Thin out ascending numbers to about one per doubling, including the last."""
    spaced: list[int] = []
    for count in counts:
        if not spaced or count >= 2 * spaced[-1]:
            spaced.append(count)
    return tuple(dict.fromkeys([*spaced, *counts[-1:]]))


def evenly_spaced(counts: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Choose at most ``number`` of ascending counts evenly, with the first and the last."""
    if len(counts) <= number:
        return counts
    last = len(counts) - 1
    return tuple(counts[round(step * last / (number - 1))] for step in range(number))


def _is_smooth(number: int) -> bool:
    for prime in _PRIMES:
        while number % prime == 0:
            number //= prime
    return number == 1


# How many times the fewest GPUs the cheapest may have, and how many numbers between are tried.
_DEARER, _TRIED_ABOVE = 4, 3
_BEYOND = 2
# How far beyond a limit no neighbour keeps it, and how many of them are looked at even so.
_FAR, _TRIED_FAR = 1.0, 16
# How many whole nodes of other factors below the fewest GPUs are tried.
_TRIED_BELOW = 12


@dataclass
class TrainingSizer:
    """Searches one GPU under one contract, every number of GPUs at most once.

    ``searches`` are shared with the same request under other contracts.
    ``floor`` tells below which number none need be looked at; ``not_tried`` are whole nodes between
    it and the fewest GPUs that were not, for being many.
    """

    request: Request
    searches: Searches
    floor: LowerBound = field(default_factory=LowerBound)
    plans_by_count: dict[int, FeasiblePlan | None] = field(default_factory=dict)
    missed: list[NearMiss] = field(default_factory=list)
    not_tried: tuple[int, ...] = ()

    def size(self) -> Size:
        """Size a run: the fewest GPUs, the cheapest and, within a budget, the fastest.

        Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
        """
        counts = (
            tuple(sorted({int(count) for count in gpu_counts(self.request.num_gpus)}))
            if self._has_fixed_gpus
            else node_multiples(self._cluster.gpus_per_node, self._cluster.max_gpus)
        )
        fewest = self._fewest_gpus(counts)
        if fewest is None:
            return self._size(reason=closest_reason(self.missed))
        others = [count for count in counts if fewest.num_gpus < count]
        near = tuple(count for count in others if count <= _DEARER * fewest.num_gpus)
        for count in [*near[:_TRIED_ABOVE], *evenly_spaced(near, _TRIED_ABOVE)]:
            self._plan_on_gpus(count)
        if self._is_budget:
            self._try_up_to_budget(tuple(others))
        fleets = [fleet for fleet in self.plans_by_count.values() if fleet is not None]
        priced = [fleet for fleet in fleets if not math.isnan(fleet.cost)]
        return self._size(
            fewest=fewest,
            cheapest=min(priced, key=lambda plan: (plan.cost, plan.num_gpus), default=None),
            fastest=min(fleets, key=_duration) if self._is_budget else None,
        )

    def _size(
        self,
        *,
        fewest: FeasiblePlan | None = None,
        cheapest: FeasiblePlan | None = None,
        fastest: FeasiblePlan | None = None,
        reason: str = "",
    ) -> Size:
        """Build the result for this GPU type; ``reason`` says why there is no plan."""
        return Size(
            gpu=str(self.request.gpu),
            contract=self.request.one_contract or "",
            fewest=fewest,
            cheapest=cheapest,
            fastest=fastest,
            reason=reason,
            tried=tuple(sorted(self.plans_by_count)),
            not_tried=self.not_tried,
            precision=self._precision(cheapest or fewest),
        )

    def _precision(self, fleet: FeasiblePlan | None) -> SensitiveAssumption | None:
        """Return how the assumed precision of a fleet changes its results; None: not assumed."""
        if fleet is None:
            return None
        plan, result = self.searches.of(replace(self.request, num_gpus=fleet.num_gpus))
        best = result.fastest if self._is_budget else result.recommended
        facts = () if best is None else sensitive_assumptions(plan, best)
        return next((fact for fact in facts if fact.name == "precision"), None)

    @property
    def _is_budget(self) -> bool:
        return not {"cost", "power"}.isdisjoint(self.request.constraints)

    @property
    def _has_fixed_gpus(self) -> bool:
        return self.request.num_gpus not in (None, ALL, (ALL,))

    @cached_property
    def _setting(self) -> TrainingInputs | RlInputs:
        inputs = make_plan(replace(self.request, num_gpus=1)).problem.inputs
        if not isinstance(inputs, TrainingInputs | RlInputs):
            raise TypeError(f"{self.request!r} does not train.")
        return inputs

    @property
    def _cluster(self) -> ClusterSpec:
        return self._setting.machine.cluster

    def _fewest_gpus(self, counts: tuple[int, ...]) -> FeasiblePlan | None:
        """Return the plan on the first number of GPUs that keeps the limits; None: none does.

        Tries a rough grid, then all numbers below the first that works: a run on more GPUs may fail
        if these do not divide its batch.
        """
        grid = spaced_by_doubling(counts)
        first = (
            self._first_sufficient(grid)
            or self._size_by_largest_counts(counts)
            or self._first_sufficient(grid)
        )
        if first is None and self._has_fixed_gpus:
            first = self._first_sufficient(counts)
        elif first is None:  # the grid has few numbers of the batch's odd factors
            work = self._setting.workload
            batch = work.samples if isinstance(work, RlWorkload) else work.global_batch_size
            odd = (count for count in counts if batch % (count // (count & -count)) == 0)
            first = self._first_sufficient(tuple(odd))
        looked_at = 0
        while first is None and looked_at < len(self.plans_by_count):
            looked_at = len(self.plans_by_count)
            first = self._first_sufficient(self._counts_around_nearest_miss(counts))
        if first is None:
            return None
        looked_at = 0
        while looked_at < len(self.plans_by_count):
            looked_at = len(self.plans_by_count)
            below = [count for count in counts if count < first.num_gpus]
            first = self._first_sufficient(below) or first
            first = (
                self._first_sufficient(self._untried_counts_below(first.num_gpus, counts)) or first
            )
        return first

    def _first_sufficient(self, counts: Sequence[int]) -> FeasiblePlan | None:
        """Return the plan on the first of ``counts`` GPUs that keeps all limits; None: no plan."""
        floor = math.inf
        while self.floor.fewest < floor:
            floor = self.floor.fewest
            for count in counts:
                if count >= self.floor.fewest and (fleet := self._plan_on_gpus(count)) is not None:
                    return fleet
        return None

    def _size_by_largest_counts(self, counts: tuple[int, ...]) -> FeasiblePlan | None:
        """Try the largest numbers of GPUs if all seem too few; None: no plan there."""
        if not counts or counts[-1] >= self.floor.fewest:
            return None
        before: NearMiss | None = None
        for count in reversed(spaced_by_doubling(counts)):
            if (fleet := self._plan_on_gpus(count)) is not None:
                return fleet
            miss_of_count = next((miss for miss in self.missed if miss.num_gpus == count), None)
            if (
                before is not None
                and miss_of_count is not None
                and before.order < miss_of_count.order
            ):
                break
            before = (
                miss_of_count
                if miss_of_count is not None and math.isfinite(miss_of_count.excess)
                else before
            )
        return None

    def _counts_around_nearest_miss(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return numbers of GPUs to try around the nearest miss of a limit.

        Returns all numbers near the miss, or only a few if the limit is missed by far.
        """
        nearest = min(self.missed, key=lambda miss: miss.order, default=None)
        if nearest is None or not nearest.is_limit:
            return ()
        around = tuple(c for c in counts if nearest.num_gpus / 2 < c <= 2 * nearest.num_gpus)
        return around if nearest.excess < _FAR else evenly_spaced(around, _TRIED_FAR)

    def _untried_counts_below(self, count: int, usual: tuple[int, ...]) -> tuple[int, ...]:
        """Return untried whole-node numbers of GPUs just below ``count``, the first that works."""
        if self._has_fixed_gpus:
            return ()
        per_node = self._cluster.gpus_per_node
        others = sorted({*range(per_node, count, per_node)} - {*usual})
        left = [
            number for number in others if self.floor.fewest <= number not in self.plans_by_count
        ]
        start = max(len(left) - _TRIED_BELOW + len(self.plans_by_count.keys() & {*others}), 0)
        self.not_tried = tuple(left[:start])
        return tuple(left[start:])

    def _try_up_to_budget(self, counts: tuple[int, ...]) -> None:
        """Search the largest number of GPUs within the budget: a rough grid, then finer.

        One number may fail because it does not divide the batch; two in a row are beyond the
        budget.
        """
        last, beyond = 0, list[int]()
        for count in spaced_by_doubling(counts):
            if self._plan_on_gpus(count) is None:
                beyond.append(count)
            else:
                last, beyond = count, []
            if len(beyond) == _BEYOND:
                break
        end = beyond[0] if beyond else math.inf
        self._first_sufficient([count for count in reversed(counts) if last < count < end])

    def _plan_on_gpus(self, count: int) -> FeasiblePlan | None:
        """Search the best plan on ``count`` GPUs that keeps all limits; None: there is none.

        With a budget the best plan is the fastest.
        """
        if count in self.plans_by_count:
            return self.plans_by_count[count]
        plan, result = self.searches.of(replace(self.request, num_gpus=count))
        best = result.fastest
        chosen = best if self._is_budget else result.recommended
        fleet = None if chosen is None else FeasiblePlan.of(plan, chosen)
        self.plans_by_count[count] = fleet
        if best is not None:
            self.floor.record_run(plan, best, count)
            return fleet
        self.missed.append(NearMiss.of(plan, result, count))
        limits = {limit.name for limit in plan.problem.constraints}
        fitting = [miss.candidates for miss in result.nearest_misses if miss.rejection in limits]
        for candidates in fitting:
            self.floor.record_run(plan, candidates, count)
        if not fitting:
            self.floor.record_out_of_memory(result, count)
        return fleet


def _duration(fleet: FeasiblePlan) -> float:
    return number_or_nan(fleet.row.get("calendar_time_days", fleet.row["time_to_train_days"]))


_FEWEST = ("num_gpus", "request_latency")
_CHEAPEST = ("cost_per_hour", *_FEWEST)

# How often an assumed limit is doubled at most.
_WIDEST = 8
# An assumed limit stays if it takes at most so many times the GPUs of the work without it.
_WORTH_WIDENING = 1.5
# How often the GPUs of a plan that waits too long are doubled.
_DOUBLINGS = 6
# So many numbers of GPUs are searched at once.
_AT_ONCE = 4


def relaxed_size(request: Request, searches: Searches) -> tuple[Size, Request]:
    """Size a service; return the size and the request with the limits that the size keeps.

    A limit that planner assumes is doubled until it takes at most half as many GPUs again as the
    work without it.
    Limits of the user stay.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    size = serving_size(request, searches)
    assumed = [limit for limit in make_plan(request).problem.constraints if limit.assumed]
    if not assumed:
        return size, request
    plan, _ = searches.of(replace(request, objectives=_FEWEST))
    limits = [limit for limit in plan.problem.constraints if limit.assumed]
    wider = _affordable_limits(request, searches, limits, size.fewest)
    if wider:
        bounds = {limit.name: limit.bound for limit in wider}
        request = replace(request, constraints={**request.constraints, **bounds})
        before = size.fewest
        size = serving_size(request, Searches(searches.contracts))
        size = replace(size, fewest_at_assumed=before, is_relaxed=True)
    return replace(size, assumed={limit.name: limit.bound for limit in assumed}), request


def _affordable_limits(
    request: Request,
    searches: Searches,
    limits: Sequence[Constraint],
    fewest: FeasiblePlan | None,
) -> list[Constraint]:
    """Widen assumed limits until the fewest GPUs keep them; empty if the limits need no change.

    ``fewest`` is the plan within the limits; None: there is none.
    """

    def fewest_within(wider: Sequence[Constraint]) -> float:
        best = _best_plan(*searches.of(replace(request, objectives=_FEWEST), wider))
        return math.inf if best is None else best.num_gpus

    def widened(doublings: int, *names: str) -> list[Constraint]:
        return [double_limit(limit, doublings * (limit.name in names)) for limit in limits]

    every = {limit.name for limit in limits}
    least = fewest_within(widened(_WIDEST, *every))
    if math.isinf(least) or (fewest is not None and fewest.num_gpus <= _WORTH_WIDENING * least):
        return []
    if fewest is not None:
        least *= _WORTH_WIDENING
    enough = range(1, _WIDEST)
    doublings = 1 + bisect_left(
        enough, True, key=lambda number: fewest_within(widened(number, *every)) <= least
    )
    for limit in limits:  # those that need not be widened stay
        others = every - {limit.name}
        if others and fewest_within(widened(doublings, *others)) <= least:
            every = others
    return widened(doublings, *every)


def serving_size(request: Request, searches: Searches) -> Size:
    """Size a service: the fewest GPUs that keep the limits, and the cheapest GPUs.

    Both differ only if prefill workers have another type of GPU. ``searches`` are shared with the
    same request under other contracts.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    head = Size(gpu=str(request.gpu), contract=request.one_contract or "")
    fewest, reason = _fewest_gpus_or_reason(request, searches)
    if fewest is None:
        return replace(head, reason=reason)
    simplest = _simplest_tied_plan(request, searches, fewest)
    if simplest is not None and simplest.num_gpus <= fewest.num_gpus:
        fewest, simplest = simplest, None
    cheapest: FeasiblePlan | None = fewest
    if math.isnan(fewest.cost):
        cheapest = None
    elif request.prefill_gpu is not None:
        cheapest = _best_plan(*searches.of(replace(request, objectives=_CHEAPEST)))
        if cheapest is not None and not cheapest.cost < fewest.cost:
            cheapest = fewest  # it was searched by number of GPUs as well
    return replace(head, fewest=fewest, cheapest=cheapest, simplest=simplest)


def best_plan_of_each_engine(request: Request, searches: Searches) -> list[FeasiblePlan]:
    """Return the plan with the fewest GPUs of each serving mode and engine.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    best_plans = best_plan_of_each_group(*searches.of(replace(request, objectives=_FEWEST)))
    return [FeasiblePlan.of(*pair) for pair in best_plans]


def best_plan_of_each_group(plan: Plan, result: SearchResult) -> Iterator[tuple[Plan, Candidates]]:
    """Yield the best plan of each serving mode and engine, best of all first."""
    collectors = [group.collector for group in result.groups if len(group.collector.values)]
    for collector in sorted(collectors, key=lambda each_collector: tuple(each_collector.values[0])):
        source, configuration = collector.configuration_at(0)
        yield plan, source.judged(configuration)


def plan_with_fewest_gpus(request: Request) -> FeasiblePlan | None:
    """Return the plan with the fewest GPUs; None: no plan keeps the limits.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible.
    """
    return _fewest_gpus_or_reason(request, Searches((request.one_contract,)))[0]


def _fewest_gpus_or_reason(request: Request, searches: Searches) -> tuple[FeasiblePlan | None, str]:
    """Return the plan with the fewest GPUs, or None and the reason.

    The rate determines workers so that the queue of prompts stays bounded. Fewer workers may keep
    every limit, and a low latency limit may need more; separate pools are thus searched by number
    of GPUs.
    """
    request = replace(request, objectives=_FEWEST)
    plan, result = searches.of(request)
    best, reason = _best_plan(plan, result), ""
    if best is None:
        reason = closest_reason([NearMiss.of(plan, result)])
    modes = {getattr(source, "mode", "") for source in plan.problem.sources} & {*POOLED}
    if not modes:
        return best, reason
    limits = plan.problem.constraints
    pools = replace(request, mode=tuple(sorted(modes)))
    if best is None:
        for count in _larger_counts(plan, result):
            if best := _best_plan(*searches.of(replace(pools, num_gpus=count), limits)):
                break
    if best is None:
        return None, reason
    failed = 1
    while failed < best.num_gpus - 1:
        # Halved while many are open; the next few below the fewest must all fail. None can do
        # with far fewer than the rate of each GPU of the best asks for.
        share = (request.request_rate or 0.0) / number_or_nan(best.row["capacity_requests_per_s"])
        least = math.ceil(best.num_gpus * share / MORE_EFFICIENT)
        open_below = range(max(failed + 1, least), best.num_gpus)
        if len(open_below) > 2 * _AT_ONCE:
            open_below = open_below[len(open_below) // 2 :][:1]
        on_these = replace(pools, num_gpus=tuple(open_below))
        fewer = _best_plan(*searches.of(on_these, limits)) if open_below else None
        if fewer is None:
            failed = max(open_below, default=best.num_gpus)
        best = fewer or best
    return best, ""


def _simplest_tied_plan(
    request: Request, searches: Searches, fewest: FeasiblePlan
) -> FeasiblePlan | None:
    """Return the simplest plan if its GPUs are tied with the fewest; None: not tied."""
    plan, result = searches.of(replace(request, objectives=_FEWEST))
    recommended = result.recommended
    if recommended is None:
        return None
    chosen = FeasiblePlan.of(plan, recommended)
    confidence = recommended.source.confidence_of(chosen.row)
    factor = 1.0 if confidence is None else confidence.layout_tie_factor
    return chosen if chosen.num_gpus <= factor * fewest.num_gpus else None


def _larger_counts(plan: Plan, result: SearchResult) -> Iterator[int]:
    """Yield numbers of GPUs to try beyond the nearest miss of a latency limit."""
    limits = {limit.name for limit in plan.problem.constraints} - {"max_gpus"}
    misses = (miss for miss in result.nearest_misses if miss.rejection in limits)
    near = [number_or_nan(miss.row["num_gpus"]) for miss in misses]
    max_gpus = plan.problem.inputs.machine.cluster.max_gpus or math.inf
    for doubling in range(_DOUBLINGS if near else 0):
        if (count := min(near) * 2**doubling) <= max_gpus:
            yield int(count)


def _best_plan(plan: Plan, result: SearchResult) -> FeasiblePlan | None:
    """Return the best plan of a search by its objectives; None: no plan is feasible."""
    return next((FeasiblePlan.of(*pair) for pair in best_plan_of_each_group(plan, result)), None)
