"""Tables to fill in: every column explained above a published run as an example."""

from __future__ import annotations

from collections.abc import Sequence

from planner.base.enums import TemplateKind
from planner.validation.columns import INFERENCE, TRAINING, Column, ColumnType
from planner.validation.runs import COMMENT

_ABSENT = "-"
_CELLS = {
    ColumnType.COUNT: "whole number above 0",
    ColumnType.COUNT_OR_ZERO: "whole number",
    ColumnType.FLAG: "0 or 1",
    ColumnType.NUMBER: "number",
    ColumnType.MEASURED: "number",
}


def template(kind: TemplateKind) -> list[Sequence[str]]:
    """The rows of a table that `read_runs` reads as one run, the example.

    Below the names of the columns stand comments: what each means, and what its cells hold.
    """
    schema = TRAINING if kind is TemplateKind.TRAINING else INFERENCE
    columns = [one for one in schema.columns.values() if one.examples[kind] != _ABSENT]
    return [
        [column.name for column in columns],
        _commented([column.words for column in columns]),
        _commented([_cells(column) for column in columns]),
        [column.examples[kind] for column in columns],
    ]


def _commented(cells: Sequence[str]) -> list[str]:
    return [f"{COMMENT} {cells[0]}", *cells[1:]]


def _cells(column: Column) -> str:
    """What stands in the cells of a column: needed or optional, their type and unit."""
    need = "needed" if column.needed else "optional"
    kind = _CELLS.get(column.type, "text")
    return f"{need}: {kind}{f' [{column.unit}]' if column.unit else ''}"
