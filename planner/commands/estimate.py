"""``estimate``: one configuration in full, also that of a launch file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from planner.base.records import record
from planner.commands.command import Call, Command, PlanQuestion, error_of, read_question
from planner.commands.search import check_api_prices
from planner.decide.fitting import MEMORIES
from planner.decide.suggestions.infeasible import suggest_feasible
from planner.errors import InfeasibleError, PlannerError
from planner.show.output_blocks import Block
from planner.show.presenters.infeasible import headline, infeasible_message
from planner.show.presenters.json_files import add_estimate
from planner.show.presenters.load_check import refuse_overload
from planner.show.presenters.plan_report import plan_blocks, written_estimate
from planner.show.presenters.plan_summary import full_blocks, is_predicted, summarize_plan
from planner.show.presenters.row_files import RowFiles
from planner.show.reports import EstimateReport
from planner.show.saved_blocks import save_blocks
from planner.workloads.make_plan import Plan, evaluate, make_single_plan, result_of
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    from planner.commands.launch_changes import LaunchChange
    from planner.decide.api_comparison import ApiComparison
    from planner.show.presenters.plots.picture import Picture


@record(kw_only=True)
class EstimateInputs:
    """One configuration; ``compares_apis``: its cost is compared with API prices."""

    question: PlanQuestion
    compares_apis: bool


@record(kw_only=True)
class Estimated:
    """The prediction of one configuration, and the best change of a launch file."""

    plan: Plan
    evaluation: Evaluation
    apis: ApiComparison | None = None
    launch: LaunchChange | None = None

    @cached_property
    def suggestions(self) -> list[str]:
        """Options that make the plan feasible; empty if it is, or a change of its file does."""
        plan, evaluation = self.plan, self.evaluation
        if not evaluation.rejected_by or (self.launch and self.launch.has_answer):
            return []
        return suggest_feasible(plan, result_of(plan, evaluation))

    @cached_property
    def parts(self) -> dict[str, object]:
        """The first screen, the blocks of the full report, and the launch file, for JSON."""
        plan, evaluation, launch = self.plan, self.evaluation, self.launch
        if launch is None:
            blocks, more = full_blocks(plan, evaluation), dict[str, object]()
        else:
            blocks, more = launch.blocks(plan, evaluation), launch.summary(plan, evaluation)
            if self.suggestions:
                del more["change"]
        # The error of a broken rule has the suggestions.
        suggestions = self.suggestions if is_predicted(evaluation) else ()
        summary = summarize_plan(plan, evaluation, suggestions, **more)
        parts: dict[str, object] = {"summary": summary, "details": save_blocks(blocks)}
        if self.apis is not None:
            parts["api"] = self.apis.to_dict()
        if launch is not None:
            parts["launch_file"] = launch.to_dict()
        return parts

    def report(self, arguments: Sequence[str] = ()) -> EstimateReport:
        """Return the report of the configuration."""
        return written_estimate(self.plan, self.evaluation, arguments, self.parts)


def _read(call: Call) -> EstimateInputs:
    """Return the configuration of a call; raises PlannerError if a value is invalid."""
    question = read_question(call)
    return EstimateInputs(question=question, compares_apis=check_api_prices(call, question))


def _run(inputs: EstimateInputs) -> Estimated:
    """Return the prediction of a configuration."""
    question = inputs.question
    if question.launch is not None:
        from planner.commands.launch_changes import evaluate_file

        plan, evaluation, launch = evaluate_file(question)
        return Estimated(plan=plan, evaluation=evaluation, launch=launch)
    plan = make_single_plan(question.request, question.burst)
    evaluation, apis = evaluate(plan, question.burst), None
    if inputs.compares_apis and not evaluation.rejected_by:
        from planner.decide.api_comparison import compare_with_apis

        apis = compare_with_apis(plan, evaluation.candidates)
    return Estimated(plan=plan, evaluation=evaluation, apis=apis)


def _problem(estimated: Estimated) -> InfeasibleError | None:
    """Return why the configuration does not fit, or breaks a rule; None if it runs."""
    plan, evaluation = estimated.plan, estimated.evaluation
    if not evaluation.rejected_by:
        return None
    result = result_of(plan, evaluation)
    return InfeasibleError(infeasible_message(plan, result, evaluation, estimated.suggestions))


def _brief_problem(estimated: Estimated) -> PlannerError | None:
    """Return the problem in a line if the blocks of the result say why; None if they do not."""
    plan, evaluation = estimated.plan, estimated.evaluation
    if not is_predicted(evaluation):
        return None
    return InfeasibleError(headline(plan, result_of(plan, evaluation)))


def _warn(estimated: Estimated) -> InfeasibleError | None:
    """Return the problem of a load that the GPUs cannot answer."""
    plan, evaluation = estimated.plan, estimated.evaluation
    return error_of(lambda: refuse_overload(plan, evaluation.candidates))


def _write(files: RowFiles, estimated: Estimated, arguments: Sequence[str]) -> None:
    """Write the row of the configuration, its operators, API prices and its launch file."""
    parts = estimated.parts if files.has_object else {}
    add_estimate(files, estimated.plan, estimated.evaluation, arguments, **parts)


def _present(estimated: Estimated, is_full: bool) -> Iterator[Block]:
    """Yield the report of a configuration, and its comparison with API prices.

    Options that break a rule have no report: the error has the rule.
    """
    if estimated.launch is None and not is_predicted(estimated.evaluation):
        return
    yield from plan_blocks(estimated.report(), is_full=is_full)
    if estimated.apis is not None:
        from planner.show.presenters.api_comparison import api_comparison_blocks

        yield from api_comparison_blocks(estimated.apis, is_full=True)


def _draw(picture: Picture, estimated: Estimated) -> None:
    """Draw a picture of the configuration."""
    from planner.show.presenters.plots.picture import draw

    draw(picture, estimated.plan, estimated.evaluation.candidates)


ESTIMATE = Command(
    read=_read,
    run=_run,
    present=_present,
    write=_write,
    draw=_draw,
    problem=_problem,
    brief_problem=_brief_problem,
    is_written=lambda estimated: estimated.evaluation.rejected_by in MEMORIES,
    warn=_warn,
)
