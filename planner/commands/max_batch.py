"""``max-batch`` and ``max-length``: the largest batch or length that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from planner.base.records import record
from planner.commands.command import Call, Command, PlanQuestion, error_of, read_question
from planner.decide.explain.largest_fit import (
    LargestFit,
    Methods,
    has_several,
    largest_batch,
    largest_length,
    methods_of_layouts,
)
from planner.errors import InfeasibleError, PlannerError, SearchSpaceError
from planner.question.request import Request
from planner.show.output_blocks import Block
from planner.show.presenters.infeasible import miss_texts, start_problem
from planner.show.presenters.json_files import plan_manifest
from planner.show.presenters.largest_fit import (
    add_methods,
    largest_lines,
    largest_parts,
    methods_blocks,
    require_feasible_method,
)
from planner.show.presenters.load_check import refuse_overload
from planner.show.presenters.plan_report import evaluate_request, plan_blocks
from planner.show.presenters.row_tables import RowFiles
from planner.show.reports import LargestReport, written_report
from planner.workloads.make_plan import Plan, make_plan, result_of
from planner.workloads.workload import Evaluation


@record(kw_only=True)
class LargestInputs:
    """A plan whose largest batch or length is wanted; ``has_methods``: one for each method."""

    question: PlanQuestion
    request: Request
    has_methods: bool = False


@record(kw_only=True)
class Largest:
    """The largest batch or lengths of one plan, and the values assumed by its search."""

    plan: Plan
    evaluation: Evaluation
    fits: Sequence[LargestFit]
    defaults: Mapping[str, str]


def _read(call: Call, has_batch: bool) -> LargestInputs:
    """Return the plan of a call with its limits; raises PlannerError if a value is invalid."""
    question = read_question(call)
    if has_batch and not question.is_open and has_several(question.request):
        if question.launch is not None:
            raise SearchSpaceError(
                "A launch file has one method: give one value of each parameter."
            )
        limited = question.with_limits(question.request)
        return LargestInputs(question=question, request=limited, has_methods=True)
    if call.extra.get("csv"):
        raise SearchSpaceError(
            "--csv has a row for each of several methods: list some, as --set zero_stage=2,3."
        )
    return LargestInputs(question=question, request=question.with_limits(question.started))


def find_largest(
    find_fits: Callable[[Plan, Evaluation], Sequence[LargestFit]], inputs: LargestInputs
) -> Largest:
    """Return what ``find_fits`` finds for the plan of inputs, or for the recommended plan."""
    is_open = inputs.question.is_open
    defaults = make_plan(inputs.request).defaults if is_open else {}
    plan, evaluation = evaluate_request(inputs.request, is_open=is_open)
    fits = find_fits(plan, evaluation)
    return Largest(plan=plan, evaluation=evaluation, fits=fits, defaults=defaults)


def find_batch(plan: Plan, evaluation: Evaluation) -> list[LargestFit]:
    """Return the largest batch of a plan."""
    return [largest_batch(plan, evaluation)]


def _find_batches(inputs: LargestInputs) -> Largest | Methods:
    """Return the largest batch of a plan, or of each method."""
    if inputs.has_methods:
        return methods_of_layouts(inputs.request)
    return find_largest(find_batch, inputs)


def _find_lengths(plan: Plan, evaluation: Evaluation) -> list[LargestFit]:
    """Return the largest of each length that the plan has; an answer of none stays so."""
    lengths = plan.workload.longest or plan.workload.lengths
    specified = [name for name in lengths if getattr(evaluation.source.inputs.workload, name)]
    return [largest_length(plan, evaluation, name) for name in specified]


def _problem(answer: Largest | Methods) -> PlannerError | None:
    """Return why not even the smallest one fits; None if one does."""
    if isinstance(answer, Methods):
        return error_of(lambda: require_feasible_method(answer))
    if any(fit.largest is not None for fit in answer.fits):
        return None
    result = result_of(answer.plan, answer.evaluation)
    reasons = miss_texts(answer.plan, result)
    lines = [line for fit in answer.fits for line in largest_lines(answer.plan, fit, reasons)]
    starts = filter(None, map(start_problem, result.nearest_misses))
    return InfeasibleError(" ".join((*lines, *(f"The engine {start}." for start in starts))))


def _warn(answer: Largest | Methods) -> PlannerError | None:
    """Return the problem of a load that the GPUs cannot answer."""
    if isinstance(answer, Methods) or answer.evaluation.rejected_by:
        return None
    return error_of(lambda: refuse_overload(answer.plan, answer.evaluation.candidates))


def _write(files: RowFiles, answer: Largest | Methods, arguments: Sequence[str]) -> None:
    """Write the largest values with their sentences, or a row for each method."""
    if isinstance(answer, Methods):
        add_methods(files, answer, arguments)
        return
    plan = answer.plan
    largest = [{**fit.to_dict(), "sentences": largest_lines(plan, fit)} for fit in answer.fits]
    parts = largest_parts(plan, answer.evaluation, answer.fits)
    files.finish(plan_manifest(plan, arguments), largest=largest, **parts)


def largest_report(answer: Largest) -> LargestReport:
    """Return the report of the largest batch or lengths."""
    return written_report(lambda files: _write(files, answer, ()), LargestReport)


def _present(answer: Largest | Methods, is_full: bool) -> Iterable[Block]:
    if isinstance(answer, Methods):
        return methods_blocks(answer)
    if _problem(answer) is not None:
        return []
    return plan_blocks(largest_report(answer), is_full=is_full)


_command = partial(
    Command[LargestInputs, Largest | Methods],
    present=_present,
    write=_write,
    problem=_problem,
    is_written=lambda _: True,
    warn=_warn,
)
MAX_BATCH = _command(read=partial(_read, has_batch=True), run=_find_batches)
MAX_LENGTH = _command(
    read=partial(_read, has_batch=False), run=partial(find_largest, _find_lengths)
)
