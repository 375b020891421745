"""``launch``: the launch files of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base.records import record
from planner.commands.command import Call, Command, PlanQuestion, read_question
from planner.errors import InfeasibleError, LaunchError
from planner.launch import SCRIPT, TARGETS
from planner.launch.read.launch_file import apply_engine_start, evaluate_launch, full_row
from planner.launch.targets import target_of
from planner.launch.wrappers import wrapper_of
from planner.launch.write.write_launch import (
    WrittenLaunch,
    make_launch,
    restrict_to_target,
    translate_request,
)
from planner.question.request import Request
from planner.show.output_blocks import Block, make_lines
from planner.show.presenters.infeasible import infeasible_message
from planner.show.presenters.json_files import command_manifest
from planner.show.presenters.launch_file import launch_blocks, translation_text
from planner.show.presenters.plan_report import recommended_of
from planner.show.presenters.row_tables import RowFiles
from planner.workloads.make_plan import result_of


@record(kw_only=True)
class LaunchInputs:
    """A plan to start with a tool; ``file_request`` is that of a launch file of another tool."""

    question: PlanQuestion
    request: Request
    target: str
    wrapper: str
    file_request: Request | None = None


@record(kw_only=True)
class Launched:
    """Launch files, and a comparison of their plan with that of the user's file."""

    inputs: LaunchInputs
    launch: WrittenLaunch
    comparison: str = ""


def with_default_workload(call: Call, target: str) -> Call:
    """Return the call with the first workload of the tool, if it has not that of the call.

    The workload of a file stays.
    """
    workloads = target_of(target).workloads
    has_file = any(call.extra.get(name) is not None for name in ("plan", "from_file", "base"))
    workload = call.request.get("workload")
    if has_file or (workload is not None and call.workload is None):
        return call
    if (workload or Request.workload) in workloads:
        return call
    return replace(call, request={**call.request, "workload": workloads[0]})


def _read(call: Call) -> LaunchInputs:
    """Return the plan to start: that of a file, or the one that a search recommends.

    Raises PlannerError if a value or a file is invalid, or nothing fits.
    """
    target = str(call.extra.get("target") or "")
    if not target:
        raise LaunchError(f"Name the tool to write files for: {', '.join(TARGETS)}.")
    wrapper = str(call.extra.get("wrapper") or SCRIPT)
    target_of(target)
    wrapper_of(wrapper)
    question = read_question(with_default_workload(call, target))
    request, file_request = question.request, None
    if question.is_open or not (question.file_request or call.extra.get("is_layout")):
        request = recommended_of(restrict_to_target(request, target)).request()
    elif question.launch is not None:
        file_request, _ = apply_engine_start(request)
        request = translate_request(file_request, target)
    elif call.extra.get("is_translated"):
        request = translate_request(request, target)
    return LaunchInputs(
        question=question, request=request, target=target, wrapper=wrapper,
        file_request=None if request == file_request else file_request,
    )  # fmt: skip


def _run(inputs: LaunchInputs) -> Launched:
    """Return the launch files of a plan.

    Raises LaunchError if the tool cannot start it; InfeasibleError if a translated plan does not
    fit.
    """
    comparison = ""
    if inputs.file_request is not None and inputs.question.call.extra.get("is_compared"):
        plan, evaluation, _ = evaluate_launch(inputs.request)
        if evaluation.rejected_by:
            raise InfeasibleError(infeasible_message(plan, result_of(plan, evaluation), evaluation))
        rows = full_row(evaluate_launch(inputs.file_request)[1]), full_row(evaluation)
        comparison = translation_text(inputs.file_request, inputs.request, *rows)
    written = make_launch(inputs.request, inputs.target, inputs.wrapper)
    return Launched(inputs=inputs, launch=written, comparison=comparison)


def _present(launched: Launched, is_full: bool) -> Iterator[Block]:
    """Yield what the plan reaches, and the files with what starts them."""
    if launched.comparison:
        yield make_lines(launched.comparison, indent="  ")
    folder = launched.inputs.question.call.extra.get("launch_output") or "plan"
    yield from launch_blocks(launched.launch, Path(str(folder)))


def _write(files: RowFiles, launched: Launched, arguments: Sequence[str]) -> None:
    """Write the texts of the files by name."""
    written = launched.launch
    texts = {file.name: file.text for file in written.files}
    manifest, target = command_manifest(arguments), launched.inputs.target
    files.finish(manifest, target=target, files=texts, starts=list(written.starts))


LAUNCH = Command(read=_read, run=_run, present=_present, write=_write)
