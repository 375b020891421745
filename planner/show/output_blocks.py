"""Blocks of a page, independent of the output format, and as JSON; picture names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from planner.base.formatting import fix_plurals
from planner.base.read_files import JsonObject
from planner.base.records import record
from planner.errors import SpecError

PICTURES: Mapping[str, tuple[str, ...]] = {
    "search": ("front", "parts", "roofline", "reuse"),
    "estimate": ("parts", "roofline", "latency", "reuse"),
    "size": ("cost", "day"),
    "sweep": ("cost", "matrix"),
    "validate": ("predicted",),
}
"""Names of pictures by command; the first is the default."""
LOAD_PICTURES = ("day",)
"""Pictures that need a load."""

USUAL_WIDTH = 1100
"""Default width of a picture in pixels."""


BEST, TIE, BAD, TOTAL, FAINT = "best", "tie", "bad", "total", "faint"
"""Marks of cells, rows and lines: the best, tied with it, no plan or worse, a sum or head, less
important.
"""

_LINE = 42
_TICKS = 6


@record(kw_only=True)
class Cell:
    """A cell: its text, smaller additional text in ``more``, and the number to sort by.

    ``ends`` is the interval in the unit of ``number``. ``shade``: rank among the cells of the
    table, 1 for the best; pages colour the cell by it.
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
    """The head of a column; ``title`` is its description.

    A narrow terminal uses the ``short`` heads, then omits the columns of the largest ``rank``.
    """

    name: str
    text: str
    title: str = ""
    numeric: bool = False
    rank: int = 0
    short: str = ""


@record(kw_only=True)
class Table:
    """Rows of cells; ``marked`` has the marks of the rows.

    ``is_small``: pages show no filter; ``is_folded``: collapsed until the reader opens it.
    ``is_whole``: a terminal omits columns, lists them with ``elsewhere`` if that has a text, and
    folds no cell;
    ``is_low``: cells are aligned with the last line of a folded cell. ``hints``: further values of
    each row by name, shown as a tooltip.
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
        """The further values of a row by name."""
        return self.hints[row] if row < len(self.hints) else {}

    def mark_of(self, row: int) -> str:
        """The mark of a row."""
        return self.marked[row] if row < len(self.marked) else ""


@record(kw_only=True)
class Scatter:
    """Points whose axes the reader may choose among the columns of a table on the page.

    ``table`` is the name of the table. ``x`` and ``y`` are the initial columns, ``by`` the column
    of the colour and ``shape`` that of the shape. ``measured`` is the name of a table with measured
    points, which are drawn where it has both columns.
    """

    kind: ClassVar[str] = "scatter"
    name: str
    caption: str
    table: str
    x: str
    y: str
    by: str
    shape: str = ""
    measured: str = ""


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
    """An option of a ranking: its value in the ranking's unit, the value as text, and its interval.

    ``hints`` has further values by name.
    """

    label: str
    value: float
    text: str = ""
    ends: tuple[float, float] | None = None
    mark: str = ""
    hints: Mapping[str, str] = field(default_factory=dict)


@record(kw_only=True)
class RankingChart:
    """Options below each other, best first, each with its value and its interval."""

    kind: ClassVar[str] = "ranks"
    name: str
    caption: str
    unit: str
    rows: Sequence[RankingRow]

    @property
    def most(self) -> float:
        """Return the end of the axis, which begins at 0; longer intervals are cut off."""
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
    """Names and values.

    ``is_two_column``: a terminal writes two pairs a line if the width allows; ``is_inline``: as
    many as a line holds, after the ``indent``.
    """

    kind: ClassVar[str] = "pairs"
    pairs: Mapping[str, str]
    is_two_column: bool = False
    is_inline: bool = False
    indent: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "pairs", {name: fix_plurals(value) for name, value in self.pairs.items()}
        )


@record(kw_only=True)
class Lines:
    """Sentences, one line each.

    A terminal folds a sentence over at most ``most`` lines, indented by ``indent``; 0: it stays
    one line.
    """

    kind: ClassVar[str] = "lines"
    lines: Sequence[str]
    mark: str = ""
    indent: str = "  "
    most: int = 12


@record(kw_only=True)
class Title:
    """A heading of the blocks that follow."""

    kind: ClassVar[str] = "title"
    text: str


@record(kw_only=True)
class Code:
    """A command to copy, or preformatted lines."""

    kind: ClassVar[str] = "code"
    text: str


@record(kw_only=True)
class TextChart:
    """A chart of characters, made for a width and with or without characters beyond ASCII."""

    kind: ClassVar[str] = "drawn"
    lines: Callable[[int, bool], Sequence[str]]


@record(kw_only=True)
class SideBySide:
    """Titled tables side by side, if the width allows."""

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
    """Return blocks without empty lines; consecutive sentences with the same mark are joined."""
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


def make_lines(*lines: str, mark: str = "", indent: str = "  ", most: int = 12) -> Lines:
    """A block of sentences."""
    return Lines(lines=tuple(map(fix_plurals, lines)), mark=mark, indent=indent, most=most)


def text_table(
    heads: Iterable[str],
    rows: Iterable[Sequence[str | Cell]],
    *,
    text_columns: Iterable[int] = (0,),
    late: Iterable[int] = (),
    marked: Sequence[str] = (),
    name: str = "",
    caption: str = "",
) -> Table:
    """Return a table whose columns are numbers, except ``text_columns`` (indexes).

    A narrow terminal omits the columns with indexes ``late``.
    """
    text_indexes, late_indexes = {*text_columns}, {*late}
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
    """Cells of a column; without a ``header`` its name is the head."""

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
    """Return a table from which a narrow terminal omits the columns of largest ``rank`` first.

    Without ``rank`` the last columns are omitted first.
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
    """Cells of a row; texts become cells."""
    return [cell if isinstance(cell, Cell) else Cell(text=cell) for cell in row]


@record(kw_only=True)
class Section:
    """Blocks under a title; a folded section is collapsed until the reader opens it."""

    title: str
    blocks: Sequence[Block]
    is_folded: bool = False


@record(kw_only=True)
class Figure:
    """A number of the answer: its name, its value with unit, its interval as text.

    ``title`` is its description.
    """

    name: str
    text: str
    between: str = ""
    title: str = ""


@record(kw_only=True)
class Evidence:
    """The evidence of an answer; ``level`` is from ``measured`` to ``assumed``."""

    level: str
    text: str
    title: str


@record(kw_only=True)
class Page:
    """A page: title, question, answer and sections.

    The first screen has the ``headline`` sentence, its ``figures``, the ``evidence`` and a
    ``chart``; ``answer``, ``reached`` and ``sure`` have the full text. ``subject`` is a short
    title; ``glossary`` has the meanings of the terms on the page.
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
        """Check that no two blocks share a name; raises ValueError if they do."""
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


_HEAD_FIELDS = ("name", "text", "title", "numeric", "rank", "short")
_TABLE_FLAGS = ("is_small", "is_folded", "is_whole", "is_low")


def save_blocks(blocks: Iterable[Block]) -> list[JsonObject]:
    """Return blocks of texts and tables as JSON objects; charts are left out."""
    return [saved for block in blocks if (saved := _save(block))]


def _save(block: Block) -> JsonObject:
    """Return a block as a JSON object; empty for a chart."""
    if isinstance(block, Lines):
        saved = {"lines": [*block.lines]}
        return saved | {"mark": block.mark, "indent": block.indent, "most": block.most}
    if isinstance(block, KeyValues):
        flags = {"is_two_column": block.is_two_column, "is_inline": block.is_inline}
        return {"pairs": dict(block.pairs), **flags}
    if isinstance(block, Title):
        return {"title": block.text}
    if isinstance(block, Code):
        return {"code": block.text}
    if isinstance(block, SideBySide):
        return {"tables": {name: _save_table(table) for name, table in block.tables.items()}}
    return {"table": _save_table(block)} if isinstance(block, Table) else {}


def _save_table(table: Table) -> JsonObject:
    return {
        "name": table.name,
        "caption": table.caption,
        "heads": [{name: getattr(head, name) for name in _HEAD_FIELDS} for head in table.heads],
        "rows": [[cell.text for cell in row] for row in table.rows],
        "cell_marks": [[cell.mark for cell in row] for row in table.rows],
        "marked": [*table.marked],
        "notes": [*table.notes],
        "elsewhere": table.elsewhere,
        **{name: getattr(table, name) for name in _TABLE_FLAGS},
    }


def load_blocks(saved: Iterable[Mapping[str, Any]]) -> list[Block]:
    """Return the blocks that `save_blocks` made into JSON objects.

    Raises SpecError if an object is none of them.
    """
    try:
        return [*map(_load, saved)]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SpecError(f"a block of the report is damaged ({error}).") from error


def _load(saved: Mapping[str, Any]) -> Block:
    if "lines" in saved:
        return Lines(**saved)
    if "pairs" in saved:
        return KeyValues(**saved)
    if "title" in saved:
        return Title(text=saved["title"])
    if "code" in saved:
        return Code(text=saved["code"])
    if "tables" in saved:
        return SideBySide(tables={n: _load_table(table) for n, table in saved["tables"].items()})
    return _load_table(saved["table"])


def _load_table(saved: JsonObject) -> Table:
    texts = zip(saved["rows"], saved["cell_marks"], strict=True)
    others = ("name", "caption", "marked", "notes", "elsewhere", *_TABLE_FLAGS)
    return Table(
        heads=[ColumnHead(**head) for head in saved["heads"]],
        rows=[
            [Cell(text=text, mark=mark) for text, mark in zip(row, marks, strict=True)]
            for row, marks in texts
        ],
        **{name: saved[name] for name in others},
    )
