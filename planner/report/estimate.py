"""The report of one configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from planner.optimize.problem import judge
from planner.optimize.result import SearchResult
from planner.plan import Plan
from planner.report.breakdown import (
    memory_table,
    print_breakdowns,
    print_configuration,
    print_run,
)
from planner.report.console import print_title
from planner.report.manifest import make_manifest
from planner.report.operators import operator_rows, print_operators
from planner.report.overview import print_assumed, print_question
from planner.report.rows import result_blocks, row_files


def print_estimate(console: Console, plan: Plan, result: SearchResult) -> None:
    """The question, the configuration, its memory, its time by part, module and operator."""
    estimate = result.estimate
    if estimate is None:
        return
    print_question(console, plan)
    print_title(console, "The configuration")
    print_configuration(console, estimate)
    print_breakdowns(console, plan.problem, estimate)
    print_run(console, plan.problem, estimate)
    if plan.problem.flops_efficiency is None:
        print_operators(console, estimate)
    print_assumed(console, plan)


def print_misfit(console: Console, plan: Plan, result: SearchResult) -> None:
    """The memory of a configuration that is possible but too large for the GPU."""
    if not result.nearest_misses:
        return
    estimate = judge(plan.problem, result.nearest_misses[0].configuration).estimate
    print_question(console, plan)
    print_title(console, "The configuration")
    print_configuration(console, estimate)
    print_title(console, "Memory of the fullest GPU")
    console.print(memory_table(console, estimate))
    console.print()


def write_estimate(
    path: Path | None, plan: Plan, result: SearchResult, command: Sequence[str]
) -> None:
    """One JSON object: the manifest, the row, and the step's time by operator.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    estimate = result.estimate
    if path is None or estimate is None:
        return
    flat = plan.problem.flops_efficiency is not None
    operators = [] if flat else [asdict(row) for row in operator_rows(estimate.time)]
    named = [
        {(f"{name}_s" if isinstance(value, float) else name): value for name, value in row.items()}
        for row in operators
    ]
    with row_files(None, path) as files:
        files.add(result_blocks(plan.problem, estimate))
        files.finish(make_manifest(plan, result, command, {}), operators=named)
