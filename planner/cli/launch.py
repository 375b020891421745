"""``planner launch``: the files that start a plan."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli import options
from planner.cli.request import make_request
from planner.launch.names import WRAPPERS

if TYPE_CHECKING:
    from planner.optimize.result import SearchResult
    from planner.plan import Plan
    from planner.request import Request


@options.taking(
    "question",
    "limit",
    how=(
        "target", "plan", "from_file", "row", "num_gpus", "workload", "settings", "precision",
        "objective", "wrapper", "launch_output", "specs", "quiet",
    ),
)  # fmt: skip
def launch(given: options.Given) -> None:
    """Write the files that start a plan: a given one, or the one that is recommended."""
    if given["target"] is None:
        return _list(given)
    wrapper = checked_launch(given, given["target"])
    request = make_request(given)
    if given["plan"] is None and given["from_file"] is None:
        request = _recommended(with_profiles(request, given["target"]))
    write_launch(given, request, given["target"], wrapper)
    return None


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


def with_profiles(request: Request, target: str) -> Request:
    """The request with the frameworks or engines of the target where it names none."""
    from dataclasses import replace

    from planner.launch.write import frameworks_of
    from planner.workloads.registry import workload_of

    kind = workload_of(request.workload).profile_kind
    profiles = frameworks_of(target, request.workload)
    if profiles is None or getattr(request, kind) is not None or request.space is not None:
        return request
    changed: dict[str, Any] = {kind: tuple(profiles) if len(profiles) > 1 else profiles[0]}
    return replace(request, **changed)


def _recommended(request: Request) -> Request:
    """The one configuration that a search recommends.

    Raises
    ------
    InfeasibleError
        There is none.
    """
    from planner.errors import InfeasibleError
    from planner.optimize.exhaustive import exhaustive_search
    from planner.plan import answered, make_plan
    from planner.report.infeasible import infeasible_message

    plan = make_plan(request)
    result = exhaustive_search(plan.problem)
    plan = answered(plan, result)
    if result.recommended is None:
        raise InfeasibleError(infeasible_message(plan, result))
    return recommended_request(plan, result)


def recommended_request(plan: Plan, result: SearchResult) -> Request:
    """The request whose one configuration a search recommends."""
    from planner.optimize.result import row_of
    from planner.pinned import PinnedPlan

    if result.recommended is None:
        raise ValueError("The search found no plan.")
    return PinnedPlan.of(plan, row_of(result.recommended)).request()


def write_launch(
    given: options.Given,
    request: Request,
    target: str,
    wrapper: str,
    *,
    stdout_taken: bool = False,
) -> None:
    """Write the files of a request and say what they are."""
    from planner.launch.save import save_launch
    from planner.launch.write import launch_of
    from planner.report.console import make_console
    from planner.report.launch import print_launch

    made = launch_of(request, target, wrapper)
    folder: Path = given["launch_output"]
    save_launch(folder, made)
    if not given["quiet"]:
        print_launch(make_console(stderr=stdout_taken), made, folder)


def _list(given: options.Given) -> None:
    """All targets; options that ask for a plan need one."""
    from planner.cli.options import is_given
    from planner.errors import LaunchError
    from planner.report.console import make_console
    from planner.report.launch import print_targets

    if any(is_given(given, name) for name in given if name not in ("context", "quiet")):
        raise LaunchError("Name the target first: planner launch TARGET; without options all show.")
    print_targets(make_console())
