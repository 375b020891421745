"""``planner launch``: the files that start a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli import options
from planner.cli.request import make_request
from planner.launch import WRAPPERS

if TYPE_CHECKING:
    from planner.question.request import Request


@options.taking(
    "question",
    "limit",
    how=(
        "target", "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision",
        "objective", "wrapper", "launch_output", "specs", "quiet",
    ),
)  # fmt: skip
def launch(given: options.Given) -> None:
    """Write the files that start a plan, a given one or the recommended one."""
    if given["target"] is None:
        return _list(given)
    wrapper = checked_launch(given, given["target"])
    if not options.is_given(given, "workload"):
        given["workload"] = usual_workload(given["target"], given["workload"])
    request = make_request(given)
    if given["plan"] is None and given["from_file"] is None:
        from planner.launch.write import with_profiles
        from planner.show.answers import recommended_of

        request = recommended_of(with_profiles(request, given["target"])).request()
    elif given.get("imported") is not None:
        from planner.launch.judge import as_started
        from planner.launch.write import translated

        file_request, _ = as_started(request)
        request = translated(file_request, given["target"])
        if request != file_request and not given["quiet"]:
            _compare(file_request, request)
    write_launch(given, request, given["target"], wrapper)
    return None


def _compare(own: Request, other: Request) -> None:
    """Say how fast a user's launch file is, and the same plan in the other tool."""
    from planner.errors import InfeasibleError
    from planner.launch.judge import full_row, judged
    from planner.show.page import said
    from planner.show.terminal import make_console, write
    from planner.show.views.imported import translation_text
    from planner.show.views.infeasible import infeasible_message
    from planner.workloads.plan import result_of

    plan, found, _ = judged(other)
    if found.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, found), found))
    rows = [full_row(judged(own)[1]), full_row(found)]
    write(make_console(), [said(translation_text(own, other, *rows), indent="  ")])


def checked_launch(given: options.Given, target: str) -> str:
    """The wrapper that was asked for, before any work is done.

    Raises
    ------
    LaunchError
        Target or wrapper is unknown, or there is no directory for the files.
    """
    from planner.errors import LaunchError
    from planner.launch.targets import target_of
    from planner.launch.wrappers import wrapper_of

    target_of(target)
    wrapper: str = given["wrapper"] or WRAPPERS[0]
    wrapper_of(wrapper)
    if given["launch_output"] is None:
        raise LaunchError("Give a directory for the files with --output.")
    return wrapper


def usual_workload(target: str, default: str) -> str:
    """The workload of a target where nobody names one."""
    from planner.launch.targets import target_of

    known = target_of(target).workloads
    return default if default in known else known[0]


def write_launch(
    given: options.Given,
    request: Request,
    target: str,
    wrapper: str,
    *,
    stdout_taken: bool = False,
) -> None:
    """Write the files of a request and say what they are."""
    from planner.launch.write import launch_of, save_launch
    from planner.show.terminal import make_console, write
    from planner.show.views.imported import launch_blocks

    made = launch_of(request, target, wrapper)
    folder: Path = given["launch_output"]
    save_launch(folder, made)
    if not given["quiet"]:
        write(make_console(stderr=stdout_taken), launch_blocks(made, folder))


def _list(given: options.Given) -> None:
    """All targets; options that ask for a plan need one."""
    from planner.cli.options import is_given
    from planner.errors import LaunchError
    from planner.show.terminal import make_console, write
    from planner.show.views.imported import targets_blocks

    if any(is_given(given, name) for name in given if name not in ("context", "quiet")):
        raise LaunchError("Name the target first: planner launch TARGET; without options all show.")
    write(make_console(), targets_blocks())
