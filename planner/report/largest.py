"""The largest batch or length of a plan, as people read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.explaining.largest import Largest
from planner.plan import Plan
from planner.report.overview import question_title
from planner.report.short import short_plan
from planner.report.sure import fits_words
from planner.report.told import label, told
from planner.show.page import (
    BEST,
    GAP,
    TOTAL,
    Block,
    grid,
    said,
)
from planner.specs.checked import unchecked
from planner.units import GIB

_PEAK = "peak_memory_gib"
_COLUMNS = 3


def largest_blocks(plan: Plan, row: Mapping[str, Any], found: Sequence[Largest]) -> Iterator[Block]:
    """The plan, and for each thing that grows what fits, what does not, and what it costs."""
    yield said(question_title(plan), mark=TOTAL, indent="")
    yield said(short_plan(plan, row))
    for one in found:
        yield GAP
        for line in largest_lines(plan, one):
            yield said(line)
        if one.rows:
            yield from _rows_blocks(plan, one)


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


def _rows_blocks(plan: Plan, one: Largest) -> Iterator[Block]:
    told_columns = [
        name for name in plan.workload.wording.told if name in next(iter(one.rows.values()))
    ]
    columns = [_PEAK, *told_columns[:_COLUMNS]]
    rows = [
        (
            f"{number:,}{'*' * (number == one.largest)}",
            *(told(column, row[column]) for column in columns),
        )
        for number, row in one.rows.items()
    ]
    heads = (one.name.replace("_", " "), *map(label, columns))
    marks = [BEST if number == one.largest else "" for number in one.rows]
    yield grid(heads, rows, words=(), marked=marks)
