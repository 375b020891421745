"""``planner launch``: launch files of a plan; prediction and improvement of a user's launch
file.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from planner.base.csv_cells import Row
from planner.cli import options
from planner.cli.options import draw_plan, make_request, picture_of
from planner.launch import SCRIPT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from planner.decide.near import Change
    from planner.decide.suggestions.launch_changes import Attempts
    from planner.launch.read.import_launch import ImportedLaunch
    from planner.launch.write.rewrite_launch import RewriteResult
    from planner.question.request import Request
    from planner.show.output_blocks import Block
    from planner.workloads.make_plan import Plan
    from planner.workloads.workload import Evaluation


@options.with_term_options(
    "question",
    "limit",
    how=(
        "target", "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision",
        "objective", "wrapper", "launch_output", "specs", "quiet",
    ),
)  # fmt: skip
def launch(values: options.OptionValues) -> None:
    """Write the launch files of a plan, yours or the recommended one."""
    if values["target"] is None:
        return _print_targets(values)
    wrapper = check_launch(values, values["target"])
    if not options.is_set(values, "workload"):
        values["workload"] = default_workload(values["target"], values["workload"])
    request = make_request(values)
    if values["plan"] is None and values["from_file"] is None:
        from planner.launch.write.write_launch import restrict_to_target
        from planner.show.results import recommended_of

        request = recommended_of(restrict_to_target(request, values["target"])).request()
    elif values.get("imported") is not None:
        from planner.launch.read.launch_file import apply_engine_start
        from planner.launch.write.write_launch import translate_request

        file_request, _ = apply_engine_start(request)
        request = translate_request(file_request, values["target"])
        if request != file_request and not values["quiet"]:
            _print_translation(file_request, request)
    write_launch(values, request, values["target"], wrapper)
    return None


def _print_translation(file_request: Request, other: Request) -> None:
    """Print the predicted speed of a user's launch file and of the same plan in the other tool."""
    from planner.errors import InfeasibleError
    from planner.launch.read.launch_file import evaluate_launch, full_row
    from planner.show.output_blocks import make_lines
    from planner.show.presenters.infeasible import infeasible_message
    from planner.show.presenters.launch_file import translation_text
    from planner.show.terminal import make_console, print_blocks
    from planner.workloads.make_plan import result_of

    plan, evaluation, _ = evaluate_launch(other)
    if evaluation.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
    rows = [full_row(evaluate_launch(file_request)[1]), full_row(evaluation)]
    print_blocks(
        make_console(), [make_lines(translation_text(file_request, other, *rows), indent="  ")]
    )


def check_launch(values: options.OptionValues, target: str) -> str:
    """Return the requested wrapper; checks target, wrapper and folder before any work.

    Raises LaunchError if target or wrapper is unknown, or there is no directory for the files.
    """
    from planner.errors import LaunchError
    from planner.launch.targets import target_of
    from planner.launch.wrappers import wrapper_of

    target_of(target)
    wrapper: str = values["wrapper"] or SCRIPT
    wrapper_of(wrapper)
    if values["launch_output"] is None:
        raise LaunchError("Give a directory for the files with --output.")
    return wrapper


def default_workload(target: str, default: str) -> str:
    """Return ``default`` if the target tool has this workload; otherwise the tool's first one."""
    from planner.launch.targets import target_of

    workloads = target_of(target).workloads
    return default if default in workloads else workloads[0]


def write_launch(
    values: options.OptionValues,
    request: Request,
    target: str,
    wrapper: str,
    *,
    uses_stdout: bool = False,
) -> None:
    """Write the launch files of a request and print a list of them."""
    from planner.launch.write.write_launch import make_launch, save_launch
    from planner.show.presenters.launch_file import launch_blocks
    from planner.show.terminal import make_console, print_blocks

    written = make_launch(request, target, wrapper)
    folder: Path = values["launch_output"]
    save_launch(folder, written)
    if not values["quiet"]:
        print_blocks(make_console(stderr=uses_stdout), launch_blocks(written, folder))


def _print_targets(values: options.OptionValues) -> None:
    """Print all targets. Raises LaunchError if an option of a plan is set."""
    from planner.cli.options import is_set
    from planner.errors import LaunchError
    from planner.show.presenters.launch_file import targets_blocks
    from planner.show.terminal import make_console, print_blocks

    if any(is_set(values, name) for name in values if name not in ("context", "quiet")):
        raise LaunchError("Name the target first: planner launch TARGET; without options all show.")
    print_blocks(make_console(), targets_blocks())


def estimate_imported(values: options.OptionValues, request: Request) -> None:
    """Print the settings of a launch file, its prediction and the best change."""
    from planner.base.atomic_write import check_outputs
    from planner.decide.fitting import MEMORIES
    from planner.decide.suggestions.launch_changes import allowed_changes, attempts_of, best_changes
    from planner.errors import InfeasibleError, LaunchError
    from planner.launch.read.launch_file import evaluate_launch, full_row
    from planner.launch.write.rewrite_launch import can_express
    from planner.show.presenters.infeasible import headline, infeasible_message
    from planner.show.presenters.load_check import refuse_overload
    from planner.show.presenters.search import write_estimate
    from planner.show.terminal import make_console, print_blocks
    from planner.workloads.build_request import parse_settings
    from planner.workloads.make_plan import result_of

    imported: ImportedLaunch = values["imported"]
    check_outputs(None, values["json"], values.get("mocker_profile"))
    picture = picture_of("estimate", values)
    plan, evaluation, notes = evaluate_launch(request, values["burst"])
    row = full_row(evaluation)
    extra_settings = parse_settings(values["settings"] or [])
    defaults = imported.defaults.keys() - extra_settings.keys()
    is_allowed = allowed_changes(request, row, partial(can_express, imported), defaults)
    changes = best_changes(plan, evaluation, is_allowed)
    attempts = None
    if not changes and evaluation.rejected_by in MEMORIES:
        attempts = attempts_of(plan, evaluation, is_allowed, imported.target.profiles)
    change, rewritten, is_complete = _choose_change(values, plan, evaluation, changes)
    if not evaluation.rejected_by or evaluation.rejected_by in MEMORIES:
        launch_json = _launch_json(imported, change, rewritten)
        write_estimate(
            values["json"], plan, evaluation, values["context"].obj, launch_file=launch_json
        )
    if not evaluation.rejected_by:
        draw_plan(values, picture, plan, evaluation.candidates)
    if not values["quiet"]:
        console = make_console(stderr=values["json"] == Path("-"))
        others = [edited_file for edited_file in changes if edited_file is not change]
        change_blocks = _change_blocks(
            values, plan, evaluation, row, change, others, rewritten, is_complete, attempts
        )
        print_blocks(console, _blocks(values, plan, evaluation, row, notes, change_blocks))
    if values["write"] and rewritten is not None:
        if not is_complete:
            raise LaunchError(
                f"{imported.path}: nothing was written: the change is not whole there."
            )
        for edited_file in (rewritten, *rewritten.others):
            if edited_file.before != edited_file.after:
                _write(edited_file.path, edited_file, quiet=values["quiet"])
    if evaluation.rejected_by:
        result = result_of(plan, evaluation)
        is_explained = evaluation.rejected_by == "out_of_memory" and plan.workload.name == "train"
        if is_explained and not values["quiet"]:
            raise InfeasibleError(headline(plan, result))
        raise InfeasibleError(infeasible_message(plan, result, evaluation))
    refuse_overload(plan, evaluation.candidates)


def _choose_change(
    values: options.OptionValues, plan: Plan, evaluation: Evaluation, changes: list[Change]
) -> tuple[Change | None, RewriteResult | None, bool]:
    """Return the change to make, the rewritten file, and whether that expresses the change.

    Takes the best change whose rewritten file is read as the predicted configuration; if there is
    none, the best change.
    """
    from planner.decide.suggestions.launch_changes import recommended_change
    from planner.errors import LaunchError

    best = recommended_change(changes)
    if best is None:
        return None, None, False
    imported = values["imported"]
    others = sorted(
        (candidate for candidate in changes if candidate is not best),
        key=lambda candidate: -candidate.value,
    )
    first: RewriteResult | None = None
    for change in (best, *others):
        try:
            rewritten = _rewrite(imported, plan, evaluation, change)
        except LaunchError:  # the target cannot express the change
            continue
        first = first or rewritten
        if rewritten.diff and _is_read_as(values, rewritten, change):
            return change, rewritten, True
    return best, first, False


def _is_read_as(values: options.OptionValues, rewritten: RewriteResult, change: Change) -> bool:
    """Whether planner reads the rewritten file as the configuration of the change."""
    from planner.cli.options import make_request
    from planner.errors import PlannerError
    from planner.launch.read.launch_file import evaluate_launch, full_row
    from planner.question.terms import terms_of

    imported: ImportedLaunch = values["imported"]
    assumed = {name: imported.values[name] for name in imported.assumed}
    file_values = {
        "from_file": imported.path,
        "launch_text": rewritten.after,
        "launch_assumed": assumed,
    }
    changed_values = {**values, **file_values, "quiet": True}
    with tempfile.TemporaryDirectory() as folder:
        if rewritten.others:  # read from a folder with the changed files
            changed_values["from_file"] = Path(folder, imported.path.name)
            original_texts = {
                document.path: document.text
                for document in imported.command.files.values()
                if document.path
            }
            texts = {**original_texts, **{edited.path: edited.after for edited in rewritten.others}}
            for path, text in {**texts, changed_values["from_file"]: rewritten.after}.items():
                Path(folder, path.name).write_text(text, encoding="utf-8")
        try:
            _, evaluation, _ = evaluate_launch(make_request(changed_values), values["burst"])
        except PlannerError:
            return False
    row = full_row(evaluation)
    parameters = terms_of(values["workload"], "parameter")
    return not evaluation.rejected_by and all(
        row.get(name) == change.row[name] for name in parameters if name in change.row
    )


def _rewrite(
    imported: ImportedLaunch, plan: Plan, evaluation: Evaluation, change: Change
) -> RewriteResult:
    """Return the user's launch file with a change applied."""
    from dataclasses import replace

    from planner.launch.target import LaunchJob
    from planner.launch.write.rewrite_launch import rewrite_launch
    from planner.workloads.make_plan import evaluate, make_single_plan
    from planner.workloads.saved_plan import SavedPlan

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


def _launch_json(
    imported: ImportedLaunch, change: Change | None, rewritten: RewriteResult | None
) -> dict[str, object]:
    """Return the JSON object about a launch file: its options, their meaning, and the change."""
    return {
        "target": imported.target.name,
        "values": dict(imported.values),
        "defaults": dict(imported.defaults),
        "assumed": dict(imported.assumed),
        "notes": list(imported.notes),
        "not_modelled": imported.not_modelled,
        "lines": [
            {
                "line": line.line,
                "option": line.option,
                "text": line.text,
                "status": str(line.status),
                "meaning": line.meaning,
            }
            for line in imported.lines
        ],
        "change": None if change is None else dict(change.changed),
        "diff": "" if rewritten is None else rewritten.diff,
    }


def _blocks(
    values: options.OptionValues,
    plan: Plan,
    evaluation: Evaluation,
    row: Row,
    notes: tuple[str, ...],
    change: Iterator[Block],
) -> Iterator[Block]:
    """Yield the output about a launch file: its settings, its prediction, and ``change``.

    A configuration that does not fit has the missing memory in place of its results.
    """
    from planner.decide.fitting import MEMORIES
    from planner.show.output_blocks import GAP, make_lines
    from planner.show.presenters.launch_file import (
        misfit_blocks,
        other_counts_blocks,
        shorter_blocks,
        started_blocks,
        understood_blocks,
        wasted_blocks,
    )
    from planner.show.presenters.search import estimate_blocks, single_plan_blocks
    from planner.show.presenters.search import misfit_blocks as all_misfit_blocks

    yield from understood_blocks(values["imported"], is_full=values["full"])
    yield make_lines(*(f"  {note}" for note in notes))
    yield GAP
    if evaluation.rejected_by:
        if values["full"] and evaluation.rejected_by in evaluation.source.rejections:
            yield from all_misfit_blocks(plan, evaluation)
        elif evaluation.rejected_by in MEMORIES:
            yield from misfit_blocks(plan, row)
        if evaluation.rejected_by == "out_of_memory":
            yield from shorter_blocks(values["imported"], plan, evaluation)
    elif values["full"]:
        yield from estimate_blocks(plan, evaluation)
    else:
        yield from single_plan_blocks(plan, evaluation)
        yield from started_blocks(plan, row)
        yield from wasted_blocks(row)
    yield from change
    yield from other_counts_blocks(values["question"])


def _change_blocks(
    values: options.OptionValues,
    plan: Plan,
    evaluation: Evaluation,
    row: Row,
    change: Change | None,
    others: list[Change],
    rewritten: RewriteResult | None,
    is_complete: bool,
    attempts: Attempts | None,
) -> Iterator[Block]:
    """Yield the change, its cost, the next best change, and the difference in the file."""
    from planner.optimize.result_columns import fit_probability
    from planner.show.presenters.launch_file import (
        by_hand_blocks,
        change_blocks,
        diff_blocks,
        next_blocks,
    )

    is_running, fits = not evaluation.rejected_by, fit_probability(row)
    yield from change_blocks(
        plan.workload.name, change, row, is_running=is_running, fits=fits, attempts=attempts
    )
    if change is not None and not is_running:
        yield from next_blocks(plan.workload.name, change, others, row)
    if rewritten is not None and is_complete:
        yield from diff_blocks(rewritten, is_written=values["write"])
    elif rewritten is not None:
        yield from by_hand_blocks(rewritten)


def _write(path: Path, rewritten: RewriteResult, *, quiet: bool) -> None:
    """Write the change into the user's file; the original stays as ``NAME.orig``."""
    from planner.base.atomic_write import write_atomically
    from planner.errors import OutputError
    from planner.show.terminal import make_console

    names = [f"{path.name}.orig", *(f"{path.name}.orig{number}" for number in range(1, 100))]
    backup = next((path.with_name(n) for n in names if not os.path.exists(path.with_name(n))), None)
    if backup is None:
        raise OutputError(f"{path}: has 100 .orig files already: move them away.")
    mode = path.stat().st_mode
    for target, text in ((backup, rewritten.before), (path, rewritten.after)):
        with write_atomically(target) as file:
            file.write(text)
        target.chmod(mode & 0o7777)
    if not quiet:
        make_console(stderr=True).print(f"{path} is changed; {backup.name} is as it was.")
