"""Size a run or a service on every requested GPU and contract, and recommend one."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from planner.base.csv_cells import Row, Value, rows_to_columns
from planner.base.enums import Contract
from planner.base.formatting import format_gpus, format_percent, format_usd
from planner.base.records import record
from planner.base.units import DAY, GIB, HOUR
from planner.base.worker_processes import TRIES, WorkersEnded, run_on_workers
from planner.confidence.error_classes import gpu_class
from planner.confidence.intervals import MEDIAN, check_confidence
from planner.confidence.ranking import (
    RankedPlan,
    are_plans_tied,
    expected_regrets,
    recommended_index,
)
from planner.decide.sizing.autoscaling import AT_ONCE, LoadProfile, Startup
from planner.decide.sizing.budget_search import BudgetSearch
from planner.decide.sizing.day_search import daily_schedules
from planner.decide.sizing.fleet import DEADLINES, rank_row_by_cost
from planner.decide.sizing.purchase import UNCHANGED, PriceChange
from planner.decide.sizing.searches import Searches, TrainingSizer, relaxed_size, serving_size
from planner.decide.sizing.size import DEFAULT_CONFIDENCE, GPUS_BY_CONFIDENCE, POWER, Budget, Size
from planner.errors import PlannerError, SearchSpaceError, WorkersLost
from planner.estimators.inference.shared_predictions import shared_predictions
from planner.optimize.collector import value_or_none
from planner.optimize.exhaustive import StopSearch
from planner.question.names import CONTRACT
from planner.question.parse_values import parse_value, split_items
from planner.question.request import ALL, Request
from planner.question.terms import glossary, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.file_cache import snapshot_files
from planner.specs.price import CONTRACTS
from planner.workloads.build_request import OptionNamer
from planner.workloads.make_plan import make_plan
from planner.workloads.registry import workload_of

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int], None]
Sizing: TypeAlias = "list[tuple[str | None, Size | PlannerError]]"

# Without any of them the fewest GPUs are those whose memory is large enough.
_TRAINING = terms_about("training_target")
# A process takes as long to begin as a GPU to size.
_FEW = 3
COST, REGRET = "cost", "expected_regret"
MOST_FOR_CONFIDENCE = 10
"""GPUs at the default confidence over predicted ones from which predicted ones are recommended."""
_NOT_REACHED = "not evaluated: the time ended first"
_SMALLEST_GIB, _CLASSES = 60, ("ampere", "hopper", "blackwell", "amd")


@record(kw_only=True, repr=False)
class Sizes:
    """Sizes of a run or a service on each GPU and contract, the recommended one first.

    The others follow by cost in a bad case; those without a plan are last.

    Parameters
    ----------
    request : planning question
    sizes : size on each GPU and contract
    load : request rate over a day; None: constant
    budget : budget; None: none
    is_memory_only : no time, cost or rate was requested, so that the fewest GPUs that fit are the
        answer
    price_change : change of rental prices after the first year
    """

    request: Request
    sizes: tuple[Size, ...]
    load: LoadProfile | None = None
    budget: Budget | None = None
    is_memory_only: bool = False
    price_change: PriceChange = UNCHANGED

    def __repr__(self) -> str:
        """Return a short text: how many GPU types have a plan, and the cheapest type."""
        feasible = [size for size in self.sizes if size.fewest is not None]
        name = "cheapest" if self.is_cheapest else "recommended"
        best = f", {name} {feasible[0].gpu}" if feasible else ""
        without = len(self.sizes) - len(feasible)
        return (
            f"<Sizes to {self.request.workload}: {len(feasible)}{best}; {without} without a plan>"
        )

    @cached_property
    def feasible(self) -> tuple[Size, ...]:
        """The sizes that have a plan."""
        return tuple(size for size in self.sizes if size.fewest is not None)

    @cached_property
    def best(self) -> Size | None:
        """Return the recommended size: the cheapest in a bad case, or a tied one with more
        evidence; without prices the one with the fewest GPUs. None: no plan.

        With a power limit or a budget, the size that serves most tokens/s.
        """
        return self.feasible[0] if self.feasible else None

    @property
    def is_cheapest(self) -> bool:
        """Whether no other size has a lower predicted cost than the recommended one."""
        return self.best is not None and self.best is self.cheapest

    @property
    def cheapest(self) -> Size | None:
        """The size with the lowest predicted cost; None: no price is known."""
        priced = [size for size in self.feasible if math.isfinite(size.ranked_plan.value)]
        return min(priced, key=lambda size: size.ranked_plan.value, default=None)

    @property
    def better_tied(self) -> Size | None:
        """Return the cheapest size that is tied with the recommended one; None: none is cheaper."""
        if self.best is None or self.best.carried is not None:
            return None
        ranked = self.best.ranked_plan
        less = [
            candidate for candidate in self.feasible if candidate.ranked_plan.value < ranked.value
        ]
        candidates = (
            candidate for candidate in less if are_plans_tied(ranked, candidate.ranked_plan)
        )
        return min(candidates, key=lambda candidate: candidate.ranked_plan.value, default=None)

    @property
    def proven(self) -> Size | None:
        """The cheapest size whose software was measured on its GPU; None: none was."""
        return next((size for size in self.feasible if size.is_proven), None)

    @cached_property
    def hours(self) -> Mapping[str, list[Value]]:
        """Periods of each GPU's day as columns; empty without a load."""
        rows = [row for size in self.feasible if size.day for row in size.day.rows()]
        return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}

    @cached_property
    def table(self) -> Mapping[str, list[Value]]:
        """Result columns, one row for each choice; None: not known."""
        return rows_to_columns(self.rows)

    @cached_property
    def rows(self) -> Sequence[Row]:
        """Return a result row per choice, with its expected loss against the other sizes."""
        rows = [row for size in self.sizes for row in size.rows(self.request.limit_confidence)]
        costs = [rank_row_by_cost(row) if row["feasible"] else RankedPlan(math.nan) for row in rows]
        if self.best is None or self.best.carried is not None or len(self.feasible) < 2:
            return rows
        lost = expected_regrets(costs).tolist()
        return [
            {**row, REGRET: value_or_none(regret)} for row, regret in zip(rows, lost, strict=True)
        ]

    @property
    def regret(self) -> float:
        """Return the expected loss of the recommended size as a share of its cost; NaN: unknown.

        Sizes that keep only wider limits are not among the others.
        """
        if len(self.feasible) < 2 or self.feasible[0].carried is not None:
            return math.nan
        comparable = [
            size
            for size in self.feasible
            if size.has_wider_limits <= self.feasible[0].has_wider_limits
        ]
        return float(expected_regrets([size.ranked_plan for size in comparable])[0])

    def to_frame(self) -> pd.DataFrame:
        """Return a data frame with a row per choice; with a load, a row per GPU and period.

        With a ``load``, the frame has a row per GPU and period instead.
        """
        import pandas as pd

        return pd.DataFrame(self.hours if self.load else self.table)


def size_all(
    request: Request,
    contracts: Sequence[str | None] = (None,),
    *,
    load: LoadProfile | None = None,
    startup: Startup = AT_ONCE,
    budget: Budget | None = None,
    price_change: PriceChange = UNCHANGED,
    option_name: OptionNamer = str,
    progress: Progress | None = None,
    workers: int = 1,
) -> Sizes:
    """Size for every GPU of a request under every contract.

    Default: data-center GPUs with at least 60 GiB and a current price. ``progress`` receives how
    many GPUs are done and may raise `StopSearch`, after which the others have no plan; ``workers``
    is a number of processes. With a ``load``, the service is sized for its peak and its day is
    priced with the contracts; GPUs paid by the hour start ``startup`` before they serve. Without a
    rate, a service is as large as a power limit or ``budget`` allows. The budget of a training run
    limits its cost; its fastest plan keeps both limits. Without a confidence, limits hold with
    probability `DEFAULT_CONFIDENCE`, or as predicted if that takes `MOST_FOR_CONFIDENCE` times the
    GPUs of every type.

    Raises SpecError or SearchSpaceError if there is no limit, or something is unknown, invalid or
    impossible for all GPUs; WorkersLost if worker processes ended repeatedly.
    """
    tasks = sizing_tasks(
        request, contracts, load=load, startup=startup, budget=budget, option_name=option_name
    )
    request = with_default_confidence(request)
    sizes, errors = list[Size](), list[PlannerError]()
    for number, outcomes in enumerate(_run(tasks, workers), start=1):
        for contract, outcome in outcomes:
            if isinstance(outcome, PlannerError):
                errors.append(outcome)
                reason = " ".join(str(outcome).split())
                gpu = str(tasks[number - 1].request.gpu)
                outcome = Size(gpu=gpu, contract=contract or "", reason=reason)
            sizes.append(outcome)
        try:
            if progress is not None:
                progress(number)
        except StopSearch:
            left = [(task, contract) for task in tasks[number:] for contract in task.contracts]
            sizes += [
                Size(gpu=str(task.request.gpu), contract=contract or "", reason=_NOT_REACHED)
                for task, contract in left
            ]
            break
    if len(errors) == len(sizes) and len({str(error) for error in errors}) == 1:
        raise errors[0]
    sized_request = request if load is None else replace(request, request_rate=load.peak)
    if any(task.may_be_unsure for task in tasks) and (predicted := _sizes_as_predicted(sizes)):
        sizes, sized_request = predicted, replace(sized_request, confidence=MEDIAN)
    return Sizes(
        request=sized_request, sizes=recommended_first(sizes), load=load, budget=budget,
        price_change=price_change,
    )  # fmt: skip


def _sizes_as_predicted(sizes: Sequence[Size]) -> list[Size]:
    """Return sizes at the prediction if no GPU type keeps the limits at the default confidence.

    Nor does one that takes `MOST_FOR_CONFIDENCE` times as many GPUs. Empty: one does, or none is
    predicted to.
    """
    by_prediction = list[Size]()
    for size in sizes:
        median = size.at_confidence.get(MEDIAN)
        predicted = None if median is None else median.fewest
        if size.fewest is not None and (
            predicted is None or size.fewest.num_gpus < MOST_FOR_CONFIDENCE * predicted.num_gpus
        ):
            return []
        if median is None or predicted is None:
            by_prediction.append(size)
            continue
        contract = size.contract or str(predicted.row.get("contract") or "")
        size_as_predicted = replace(
            median, gpu=str(predicted.row["gpu"]), contract=contract, assumed=size.assumed,
            is_other_contract=size.is_other_contract, at_confidence={DEFAULT_CONFIDENCE: size},
        )  # fmt: skip
        by_prediction.append(size_as_predicted)
    return by_prediction if any(size.fewest for size in by_prediction) else []


def recommended_first(sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Sort sizes by cost in a bad case, but the recommended one first (ties: more evidence).

    A size that keeps the assumed limits is recommended before one that keeps only wider ones.
    """
    by_cost = sorted(sizes, key=lambda size: size.order)
    priced = [size for size in by_cost if size.fewest is not None and size.carried is None]
    if not priced or not math.isfinite(priced[0].ranked_plan.value):
        return tuple(by_cost)
    within_limits = [size for size in priced if not size.has_wider_limits] or priced
    first = within_limits[recommended_index([size.ranked_plan for size in within_limits])]
    return (first, *(size for size in by_cost if size is not first))


@record(kw_only=True)
class SizingTask:
    """One GPU under each of some contracts, or of a load under the cheapest of them.

    ``may_be_unsure``: limits that no fleet surely keeps are sized as predicted.
    """

    request: Request
    contracts: tuple[str | None, ...]
    load: LoadProfile | None = None
    startup: Startup = AT_ONCE
    budget: Budget | None = None
    may_be_unsure: bool = False


def sizing_tasks(
    request: Request,
    contracts: Sequence[str | None] = (None,),
    *,
    load: LoadProfile | None = None,
    startup: Startup = AT_ONCE,
    budget: Budget | None = None,
    option_name: OptionNamer = str,
) -> list[SizingTask]:
    """Return one sizing task per GPU type, after a check of the request.

    Raises SpecError or SearchSpaceError as `size_all`, before any is sized.
    """
    may_be_unsure = request.confidence is None and load is None and budget is None
    request = with_default_confidence(request)
    if budget is not None and _is_training(request) and budget.period is None:
        bounds = {**request.constraints, COST: budget.amount}
        if COST in request.constraints:
            raise SearchSpaceError(
                f"{option_name('budget')} is {option_name(COST)} of a run: give one of them."
            )
        request, budget = replace(request, constraints=bounds), None
    _check_request(request, load, startup, budget, option_name)
    sizing_request = _sizing_request(request)
    if load is not None:
        sizing_request = replace(sizing_request, request_rate=load.peak)
    return [
        SizingTask(
            request=replace(sizing_request, gpu=gpu, contract=None),
            contracts=tuple(contracts),
            load=load,
            startup=startup,
            budget=budget,
            may_be_unsure=may_be_unsure,
        )
        for gpu in gpus_of(request.gpu, request.cluster, request.specs)
    ]


def with_default_confidence(request: Request) -> Request:
    """Return the request with the default confidence if it states none."""
    if request.confidence is not None:
        return request
    return replace(request, confidence=DEFAULT_CONFIDENCE)


def _run(tasks: Sequence[SizingTask], workers: int) -> Iterator[Sizing]:
    """Yield the sizes of each task in order, from several processes; yields errors as results."""
    if workers < 2 or len(tasks) < _FEW or "fork" not in multiprocessing.get_all_start_methods():
        yield from map(_size_under_contracts, tasks)
        return
    numbers, finished = range(len(tasks)), dict[int, Sizing]()
    try:
        shared = run_on_workers(partial(_numbered, tasks), numbers, min(workers, len(tasks)))
        for number in numbers:
            while number not in finished:
                done, size = next(shared)
                finished[done] = size
            yield finished.pop(number)
    except WorkersEnded as error:
        first = tasks[
            next(number_tried for number_tried in numbers if number_tried in error.tasks)
        ].request.gpu
        raise WorkersLost(
            f"Workers ended {TRIES} times without a result, at {first} or soon behind it: give "
            "them more memory, or let one process size all."
        ) from error


def _numbered(tasks: Sequence[SizingTask], number: int) -> Sizing:
    return _size_under_contracts(tasks[number])


def without_contract(request: Request) -> Request:
    """A request whose contracts are sized one by one: its price names the one that it is of."""
    return replace(request, contract=None)


def parse_contracts(value: object, option_name: str = "contract") -> list[str | None]:
    """Parse one contract, several, or ``all``; [None] (the usual contract) if not stated.

    Raises SearchSpaceError if one of them is none.
    """
    if value is None:
        return [None]
    term, names = glossary()[CONTRACT], split_items(value, option_name)
    if names == [ALL]:
        return [*CONTRACTS]
    return [*dict.fromkeys(str(parse_value(term, name, option_name)) for name in names)]


@snapshot_files()
@shared_predictions()
def _size_under_contracts(task: SizingTask) -> Sizing:
    """Size one GPU type under each contract; shared predictions run only once."""
    contracts = task.contracts if task.load is None else (None,)
    requests = [replace(task.request, contract=contract) for contract in contracts]
    without = [_reject_unpriced(request) for request in requests]
    pairs = [*zip(requests, without, strict=True)]
    searches = Searches(
        tuple(question.one_contract for question, unpriced in pairs if unpriced is None)
    )
    others = {
        confidence: Searches(searches.contracts)
        for confidence in GPUS_BY_CONFIDENCE.values()
        if confidence != task.request.confidence
    }
    return [
        (question.one_contract, unpriced or _size(question, task, searches, others))
        for question, unpriced in pairs
    ]


def _size(
    request: Request, task: SizingTask, searches: Searches, others: Mapping[float, Searches]
) -> Size | PlannerError:
    """Size one request, with its load or budget if there is one; returns a PlannerError, if any.

    ``others`` are searches of the same limits with other probabilities.
    """
    try:
        if _is_training(request):
            size = TrainingSizer(request=request, searches=searches).size()
            size = _with_other_confidences(size, request, task, others)
        elif request.request_rate is None:
            return _size_within_limits(request, task.budget)
        else:
            size, request = relaxed_size(request, searches)
            if size.is_relaxed:  # other limits than those of the shared searches
                others = {name: Searches(search.contracts) for name, search in others.items()}
            size = _with_other_confidences(size, request, task, others)
            size = _reject_above_budget(size, task.budget)
        if task.load is not None and size.fewest is not None:
            best, of_fewest = daily_schedules(
                request, size.fewest, task.load, task.contracts, searches, task.startup
            )
            size = replace(size, cheapest=best.peak, day=best, day_of_fewest=of_fewest)
    except PlannerError as error:
        return error
    if size.fewest is None:
        return size
    row = size.fewest.row
    contract = "" if task.load else str(row.get("contract", ""))
    is_other = request.contract is None and contract not in ("", Contract.ON_DEMAND)
    return replace(size, gpu=str(row["gpu"]), contract=contract, is_other_contract=is_other)


def _with_other_confidences(
    size: Size, request: Request, task: SizingTask, others: Mapping[float, Searches]
) -> Size:
    """Return a size with those that keep the same limits with other probabilities.

    A size without a plan has only that at the prediction, if a task may use it.
    """
    if size.fewest is None:
        others = {name: others[name] for name in others if name == MEDIAN and task.may_be_unsure}
    sizes = dict[float, Size]()
    for confidence, searches in others.items():
        question = replace(request, confidence=confidence)
        sizes[confidence] = (
            TrainingSizer(request=question, searches=searches).size()
            if _is_training(request)
            else serving_size(question, searches)
        )
    return replace(size, at_confidence=sizes)


def _size_within_limits(request: Request, budget: Budget | None) -> Size:
    """Size a service by the largest load within its power limit and budget."""
    rate = None if budget is None else budget.rate
    result, reason = BudgetSearch(request=request, budget=rate).find_largest_load()
    head = Size(gpu=str(request.gpu), contract=request.one_contract or "", reason=reason)
    if result is None:
        return head
    row = result.fleet.row
    contract = str(row.get("contract") or "")
    is_other = request.contract is None and contract not in ("", Contract.ON_DEMAND)
    return replace(
        head,
        gpu=str(row["gpu"]),
        contract=contract,
        is_other_contract=is_other,
        fewest=result.fleet,
        carried=result,
    )


def _reject_above_budget(size: Size, budget: Budget | None) -> Size:
    """Return the size, or one without plan and with the reason if it exceeds the budget."""
    best = size.cheapest or size.fewest
    if budget is None or best is None or best.cost <= budget.rate * HOUR:
        return size
    cost, limit = format_usd(best.cost), format_usd(budget.rate * HOUR)
    share = budget.rate * HOUR / best.cost if best.cost else math.nan
    reason = (
        f"{format_gpus(best.num_gpus)} cost {cost} an hour, {format_percent(1 / share - 1)} above "
        f"the budget of {limit}, which pays {format_percent(share)} of them"
    )
    if math.isnan(best.cost):
        reason = "costs an unknown price: give --price"
    return Size(gpu=size.gpu, contract=size.contract, reason=reason)


def _reject_unpriced(request: Request) -> Size | PlannerError | None:
    """Return why the GPU cannot be priced under the contract; None: it has a price."""
    if request.contract is None:
        return None
    try:
        is_open = _is_training(request) or request.request_rate is None
        plan = make_plan(replace(request, num_gpus=1) if is_open else request)
    except PlannerError as error:
        return error
    if any(source.site.offer is not None for source in plan.problem.sources):
        return None
    reason = f"no {request.contract} price is known: give --price"
    return Size(gpu=str(request.gpu), contract=request.one_contract or "", reason=reason)


def _sizing_request(request: Request) -> Request:
    """Return a training request with the deadline first and time as objective; else unchanged."""
    if not _is_training(request):
        return request
    goals = terms_of(request.workload, "objective")
    bounds = dict(request.constraints)
    first = {name: bounds.pop(name) for name in DEADLINES if name in bounds}
    goal = next(name for name in DEADLINES if name in goals)
    return replace(request, constraints={**first, **bounds}, objectives=(goal,))


def current_gpus(catalogue: Catalogue) -> Iterator[str]:
    """Yield the data-center GPUs with enough memory and a current price."""
    for name in catalogue.names("gpus"):
        gpu, price = catalogue.load_gpu(name).spec, catalogue.price(name)
        is_large = gpu.allocatable_memory >= _SMALLEST_GIB * GIB
        if is_large and gpu_class(gpu) in _CLASSES and price is not None and not price.is_old:
            yield name


def _is_training(request: Request) -> bool:
    return not terms_of(request.workload, "limit").keys().isdisjoint(DEADLINES)


def _check_request(
    request: Request,
    load: LoadProfile | None,
    startup: Startup,
    budget: Budget | None,
    option_name: OptionNamer,
) -> None:
    """Raise SearchSpaceError with all reasons why the request cannot be sized."""
    errors = []
    try:
        check_confidence(request.limit_confidence, option_name("confidence"))
    except SearchSpaceError as error:
        errors.append(str(error))
    errors += [
        f"{option_name(name)}: size one at a time."
        for name in ("model", "adapter")
        if isinstance(getattr(request, name), tuple) or getattr(request, name) == ALL
    ]
    if load is not None and request.workload != "serve":
        errors.append(
            f"{option_name('load')} is for requests: give {option_name('workload')} serve."
        )
    if startup != AT_ONCE and load is None:
        errors.append(f"{option_name('startup_time')} needs {option_name('load')}.")
    if not 0 <= startup.provision < DAY:
        errors.append(
            f"{option_name('startup_time')} is less than a day, not {startup.provision:g} s."
        )
    if request.num_requests is not None and request.request_rate is not None:
        errors.append(
            f"GPUs are sized for a rate that lasts: leave out {option_name('num_requests')}."
        )
    if request.workload == "inference":
        errors.append("A static batch has no rate or deadline: size `train` or `serve`.")
    elif _is_training(request):
        limit_names = [name for name in _TRAINING if name in terms_of(request.workload, "limit")]
        if not set(limit_names) & set(request.constraints):
            listed = ", ".join(option_name(name) for name in limit_names)
            errors.append(f"Give what the GPUs must reach: one or more of {listed}.")
        if budget is not None:
            errors.append(f"A run is paid in total: give {option_name('budget')} without a period.")
    else:
        if request.space == workload_of(request.workload).single:
            errors.append(
                f"{option_name('space')} {request.space} is of one replica, however many requests "
                f"come: leave it out, and fix parameters with {option_name('settings')}."
            )
        if load is not None and request.request_rate is not None:
            errors.append(
                f"{option_name('load')} has the rates: leave out {option_name('request_rate')}."
            )
        elif not (load or budget or POWER in request.constraints) and request.request_rate is None:
            errors.append(
                f"Give what the GPUs must serve: {option_name('request_rate')}; or what they may "
                f"draw or cost: {option_name(POWER)}, {option_name('budget')}."
            )
        if budget is not None and budget.period is None:
            errors.append(
                f"A service is paid as long as it runs: say {option_name('budget')} per hour, day, "
                "month or year, such as 50kUSD/month."
            )
        if budget is not None and load is not None:
            errors.append(f"The cost of a day is an answer: leave out {option_name('budget')}.")
        if request.num_gpus is not None:
            errors.append(
                f"The number of GPUs is the answer: leave out {option_name('num_gpus')}, or give "
                f"{option_name('max_gpus')}."
            )
    if request.objectives:
        errors.append(f"Sizes are by GPUs and cost: leave out {option_name('objectives')}.")
    if errors:
        raise SearchSpaceError("\n".join(errors))


def gpus_of(
    gpu: str | tuple[str, ...] | None, cluster: object = None, specs: Path | None = None
) -> list[str | None]:
    """Return the GPU types to size: those named, or else all with a current price.

    Raises SearchSpaceError if it names all of them, and a cluster.
    """
    catalogue = Catalogue(specs)
    if gpu is None:
        return [None] if cluster is not None else [*current_gpus(catalogue)]
    if gpu in (ALL, (ALL,)):
        if cluster is not None:
            raise SearchSpaceError("All GPUs are compared on their own links: name no cluster.")
        return [*catalogue.gpus_on_hand()]
    return [gpu] if isinstance(gpu, str) else [*gpu]
