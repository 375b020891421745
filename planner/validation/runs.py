"""Tables of runs: read with the place of every fault, or written to be filled in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from io import StringIO
from pathlib import Path

from planner.base.enums import TemplateKind
from planner.base.reading import RESULT, csv_of, read_text
from planner.base.records import record
from planner.errors import SpecError, did_you_mean
from planner.validation.columns import (
    INFERENCE,
    MEASURED,
    TRAINING,
    Column,
    ColumnType,
    Schema,
    TableKind,
    schema_of,
)

_MEASUREMENTS = Path(__file__).parent / "measurements"
SHIPPED = _MEASUREMENTS / "training.csv"
SHIPPED_INFERENCE = (_MEASUREMENTS / "inference.csv", _MEASUREMENTS / "serving.csv")
COMMENT = "#"
"""A row whose first cell begins with this explains the table and is no run."""


@record(kw_only=True)
class Run:
    """One row: its line in the file and the text of its cells."""

    line: int
    cells: Mapping[str, str]

    def word(self, column: str) -> str:
        """A cell in lower case without spaces around it; empty where there is none."""
        return self.text(column).lower()

    def text(self, column: str) -> str:
        """A cell as it is written; empty where the table has no such column."""
        return self.cells.get(column, "").strip()

    def number(self, column: str) -> float | None:
        """A cell as a number, or None where it is empty."""
        text = self.text(column)
        return float(text) if text else None

    def count(self, column: str) -> int | None:
        """A cell as a whole number above zero, or None where it is empty or zero."""
        number = self.number(column)
        return int(number) if number else None

    def flag(self, column: str) -> bool | None:
        """A cell that is 0 or 1, or None where it is empty."""
        number = self.number(column)
        return None if number is None else bool(number)


@record(kw_only=True)
class Runs:
    """A table of runs, its columns in their order."""

    columns: tuple[str, ...]
    rows: tuple[Run, ...]

    @cached_property
    def kind(self) -> TableKind:
        """Whether the rows are of training or of inference."""
        return self.schema.kind

    @cached_property
    def schema(self) -> Schema:
        """What its columns mean."""
        return schema_of(self.columns)

    @cached_property
    def not_understood(self) -> tuple[str, ...]:
        """Columns that are kept and mean nothing here."""
        return tuple(name for name in self.columns if not self.schema.understood(name))

    @cached_property
    def quantities(self) -> tuple[str, ...]:
        """What the table measures: its ``measured_X`` columns without the prefix."""
        return tuple(
            column.removeprefix(MEASURED) for column in self.columns if column.startswith(MEASURED)
        )


def read_runs(path: Path = SHIPPED) -> Runs:
    """The runs of a CSV file; columns nobody knows are kept, comments are left out.

    Raises
    ------
    SpecError
        The file cannot be read, or has faults: one line for each, with line and column.
    """
    lines = [*csv_of(StringIO(read_text(path, RESULT), newline=""), path)]
    if not lines:
        raise SpecError(f"{path}: is empty; its first line must name the columns.")
    header = tuple(name.strip() for name in lines[0][1])
    rows = [
        (number, cells)
        for number, cells in lines[1:]
        if any(cells) and not cells[0].lstrip().startswith(COMMENT)
    ]
    schema = schema_of(header)
    faults = list(_header_faults(header, schema))
    if not faults:
        faults = [
            fault for number, cells in rows for fault in _row_faults(number, cells, header, schema)
        ]
    if faults:
        raise SpecError("\n".join(f"{path}:{fault}" for fault in faults))
    runs = (Run(line=n, cells=dict(zip(header, cells, strict=True))) for n, cells in rows)
    return Runs(columns=header, rows=tuple(runs))


def _header_faults(header: Sequence[str], schema: Schema) -> Iterator[str]:
    for name in schema.needed:
        if name not in header:
            hint = did_you_mean(name, set(header) - schema.known)
            yield f"1: the column {name} is missing.{hint}"
    for name in sorted({name for name in header if header.count(name) > 1}):
        yield f"1: the column {name!r} stands there twice."


def _row_faults(
    number: int, cells: Sequence[str], header: Sequence[str], schema: Schema
) -> Iterator[str]:
    if len(cells) != len(header):
        yield f"{number}: has {len(cells)} cells, not {len(header)}."
        return
    for name, cell in zip(header, cells, strict=True):
        fault = schema.fault(name, cell.strip())
        if fault:
            yield f"{number}: {name} {fault}."


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
