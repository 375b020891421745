"""What was written to start a plan, and the targets that there are."""

from __future__ import annotations

import shlex
from pathlib import Path

from rich.console import Console

from planner.launch.save import MANIFEST
from planner.launch.targets import targets
from planner.launch.write import Launch
from planner.report.console import make_table, print_folded, print_title


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
        profiles = ", ".join(target.profiles) or "none of its own"
        table.add_row(target.name, target.version, ", ".join(target.workloads), profiles)
    console.print(table)
