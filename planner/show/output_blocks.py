"""What a page consists of, before anything writes it: texts, tables, charts; names of pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import ClassVar, TypeAlias

from planner.base.formatting import agreed
from planner.base.records import record

PICTURES: Mapping[str, tuple[str, ...]] = {
    "search": ("front", "parts", "roofline", "reuse"),
    "estimate": ("parts", "roofline", "latency", "reuse"),
    "size": ("cost", "day"),
    "sweep": ("cost", "matrix"),
    "validate": ("predicted",),
}
"""The usual one first."""
OF_A_LOAD = ("day",)
"""Those of them that a question without a load does not have."""

USUAL_WIDTH = 1100
"""Pixels."""


BEST, TIE, BAD, TOTAL, FAINT = "best", "tie", "bad", "total", "faint"
"""Marks of cells, rows and lines: the winner, what published runs do not tell from it, no plan, a
sum or a head, what matters less.
"""

_LINE = 42
_TICKS = 6


@record(kw_only=True)
class Cell:
    """A cell: its text, in small what stands beside it, and the number that it is sorted by.

    ``ends`` are those of the interval, in the unit of ``number``. ``shade``: how good it is among
    the cells of its table, 1 the best; a page colours it.
    """

    text: str
    more: str = ""
    number: float | None = None
    ends: tuple[float, float] | None = None
    mark: str = ""
    shade: float | None = None

    @property
    def is_long(self) -> bool:
        """Whether its text needs more than a line."""
        return len(self.text) > _LINE


@record(kw_only=True)
class ColumnHead:
    """The head of a column; ``title`` says at length what it is.

    Where a terminal has no room the columns of the largest ``rank`` go first, after heads became
    ``short``.
    """

    name: str
    text: str
    title: str = ""
    numeric: bool = False
    rank: int = 0
    short: str = ""


@record(kw_only=True)
class Table:
    """Rows of cells; ``marked`` are the marks of rows.

    ``is_small``: nobody needs to filter it; ``is_folded``: the reader opens it. ``is_whole``: a
    terminal leaves out columns and says that they are ``elsewhere``, and folds no cell; ``is_low``:
    cells stand beside the last line of one that is folded. ``hints``: of each row more than its
    cells say, by name; a page shows it where the mouse rests.
    """

    kind: ClassVar[str] = "table"
    name: str = ""
    caption: str = ""
    heads: Sequence[ColumnHead]
    rows: Sequence[Sequence[Cell]]
    marked: Sequence[str] = ()
    notes: Sequence[str] = ()
    is_small: bool = False
    is_folded: bool = False
    is_whole: bool = False
    is_low: bool = False
    elsewhere: str = "--csv and --json have them"
    hints: Sequence[Mapping[str, str]] = ()

    def hint_of(self, row: int) -> Mapping[str, str]:
        """What more there is of a row."""
        return self.hints[row] if row < len(self.hints) else {}

    def mark_of(self, row: int) -> str:
        """The mark of a row."""
        return self.marked[row] if row < len(self.marked) else ""


@record(kw_only=True)
class Scatter:
    """Points whose axes the reader may choose among the columns of a table on the page.

    ``table`` is its name, ``x``, ``y``, ``by`` and ``shape`` those of columns: what is drawn first,
    what has a colour of its own, and what a shape.
    """

    kind: ClassVar[str] = "scatter"
    name: str
    caption: str
    table: str
    x: str
    y: str
    by: str
    shape: str = ""


@record(kw_only=True)
class Bars:
    """Stacked bars: for each of ``labels`` the values of parts, in order, in one unit."""

    kind: ClassVar[str] = "bars"
    name: str
    caption: str
    unit: str
    labels: Sequence[str]
    parts: Mapping[str, Sequence[float]]

    @property
    def most(self) -> float:
        """The sum of the longest bar."""
        return max(map(sum, zip(*self.parts.values(), strict=True)), default=0.0) or 1.0


@record(kw_only=True)
class RankingRow:
    """A choice of a ranking: its value in the ranking's unit, the same in words, and the ends of
    its interval; ``hints`` say the rest.
    """

    label: str
    value: float
    text: str
    ends: tuple[float, float] | None = None
    mark: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)


@record(kw_only=True)
class RankingChart:
    """Choices below each other, the best first, each with its value and its interval."""

    kind: ClassVar[str] = "ranks"
    name: str
    caption: str
    unit: str
    rows: Sequence[RankingRow]

    @property
    def most(self) -> float:
        """The end of the axis, which begins at 0: a longer interval goes beyond it."""
        ends = [end for row in self.rows for end in (*(row.ends or ()), row.value)]
        return (
            min(max(ends, default=0.0), 3.0 * max((row.value for row in self.rows), default=0.0))
            or 1.0
        )

    @property
    def ticks(self) -> list[float]:
        """Round numbers along the axis."""
        step = 10.0 ** math.floor(math.log10(self.most))
        step *= next(f for f in (0.2, 0.5, 1.0, 2.0) if self.most / (f * step) <= _TICKS)
        return [step * n for n in range(int(self.most / step) + 1)]


@record(kw_only=True)
class KeyValues:
    """Names and what they are; ``is_two_column``: two a line where there is room for whole ones."""

    kind: ClassVar[str] = "pairs"
    pairs: Mapping[str, str]
    is_two_column: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "pairs", {name: agreed(value) for name, value in self.pairs.items()}
        )


@record(kw_only=True)
class Lines:
    """Sentences, each a line of its own.

    A terminal folds one after its ``indent`` over no more than ``most`` lines.
    """

    kind: ClassVar[str] = "lines"
    lines: Sequence[str]
    mark: str = ""
    indent: str = "  "
    most: int = 9


@record(kw_only=True)
class Title:
    """What is above the blocks that follow."""

    kind: ClassVar[str] = "title"
    text: str


@record(kw_only=True)
class Code:
    """A command, to be copied, or lines that stay as they are."""

    kind: ClassVar[str] = "code"
    text: str


@record(kw_only=True)
class TextChart:
    """A picture of characters, drawn for a width and with or without characters beyond ASCII."""

    kind: ClassVar[str] = "drawn"
    lines: Callable[[int, bool], Sequence[str]]


@record(kw_only=True)
class SideBySide:
    """Tables under titles, beside each other where there is room."""

    kind: ClassVar[str] = "beside"
    tables: Mapping[str, Table]


Block: TypeAlias = (
    Table
    | Scatter
    | Bars
    | RankingChart
    | KeyValues
    | Lines
    | Title
    | Code
    | TextChart
    | SideBySide
)

GAP = Lines(lines=("",))
"""An empty line."""


def joined(blocks: Iterable[Block]) -> list[Block]:
    """Blocks without empty lines, sentences of one mark that follow each other as one block."""
    merged: list[Block] = []
    for block in blocks:
        if not isinstance(block, Lines):
            merged.append(block)
            continue
        lines, previous = [*filter(None, block.lines)], merged[-1] if merged else None
        if isinstance(previous, Lines) and previous.mark == block.mark:
            merged[-1] = Lines(lines=[*previous.lines, *lines], mark=block.mark)
        elif lines:
            merged.append(Lines(lines=lines, mark=block.mark))
    return merged


def make_lines(*lines: str, mark: str = "", indent: str = "  ", most: int = 9) -> Lines:
    """Sentences."""
    return Lines(lines=tuple(map(agreed, lines)), mark=mark, indent=indent, most=most)


def text_table(
    heads: Iterable[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    words: Iterable[int] = (0,),
    late: Iterable[int] = (),
    marked: Sequence[str] = (),
    name: str = "",
    caption: str = "",
) -> Table:
    """A table under these heads, of numbers but for the columns ``words``.

    A narrow terminal leaves out columns that are ``late``.
    """
    text_indexes, late_indexes = {*words}, {*late}
    return Table(
        name=name,
        caption=caption,
        heads=[
            ColumnHead(
                name=text,
                text=text,
                numeric=index not in text_indexes,
                rank=int(index in late_indexes),
            )
            for index, text in enumerate(heads)
        ],
        rows=[*map(cells_of, rows)],
        marked=marked,
        is_small=True,
    )


@record()
class Column:
    """Cells under a head, which is the name where it is empty."""

    name: str
    cells: Sequence[str | Cell]
    header: str = ""
    numeric: bool = True
    short: str = ""


def fit_table(
    columns: Sequence[Column],
    rank: Callable[[str], int] | None = None,
    marked: Sequence[str] = (),
    elsewhere: str = "--csv and --json have them",
) -> Table:
    """Columns as a table of which a terminal shows as many as it has room for, the first ones of
    ``rank``, or as they come.
    """
    order = [column.name for column in columns].index if rank is None else rank
    return Table(
        heads=[
            ColumnHead(
                name=column.name, text=column.header or column.name, numeric=column.numeric,
                rank=order(column.name), short=column.short,
            )
            for column in columns
        ],
        rows=[*map(cells_of, zip(*(column.cells for column in columns), strict=True))],
        marked=marked,
        is_whole=True,
        elsewhere=elsewhere,
    )  # fmt: skip


def cells_of(row: Iterable[str | Cell]) -> list[Cell]:
    """Cells, those of words made of them."""
    return [cell if isinstance(cell, Cell) else Cell(text=cell) for cell in row]


@record(kw_only=True)
class Section:
    """Blocks under a title; a folded one is opened by the reader."""

    title: str
    blocks: Sequence[Block]
    is_folded: bool = False


@record(kw_only=True)
class Figure:
    """A number of the answer: its name, its value with the unit, the ends of its interval in words;
    ``title`` says at length what it is.
    """

    name: str
    text: str
    between: str = ""
    title: str = ""


@record(kw_only=True)
class Evidence:
    """On what an answer rests: ``level`` is how near measured runs are, from ``measured`` to
    ``assumed``.
    """

    level: str
    text: str
    title: str


@record(kw_only=True)
class Page:
    """A page: the question as its title, what was asked, the answer, and everything else.

    Its first screen is the ``headline``, a sentence, with its ``figures``, the ``evidence`` and a
    ``chart``; ``answer``, ``reached`` and ``sure`` say the same in full. ``subject`` is what the
    page is about, in few words; ``glossary`` what the terms on it mean.
    """

    title: str
    question: Sequence[str]
    answer: Sequence[str]
    subject: str = ""
    headline: str = ""
    figures: Sequence[Figure] = ()
    evidence: Evidence | None = None
    chart: RankingChart | Bars | None = None
    reached: Mapping[str, str] = field(default_factory=dict)
    sure: Sequence[str] = ()
    sections: Sequence[Section] = ()
    glossary: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named_blocks = (
            block
            for block in self.blocks
            if isinstance(block, Table | Scatter | Bars | RankingChart)
        )
        names = [block.name for block in named_blocks if block.name]
        if len({*names}) < len(names):
            raise ValueError(f"Blocks of a page share a name: {names}.")

    @property
    def blocks(self) -> list[Block]:
        """The blocks of the first screen and of all sections."""
        first: list[Block] = [] if self.chart is None else [self.chart]
        return [*first, *(block for section in self.sections for block in section.blocks)]
