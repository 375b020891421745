"""The report of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from planner.optimize.collector import first_row
from planner.plan.plan import Plan
from planner.report.configuration import settings_text
from planner.report.console import print_folded, print_title
from planner.report.details import details_of, print_memory
from planner.report.estimate_object import add_estimate
from planner.report.load import load_line
from planner.report.overview import print_assumed, print_question
from planner.report.rows import row_files
from planner.workloads.base import Evaluation


def print_estimate(console: Console, plan: Plan, found: Evaluation) -> None:
    """The question, the configuration, its memory, its time by part, module and operator."""
    details = details_of(plan)
    _print_head(console, plan, found)
    details.memory_and_speed(console, plan, found.candidates)
    details.more(console, plan, found)
    print_assumed(console, plan)


def print_misfit(console: Console, plan: Plan, found: Evaluation) -> None:
    """The memory of a configuration that is possible but too large for the GPU."""
    _print_head(console, plan, found)
    print_memory(console, found.candidates)
    console.print()


def _print_head(console: Console, plan: Plan, found: Evaluation) -> None:
    print_question(console, plan)
    if line := load_line(plan, found.candidates):
        console.print()
        print_folded(console, line)
    print_title(console, "The configuration")
    console.print(settings_text(plan, first_row(found.candidates.columns())))


def write_estimate(
    path: Path | None, plan: Plan, found: Evaluation, command: Sequence[str], **more: Any
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
