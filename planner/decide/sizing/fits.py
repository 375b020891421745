"""The fewest GPUs of each type on which a plan fits, where no speed is required."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planner.base.csv_cells import number_or_nan
from planner.base.formatting import format_count, format_gpus, format_parameter
from planner.decide.fitting import MEMORIES, MOST_GPUS, best_change_on_gpus
from planner.decide.near import Change, MayBe
from planner.decide.sizing.autoscaling import LoadProfile
from planner.decide.sizing.fleet import FeasiblePlan
from planner.decide.sizing.searches import node_multiples, spaced_by_doubling
from planner.decide.sizing.size import POWER, Budget, Size
from planner.decide.sizing.size_all import (
    Progress,
    Sizes,
    recommended_first,
    with_default_confidence,
)
from planner.errors import PlannerError
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.priced_hardware import gpu_counts
from planner.workloads.saved_plan import non_default_parameters
from planner.workloads.workload import Evaluation


def is_memory_only(request: Request, load: LoadProfile | None, budget: Budget | None) -> bool:
    """Whether there is no rate, deadline, budget or limit to size GPUs for."""
    bounds = {*terms_about("training_target"), POWER} & {*request.constraints}
    return request.request_rate is None and not (bounds or load or budget)


def fewest_gpus_that_fit(
    requests: Sequence[tuple[Request, MayBe]],
    contracts: Sequence[str | None] = (None,),
    counts: Sequence[int] = (),
    progress: Progress | None = None,
) -> Sizes:
    """Find the fewest GPUs of each type on which a plan fits; one request per GPU type.

    Each request comes with a function that returns True if a parameter may have a value. Parallel
    sizes, ZeRO stage and micro-batch may change with the number of GPUs, other parameters stay.
    ``counts`` are the numbers of GPUs to try; empty: whole nodes.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible for all GPUs
    alike.
    """
    sizes, errors = list[Size](), list[PlannerError]()
    for done, (question, may_be) in enumerate(requests, start=1):
        request = with_default_confidence(question)
        for contract in contracts:
            try:
                sizes.append(_fewest_on_gpu(replace(request, contract=contract), may_be, counts))
            except PlannerError as error:
                errors.append(error)
                reason = " ".join(str(error).split())
                sizes.append(Size(gpu=str(request.gpu), contract=contract or "", reason=reason))
        if progress is not None:
            progress(done)
    if len(errors) == len(sizes):
        raise errors[0]
    return Sizes(
        request=with_default_confidence(requests[0][0]),
        sizes=recommended_first(sizes),
        is_memory_only=True,
    )


def _fewest_on_gpu(request: Request, may_be: MayBe, counts: Sequence[int]) -> Size:
    """Find the fewest GPUs of one type on which the plan surely fits, or the reason for none."""
    current = make_single_plan(replace(request, num_gpus=min(gpu_counts(request.num_gpus or 1))))
    evaluation = evaluate(current)
    cluster = evaluation.source.inputs.machine.cluster
    max_gpus = min(MOST_GPUS, cluster.max_gpus or MOST_GPUS)
    numbers = tuple(counts) or node_multiples(cluster.gpus_per_node, max_gpus)

    def first(among: Sequence[int], *, only_layout: bool = True) -> Change | None:
        changes = (
            best_change_on_gpus(current, evaluation, may_be, count, only_layout) for count in among
        )
        return next((change for change in changes if change is not None), None)

    change = first(spaced_by_doubling(numbers))
    if change is not None:
        end = number_or_nan(change.row["num_gpus"])
        change = first([count for count in numbers if end / 2 <= count < end]) or change
        row = change.row
        names = [name for name in ("num_gpus", "global_batch_size") if name in row]
        changed: dict[str, object] = {name: int(number_or_nan(row[name])) for name in names}
        settings = non_default_parameters(request.workload, row)
        plan = make_single_plan(request.changed(settings=settings, **changed))
        fleet = FeasiblePlan.of(plan, evaluate(plan).candidates)
        contract = str(fleet.row.get("contract") or request.one_contract or "")
        return Size(gpu=evaluation.source.gpu, contract=contract, fewest=fleet, tried=numbers)
    other = first(spaced_by_doubling(numbers), only_layout=False)
    reason = f"does not fit on {_tried_gpus_text(numbers)}{_other_settings_text(other)}"
    if evaluation.rejected_by not in ("", *MEMORIES):
        reason = f"impossible on {_tried_gpus_text(numbers)}: {_description(evaluation)}"
    return Size(
        gpu=evaluation.source.gpu, contract=request.one_contract or "", reason=reason, tried=numbers
    )


def _description(evaluation: Evaluation) -> str:
    """The rule that a configuration breaks, in words."""
    rules = {rule.name: rule.description for rule in evaluation.source.rules}
    return rules.get(evaluation.rejected_by, evaluation.rejected_by)


def _tried_gpus_text(counts: Sequence[int]) -> str:
    """``1 to 1,024 GPUs``, or the one number of GPUs that was tried."""
    last = format_gpus(counts[-1])
    return last if len(counts) == 1 else f"{format_count(counts[0])} to {last}"


def _other_settings_text(change: Change | None) -> str:
    """Describe the GPUs and settings of a change with which the plan fits; empty: none."""
    if change is None:
        return ""
    names = change.changed.keys() - {"global_batch_size"}
    changes = ", ".join(f"{name} {format_parameter(change.row[name])}" for name in sorted(names))
    count = format_gpus(number_or_nan(change.row["num_gpus"]))
    return f"; it fits on {count} with {changes}"
