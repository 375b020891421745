"""The largest batch or length of a plan, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from planner.base.units import GIB
from planner.explaining.largest import Largest
from planner.plan.plan import Plan
from planner.report.console import GOOD, make_table, print_folded
from planner.report.overview import question_title
from planner.report.short import short_plan
from planner.report.sure import fits_words
from planner.report.told import label, told
from planner.specs.checked import unchecked

_PEAK = "peak_memory_gib"
_COLUMNS = 3


def print_largest(
    console: Console, plan: Plan, row: Mapping[str, Any], found: Sequence[Largest]
) -> None:
    """The plan, and for each thing that grows what fits, what does not, and what it costs."""
    console.print(question_title(plan), style="bold")
    print_folded(console, short_plan(plan, row))
    for one in found:
        console.print()
        for line in largest_lines(plan, one):
            print_folded(console, line)
        if one.rows:
            _print_rows(console, plan, one)


def largest_lines(plan: Plan, one: Largest) -> list[str]:
    """The largest and what ends it, in sentences."""
    return [*_lines(plan, one)]


def _lines(plan: Plan, one: Largest) -> Iterator[str]:
    name = one.name.replace("_", " ")
    capacity = plan.problem.setting.machine.gpu.allocatable_memory / GIB
    if one.row is None:
        yield f"No {name} is feasible: {one.reason}."
        return
    memory = f"{one.row[_PEAK]:,.1f} of {capacity:,.1f} GiB"
    words = [f"largest {name} {one.largest:,} (the plan has {one.own:,})", memory]
    yield ", ".join(filter(None, (*words, fits_words(one.row))))
    setting = plan.problem.setting
    if one.name == "sequence_length" and one.largest:
        yield from plan.workload.wording.unusual(
            replace(setting, workload=unchecked(setting.workload, sequence_length=one.largest))
        )
    if one.following is not None:
        yield f"{one.following:,}: {one.reason}"
    elif one.ends_at:
        yield f"It ends with {one.ends_at}, not with the memory."
    else:
        yield f"More than {one.most:,} were not tried."


def _print_rows(console: Console, plan: Plan, one: Largest) -> None:
    told_columns = [
        name for name in plan.workload.wording.told if name in next(iter(one.rows.values()))
    ]
    columns = [_PEAK, *told_columns[:_COLUMNS]]
    table = make_table(console, gap=1 if console.width < 72 else 2)
    table.add_column(one.name.replace("_", " "), justify="right", overflow="fold")
    for column in columns:
        table.add_column(label(column), justify="right", overflow="fold")
    for number, row in one.rows.items():
        cells = (told(column, row[column]) for column in columns)
        style = GOOD if number == one.largest else None
        table.add_row(f"{number:,}{'*' * (number == one.largest)}", *cells, style=style)
    console.print(table)
