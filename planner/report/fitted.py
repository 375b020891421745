"""A table of as many columns as the terminal has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.text import Text

from planner.base.records import record
from planner.report.console import make_table


@record(kw_only=True)
class Column:
    """Cells under a header whose words may stand below each other; ``styles`` are theirs."""

    name: str
    header: str
    cells: Sequence[str]
    numeric: bool
    styles: Sequence[str] | None = None

    @property
    def width(self) -> int:
        """Characters of the widest cell or word of the header."""
        return max(len(word) for word in (*self.header.split(), *self.cells))


Rank = Callable[[str], int]
Shape = Callable[[Column], Column]


def unchanged(column: Column) -> Column:
    """The column as it is."""
    return column


def print_fitted(
    console: Console,
    wanted: list[Column],
    *,
    rank: Rank,
    short: Shape = unchanged,
    styles: Sequence[str | None] | None = None,
    elsewhere: str = "--csv and --json have them",
) -> None:
    """The columns that fit, and the names of those that do not; the first row bold, or ``styles``.

    ``short`` abbreviates a header where that helps; the columns of the largest ``rank`` go first.
    """
    shown, gap = _fitting(wanted, console.width, rank, short)
    table = make_table(console, gap=gap)
    for column in shown:
        header = Text("\n".join(column.header.split()))
        table.add_column(
            header, justify="right" if column.numeric else "left", no_wrap=True, vertical="bottom"
        )
    for row, cells in enumerate(zip(*map(_styled, shown), strict=True)):
        table.add_row(*cells, style=styles[row] if styles else "bold" if row == 0 else None)
    console.print(table)
    names = {column.name for column in shown}
    missing = [column.name for column in wanted if column.name not in names]
    if missing:
        console.print(f"No room here for {', '.join(missing)}: {elsewhere}.")


def _styled(column: Column) -> list[Text]:
    styles = column.styles or [""] * len(column.cells)
    return [Text(cell, style) for cell, style in zip(column.cells, styles, strict=True)]


def _fitting(
    wanted: list[Column], width: int, rank: Rank, short: Shape
) -> tuple[list[Column], int]:
    """The columns that fit, at best all with whole headers, and the gap between them."""
    for shape in (unchanged, short):
        for gap in (2, 1):
            shaped = [shape(column) for column in wanted]
            if _total(shaped, gap) <= width:
                return shaped, gap
    shaped = [short(column) for column in wanted]
    by_rank = sorted(shaped, key=lambda column: rank(column.name))
    while len(by_rank) > 2 and _total(by_rank, 1) > width:
        by_rank.pop()
    kept = {column.name for column in by_rank}
    return [column for column in shaped if column.name in kept], 1


def _total(shown: Sequence[Column], gap: int) -> int:
    return sum(column.width for column in shown) + gap * (len(shown) - 1)
