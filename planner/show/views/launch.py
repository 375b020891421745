"""What was written to start a plan, and the targets that there are."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

from planner.launch import MANIFEST
from planner.launch.targets import targets
from planner.launch.write import Launch
from planner.show.page import GAP, TOTAL, Block, Pairs, Title, grid, said


def launch_blocks(launch: Launch, folder: Path) -> Iterator[Block]:
    """The files, what the user must set, and what the target cannot express."""
    target, draft = launch.target, launch.draft
    yield said(f"{target.title} ({target.version})", mark=TOTAL, indent="")
    yield Title(text=f"Written to {folder}")
    pairs = {file.name: file.meaning for file in launch.files}
    own = {MANIFEST: "what planner wrote, so that it replaces nothing of yours"}
    yield Pairs(pairs=pairs | own)
    if draft.unexpressed:
        yield Title(text=f"{target.title} cannot express")
        for remark in draft.unexpressed:
            yield said(f"  {remark}", indent="    ")
    if draft.left:
        yield Title(text="Not of the plan")
        for remark in draft.left:
            yield said(f"  {remark}", indent="    ")
    for note in draft.notes:
        yield GAP
        yield said(note)
    yield Title(text="Then")
    plan = shlex.quote(str(folder / "plan.toml"))
    for line in launch.starts:
        yield said(f"  {line}", indent="    ")
    yield said(f"  planner validate --log LOG --plan {plan}", indent="    ")


def targets_blocks() -> Iterator[Block]:
    """Name, version, workloads, and whose predictions they start."""
    rows = [
        (
            target.name,
            target.version,
            ", ".join(target.workloads),
            ", ".join(target.profiles or target.nearest) or "none of its own",
        )
        for target in targets().values()
    ]
    yield grid(("target", "written for", "starts", "predicted as"), rows, words=range(4))
