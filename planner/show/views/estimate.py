"""The report of one configuration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from planner.show.page import GAP, Block, Title, said
from planner.show.views.details import details_of, memory_blocks
from planner.show.views.documents import add_estimate
from planner.show.views.load import load_line
from planner.show.views.overview import assumed_blocks, defaults_blocks, question_blocks
from planner.show.views.rows import row_files
from planner.show.views.told import settings_text
from planner.workloads.base import Evaluation
from planner.workloads.plan import Plan


def estimate_blocks(plan: Plan, found: Evaluation) -> Iterator[Block]:
    """The question, the configuration, its memory, its time by part, module and operator."""
    details = details_of(plan)
    yield from _head_blocks(plan, found)
    yield from details.memory_and_speed(plan, found.candidates)
    yield from details.more(plan, found)
    yield from assumed_blocks(plan)


def misfit_blocks(plan: Plan, found: Evaluation) -> Iterator[Block]:
    """The memory of a configuration that is possible but too large for the GPU."""
    yield from _head_blocks(plan, found)
    yield from memory_blocks(found.candidates)
    yield GAP


def _head_blocks(plan: Plan, found: Evaluation) -> Iterator[Block]:
    yield from question_blocks(plan)
    yield from defaults_blocks(plan)
    if line := load_line(plan, found.candidates):
        yield GAP
        yield said(line)
    yield Title(text="The configuration")
    yield said(settings_text(plan, found.candidates.row), indent="", most=100)


def write_estimate(
    path: Path | None, plan: Plan, found: Evaluation, command: Sequence[str], **more: object
) -> None:
    """One JSON object: the manifest, the row, the time by operator, and what there is ``more``.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    if path is None:
        return
    with row_files(None, path) as files:
        add_estimate(files, plan, found, command, **more)
