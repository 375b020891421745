"""``estimate``: one configuration in full, also that of a launch file and changes of it."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.csv_cells import Row
from planner.base.records import record
from planner.commands.command import Call, Command, PlanQuestion, error_of, no_bar, read_question
from planner.commands.search import check_api_prices
from planner.configurations.training_rules import OUT_OF_MEMORY
from planner.decide.fitting import MEMORIES, MUCH_FASTER
from planner.decide.near import Change
from planner.decide.suggestions.changes import (
    Attempts,
    allowed_changes,
    attempts_of,
    best_changes,
    recommended_change,
)
from planner.decide.suggestions.infeasible import suggest_feasible
from planner.errors import InfeasibleError, LaunchError, PlannerError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchQuestion, evaluate_launch, full_row
from planner.launch.target import LaunchJob
from planner.launch.write.rewrite_launch import RewriteResult, can_express, rewrite_launch
from planner.question.terms import terms_of
from planner.show.output_blocks import GAP, Block, make_lines, save_blocks
from planner.show.presenters.infeasible import headline, infeasible_message
from planner.show.presenters.json_files import add_estimate
from planner.show.presenters.launch_file import (
    by_hand_blocks,
    change_blocks,
    change_lines,
    diff_blocks,
    next_blocks,
    other_counts_blocks,
    read_lines,
    shorter_lines,
    understood_blocks,
    with_incompleteness,
)
from planner.show.presenters.load_check import refuse_overload
from planner.show.presenters.plan_report import (
    format_verdict,
    full_blocks,
    is_predicted,
    plan_blocks,
    summarize_plan,
    written_estimate,
)
from planner.show.presenters.row_tables import RowFiles
from planner.show.reports import EstimateReport
from planner.workloads.make_plan import Plan, evaluate, make_single_plan, result_of
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    from planner.decide.api_comparison import ApiComparison
    from planner.show.presenters.plots.picture import Picture


@record(kw_only=True)
class LaunchChange:
    """A launch file, the changes that improve it, and the best one in the file.

    ``rewritten`` is the file with the ``change``; ``is_complete``: it expresses the change;
    ``attempts`` are the changes that do not suffice; ``is_saved``: the user's file is replaced.
    """

    question: LaunchQuestion
    notes: Sequence[str]
    row: Row
    changes: Sequence[Change]
    change: Change | None
    rewritten: RewriteResult | None
    is_complete: bool
    attempts: Attempts | None
    is_saved: bool

    @property
    def has_answer(self) -> bool:
        """Whether there is a change, or others were tried, so that nothing else is suggested."""
        return self.change is not None or self.attempts is not None

    def to_dict(self) -> dict[str, object]:
        """Return the JSON object of the file: its options, their meaning, and the change."""
        imported, names = self.question.imported, ("line", "option", "text", "status", "meaning")
        return {
            "target": imported.target.name,
            "values": dict(imported.values),
            "defaults": dict(imported.defaults),
            "assumed": dict(imported.assumed),
            "notes": list(imported.notes),
            "not_modelled": imported.not_modelled,
            "lines": [
                {name: getattr(line, name) for name in names} | {"status": str(line.status)}
                for line in imported.lines
            ],
            "change": None if self.change is None else dict(self.change.changed),
            "diff": "" if self.rewritten is None else self.rewritten.diff,
        }

    def summary(self, plan: Plan, evaluation: Evaluation) -> dict[str, object]:
        """Return the fields of the first screen on the file: its change, and how it was read."""
        imported, workload = self.question.imported, plan.workload.name
        lines = [
            *self._shorter_lines(plan, evaluation),
            *change_lines(
                workload, self.change, self.row, is_running=not evaluation.rejected_by,
                attempts=self.attempts, rewritten=self.rewritten, is_complete=self.is_complete,
            ),
        ]  # fmt: skip
        assumed = [*imported.assumed, *imported.defaults, *plan.defaults]
        names = [name.replace("_", " ") for name in dict.fromkeys(assumed)]
        then = f"planner explain --from {shlex.quote(str(imported.path))}"
        if self.is_complete and not self.is_saved:
            then = f"--write changes the file (--full: how) | {then}"
        return {
            "verdict": with_incompleteness(imported, format_verdict(plan, evaluation)),
            "change": lines,
            "read_as": [*read_lines(imported, self.notes)],
            "assumed": names,
            "then": f"Next: {then}",
        }

    def blocks(self, plan: Plan, evaluation: Evaluation) -> Iterator[Block]:
        """Yield the settings of the file, its prediction, and the change."""
        imported, workload = self.question.imported, plan.workload.name
        yield from understood_blocks(imported)
        yield make_lines(*(f"  {note}" for note in self.notes))
        yield GAP
        yield from full_blocks(plan, evaluation)
        yield make_lines(*self._shorter_lines(plan, evaluation))
        yield from change_blocks(
            workload, self.change, self.row, is_running=not evaluation.rejected_by,
            attempts=self.attempts,
        )  # fmt: skip
        if self.change is not None and evaluation.rejected_by:
            others = [change for change in self.changes if change is not self.change]
            yield from next_blocks(workload, self.change, others, self.row)
        if self.rewritten is not None and self.is_complete:
            yield from diff_blocks(self.rewritten, is_written=self.is_saved)
        elif self.rewritten is not None:
            yield from by_hand_blocks(self.rewritten)
        yield from other_counts_blocks(self.question)

    def _shorter_lines(self, plan: Plan, evaluation: Evaluation) -> list[str]:
        """Return the longest sequence that fits, if the plan does not and samples are unpacked."""
        if evaluation.rejected_by != OUT_OF_MEMORY.name:
            return []
        return [*shorter_lines(self.question.imported, plan, evaluation)]


def evaluate_file(question: PlanQuestion) -> tuple[Plan, Evaluation, LaunchChange]:
    """Return the plan of a launch file, its prediction and its best change."""
    call, launch = question.call, question.launch
    assert launch is not None
    imported = launch.imported
    plan, evaluation, notes = evaluate_launch(question.request, question.burst)
    row = full_row(evaluation)
    defaults = imported.defaults.keys() - call.settings.keys()
    is_allowed = allowed_changes(question.request, row, partial(can_express, imported), defaults)
    changes = best_changes(plan, evaluation, is_allowed)
    attempts = None
    if not changes and evaluation.rejected_by in MEMORIES:
        attempts = attempts_of(plan, evaluation, is_allowed, imported.target.profiles)
    change, rewritten, is_complete = recommended_change(changes), None, False
    if change is not None and call.extra.get("rewrites"):
        change, rewritten, is_complete = _choose_change(
            call, imported, plan, evaluation, change, changes
        )
    return plan, evaluation, LaunchChange(
        question=launch, notes=notes, row=row, changes=changes, change=change,
        rewritten=rewritten, is_complete=is_complete, attempts=attempts,
        is_saved=bool(call.extra.get("write")),
    )  # fmt: skip


def _choose_change(
    call: Call,
    imported: ImportedLaunch,
    plan: Plan,
    evaluation: Evaluation,
    best: Change,
    changes: Sequence[Change],
) -> tuple[Change, RewriteResult | None, bool]:
    """Return the change to make, the rewritten file, and whether that expresses the change.

    Takes the best change whose rewritten file is read as the predicted configuration, unless
    nothing is to be written and another one is `MUCH_FASTER`; if there is none, the best change.
    """
    least = 0.0 if call.extra.get("write") else best.value / MUCH_FASTER
    others = [change for change in changes if change is not best and change.value >= least]
    first: RewriteResult | None = None
    for change in (best, *sorted(others, key=lambda other: -other.value)):
        try:
            rewritten = _rewrite(imported, plan, evaluation, change)
        except LaunchError:  # the target cannot express the change
            continue
        first = first or rewritten
        if rewritten.diff and _is_read_as(call, imported, rewritten, change):
            return change, rewritten, True
    return best, first, False


def _is_read_as(
    call: Call, imported: ImportedLaunch, rewritten: RewriteResult, change: Change
) -> bool:
    """Whether planner reads the rewritten file as the configuration of the change."""
    path = imported.path
    with tempfile.TemporaryDirectory() as folder:
        if rewritten.others:  # read from a folder with the changed files
            path = Path(folder, imported.path.name)
            documents = imported.command.files.values()
            texts = {document.path: document.text for document in documents if document.path}
            texts |= {edited.path: edited.after for edited in rewritten.others}
            for file, text in {**texts, path: rewritten.after}.items():
                Path(folder, file.name).write_text(text, encoding="utf-8")
        changed_call = Call(
            request=call.request,
            extra={**call.extra, "from_file": path},
            option_name=call.option_name,
            setting_name=call.setting_name,
            bar=no_bar,
            workload=call.workload,
            launch_text=rewritten.after,
            launch_answers={name: imported.values[name] for name in imported.assumed},
        )
        try:
            question = read_question(changed_call)
            _, evaluation, _ = evaluate_launch(question.request, question.burst)
        except PlannerError:
            return False
    row, parameters = full_row(evaluation), terms_of(question.request.workload, "parameter")
    return not evaluation.rejected_by and all(
        row.get(name) == change.row[name] for name in parameters if name in change.row
    )


def _rewrite(
    imported: ImportedLaunch, plan: Plan, evaluation: Evaluation, change: Change
) -> RewriteResult:
    """Return the user's launch file with a change applied."""
    request = SavedPlan.of(plan, change.row).request()
    if "concurrency" in change.changed:
        # The file's number of sequences follows the concurrency of the plan.
        request = replace(request, max_num_seqs=None)
    changed_plan = make_single_plan(request)
    jobs = (
        LaunchJob.of_plan(plan, evaluation),
        LaunchJob.of_plan(changed_plan, evaluate(changed_plan)),
    )
    return rewrite_launch(imported, *jobs, changed=change.changed)


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
        from planner.show.presenters.prices import api_comparison_blocks

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
