"""Where time and memory of some plans go, as stacked bars."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from planner.report.told import label, scale_alike, told_in
from planner.show.page import Bars, Block, Cell, Head, Table
from planner.show.theme import MEMORY_ORDER, TIME_ORDER, in_order, part_label

Rows = Sequence[Mapping[str, Any]]

# By the name of a chart: what its columns begin and end with, their order, their sum, its caption.
_KINDS: Mapping[str, tuple[str, str, tuple[str, ...], str, str]] = {
    "time": ("time_", "_s", TIME_ORDER, "step_time_s", "Where the time of a step goes"),
    "memory": (
        "memory_",
        "_gib",
        MEMORY_ORDER,
        "peak_memory_gib",
        "Where the memory of the fullest GPU goes",
    ),
}
# Columns that begin as parts do and are none.
_OTHERS = ("memory_headroom_gib",)
_PREFIXES = ("time_to_", "time_per_")


def breakdowns(labels: Sequence[str], rows: Rows, prefix: str = "") -> list[Block]:
    """Charts of the time and the memory of rows by part, and the same as tables.

    ``prefix`` tells their names from those of other breakdowns of a page.
    """
    labels, found = _told_apart(labels), list[Block]()
    for name, (begin, end, order, total, caption) in _KINDS.items():
        parts = _parts(rows, begin, end, order)
        if parts:
            scale, unit = scale_alike(total, [_number(row.get(total)) for row in rows])
            scaled = {n: [one / scale for one in values] for n, values in parts.items()}
            found.append(
                Bars(
                    name=f"{prefix}{name}_bars",
                    caption=caption,
                    unit=unit,
                    labels=labels,
                    parts=scaled,
                )
            )
            found.append(_table(prefix + name, caption, total, (scale, unit), labels, rows, parts))
    return found


def _told_apart(labels: Sequence[str]) -> list[str]:
    """Labels of which none is another's, so that no two bars become one."""
    seen: Counter[str] = Counter()
    found = []
    for words in labels:
        seen[words] += 1
        found.append(words if seen[words] == 1 else f"{words} ({seen[words]})")
    return found


def _parts(rows: Rows, begin: str, end: str, order: tuple[str, ...]) -> dict[str, list[float]]:
    """The values of every part that some row has, by its name."""
    columns = {
        column.removeprefix(begin).removesuffix(end): column
        for row in rows
        for column in row
        if column.startswith(begin) and column.endswith(end) and not _is_other(column)
    }
    found = {
        part: [_number(row.get(columns[part])) for row in rows] for part in in_order(columns, order)
    }
    return {part: values for part, values in found.items() if any(values)}


def _is_other(column: str) -> bool:
    is_end = column.removesuffix("_s").removesuffix("_gib").endswith(("_low", "_high"))
    return is_end or column in _OTHERS or column.startswith(_PREFIXES)


def _number(value: Any) -> float:
    """What is unknown takes nothing."""
    known = isinstance(value, int | float) and math.isfinite(value)
    return float(value) if known else 0.0


def _table(
    name: str,
    caption: str,
    total: str,
    unit: tuple[float, str],
    labels: Sequence[str],
    rows: Rows,
    parts: Mapping[str, Sequence[float]],
) -> Table:
    """A row for each part, a column for each plan, their sum last."""
    scale, word = unit
    heads = [Head(name="part", text=f"part, {word}")]
    heads += [Head(name=f"plan{n}", text=words, numeric=True) for n, words in enumerate(labels)]
    lines = [[Cell(text=part_label(part)), *_cells(total, scale, v)] for part, v in parts.items()]
    sums = [_number(row.get(total)) for row in rows]
    lines.append([Cell(text=label(total)), *_cells(total, scale, sums)])
    marks = [""] * len(parts) + ["total"]
    return Table(
        name=f"{name}_parts", caption=caption, heads=heads, rows=lines, marked=marks,
        is_small=True, is_folded=True,
    )  # fmt: skip


def _cells(column: str, scale: float, values: Sequence[float]) -> list[Cell]:
    return [Cell(text=told_in(column, scale, one), number=one / scale) for one in values]
