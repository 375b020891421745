"""The prediction of a user's launch file, and the best change of the file."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from planner.base.csv_cells import Row
from planner.base.records import record
from planner.commands.command import Call, PlanQuestion, no_bar, read_question
from planner.configurations.training_rules import OUT_OF_MEMORY
from planner.decide.fitting import MEMORIES
from planner.decide.near import Change
from planner.decide.suggestions.launch_changes import (
    Attempts,
    allowed_changes,
    attempts_of,
    best_changes,
    recommended_change,
)
from planner.errors import LaunchError, PlannerError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.launch_file import LaunchQuestion, evaluate_launch, full_row
from planner.launch.target import LaunchJob
from planner.launch.write.rewrite_launch import RewriteResult, can_express, rewrite_launch
from planner.question.terms import terms_of
from planner.show.output_blocks import GAP, Block, make_lines
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
from planner.show.presenters.plan_summary import full_blocks
from planner.show.presenters.verdict import format_verdict
from planner.workloads.make_plan import Plan, evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan
from planner.workloads.workload import Evaluation


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

    Takes the best change whose rewritten file is read as the predicted configuration; if there is
    none, the best change.
    """
    others = [change for change in changes if change is not best]
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
