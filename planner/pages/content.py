"""What a page consists of, before it is HTML or Markdown: texts, tables and charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, ClassVar, TypeAlias

from planner.base.records import record

BEST, TIE, BAD = "best", "tie", "bad"
"""What marks a cell or row: the winner, what published runs do not tell from it, no plan."""

_LINE = 42


@record(kw_only=True)
class Cell:
    """A cell: its text, in small what stands beside it, and the number that it is sorted by.

    ``ends`` are those of the interval, in the unit of ``number``.
    """

    text: str
    more: str = ""
    number: float | None = None
    ends: tuple[float, float] | None = None
    mark: str = ""

    @property
    def is_long(self) -> bool:
        """Whether its text needs more than a line."""
        return len(self.text) > _LINE


@record(kw_only=True)
class Head:
    """The head of a column; ``title`` says at length what it is."""

    name: str
    text: str
    title: str = ""
    numeric: bool = False


@record(kw_only=True)
class Table:
    """Rows of cells; ``marked`` are the marks of rows.

    ``is_small``: nobody needs to filter it; ``is_folded``: the reader opens it.
    """

    kind: ClassVar[str] = "table"
    name: str
    caption: str
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    marked: Sequence[str] = ()
    notes: Sequence[str] = ()
    is_small: bool = False
    is_folded: bool = False

    def mark_of(self, row: int) -> str:
        """The mark of a row."""
        return self.marked[row] if self.marked else ""


@record(kw_only=True)
class Scatter:
    """Points whose axes the reader may choose among the columns of a table on the page.

    ``table`` is its name, ``x``, ``y``, ``by`` and ``label`` those of columns: what is drawn first,
    what has a colour of its own, and what a point is called.
    """

    kind: ClassVar[str] = "scatter"
    name: str
    caption: str
    table: str
    x: str
    y: str
    by: str
    label: str

    def to_dict(self) -> dict[str, Any]:
        """As the script of the page reads it."""
        return {"kind": self.kind, "table": self.table, "x": self.x, "y": self.y} | {
            "by": self.by,
            "label": self.label,
        }


@record(kw_only=True)
class Bars:
    """Stacked bars: for each of ``labels`` the values of parts, in order, in one unit."""

    kind: ClassVar[str] = "bars"
    name: str
    caption: str
    unit: str
    labels: Sequence[str]
    parts: Mapping[str, Sequence[float]]

    def to_dict(self) -> dict[str, Any]:
        """As the script of the page reads it."""
        parts = {name: [*values] for name, values in self.parts.items()}
        return {"kind": self.kind, "unit": self.unit, "labels": [*self.labels], "parts": parts}


@record(kw_only=True)
class Pairs:
    """Names and what they are."""

    kind: ClassVar[str] = "pairs"
    pairs: Mapping[str, str]


@record(kw_only=True)
class Lines:
    """Sentences, each a line of its own."""

    kind: ClassVar[str] = "lines"
    lines: Sequence[str]


@record(kw_only=True)
class Code:
    """A command, to be copied."""

    kind: ClassVar[str] = "code"
    text: str


Block: TypeAlias = Table | Scatter | Bars | Pairs | Lines | Code


@record(kw_only=True)
class Section:
    """Blocks under a title; a folded one is opened by the reader."""

    title: str
    blocks: Sequence[Block]
    is_folded: bool = False


@record(kw_only=True)
class Page:
    """A page: its title, what was asked, the answer in a sentence, and everything else."""

    title: str
    question: Sequence[str]
    answer: Sequence[str]
    reached: Mapping[str, str] = field(default_factory=dict)
    sure: Sequence[str] = ()
    sections: Sequence[Section] = ()

    def __post_init__(self) -> None:
        names = [one.name for one in self.blocks if isinstance(one, Table | Scatter | Bars)]
        if len({*names}) < len(names):
            raise ValueError(f"Blocks of a page share a name: {names}.")

    @property
    def blocks(self) -> list[Block]:
        """The blocks of all sections."""
        return [block for section in self.sections for block in section.blocks]

    @property
    def charts(self) -> dict[str, dict[str, Any]]:
        """What the script of the page draws, by name."""
        return {one.name: one.to_dict() for one in self.blocks if isinstance(one, Scatter | Bars)}
