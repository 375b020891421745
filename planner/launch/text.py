"""Text of launch files: where a value stands, what changes there, and the difference as a patch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff

from planner.base.reading import MEBIBYTE
from planner.base.records import record

LARGEST = 4 * MEBIBYTE
"""Bytes of a file, or characters of a text, up to which it is read."""

_NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True, order=True)
class Span:
    """Characters ``start`` up to ``end`` of a file's text; empty where something can be put in."""

    start: int
    end: int


@record(kw_only=True)
class Given:
    """One option of a user's file, as text alone tells it.

    ``option`` is spelt as in the target's table: ``--tensor-model-parallel-size``,
    ``zero_optimization.stage``.
    """

    option: str
    texts: tuple[str | None, ...]
    """Its values as text; empty for a flag; None where text alone does not tell the value."""
    line: int
    """The first line of a file is 1."""
    spans: tuple[Span | None, ...]
    """Of each value; through a variable, where that got it; None if composed of several parts."""
    whole: Span | None
    """Option and values, where they stand together: what is removed to remove the option."""
    unknown: str = ""
    """Why a value cannot be told: ``$WORLD_SIZE is set by nothing in this file``."""


def stated(option: str, text: str, line: int = 1) -> Given:
    """An option that a program has by itself: it stands nowhere in the file."""
    return Given(option=option, texts=(text,), line=line, spans=(None,), whole=None)


def edited(text: str, edits: Mapping[Span, str]) -> str:
    """``text`` with each span replaced; an empty span puts something in.

    Raises ValueError if two edits overlap or one lies outside the text.

    >>> edited("tp=2 pp=4", {Span(3, 4): "8", Span(9, 9): " cp=2"})
    'tp=8 pp=4 cp=2'
    """
    parts, done = [], 0
    for span in sorted(edits):
        if not done <= span.start <= span.end <= len(text):
            raise ValueError(f"The edit {span} overlaps another or lies outside the text.")
        parts += [text[done : span.start], edits[span]]
        done = span.end
    return "".join([*parts, text[done:]])


def diff(before: str, after: str, name: str) -> str:
    """A unified diff that ``patch`` takes; empty if nothing changed.

    >>> print(diff("tp=2\\npp=4\\n", "tp=8\\npp=4\\n", "run.sh"), end="")
    --- run.sh
    +++ run.sh
    @@ -1,2 +1,2 @@
    -tp=2
    +tp=8
     pp=4
    """
    lines = unified_diff(list(_lines(before)), list(_lines(after)), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> Iterator[str]:
    """Lines end at a line feed alone; ``str.splitlines`` also ends them at other characters."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end
