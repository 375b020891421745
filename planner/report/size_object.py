"""The JSON object that a size writes, whether into a file or as text."""

from __future__ import annotations

from collections.abc import Sequence

from planner.decide.sizing.size import Sizes
from planner.report.manifest import question_manifest
from planner.report.rows import RowFiles, blocks
from planner.report.sizes import best_lines, note_lines, question_lines


def add_sizes(files: RowFiles, sizes: Sizes, command: Sequence[str]) -> None:
    """The rows of a size, of a day by hour, and what they say in words."""
    files.add(blocks(sizes.hours if sizes.load else sizes.table))
    files.finish(
        question_manifest(sizes.request, command),
        question=question_lines(sizes),
        answer=best_lines(sizes),
        notes=[*filter(None, note_lines(sizes))],
    )
