"""What was written to start a plan, and the targets that there are."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console

from planner.launch.own import MANIFEST
from planner.launch.targets import targets
from planner.launch.write import Launch, with_profiles
from planner.plan.pinned import PinnedPlan
from planner.question.request import Request
from planner.report.console import make_table, print_folded, print_title
from planner.report.recommended import recommended_of


def recommended_plan(request: Request, target: str) -> PinnedPlan:
    """What a search recommends; of the target's frameworks where the request names none.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.
    InfeasibleError
        Nothing fits.
    """
    return recommended_of(with_profiles(request, target))


def print_launch(console: Console, launch: Launch, folder: Path) -> None:
    """The files, what the user must set, and what the target cannot express."""
    target, draft = launch.target, launch.draft
    console.print(f"{target.title} ({target.version})", style="bold")
    print_title(console, f"Written to {folder}")
    table = make_table(console, header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for file in launch.files:
        table.add_row(file.name, file.meaning)
    table.add_row(MANIFEST, "what planner wrote, so that it replaces nothing of yours")
    console.print(table)
    if draft.unexpressed:
        print_title(console, f"{target.title} cannot express")
        for remark in draft.unexpressed:
            print_folded(console, f"  {remark}", indent="    ")
    if draft.left:
        print_title(console, "Not of the plan")
        for remark in draft.left:
            print_folded(console, f"  {remark}", indent="    ")
    for note in draft.notes:
        console.print()
        print_folded(console, note)
    print_title(console, "Then")
    plan = shlex.quote(str(folder / "plan.toml"))
    for line in launch.starts:
        print_folded(console, f"  {line}", indent="    ")
    print_folded(console, f"  planner validate --log LOG --plan {plan}", indent="    ")


def print_targets(console: Console) -> None:
    """Name, version, workloads, and whose predictions they start."""
    table = make_table(console)
    for head in ("target", "written for", "starts", "predicted as"):
        table.add_column(head, overflow="fold")
    for target in targets().values():
        profiles = ", ".join(target.profiles or target.nearest) or "none of its own"
        table.add_row(target.name, target.version, ", ".join(target.workloads), profiles)
    console.print(table)
