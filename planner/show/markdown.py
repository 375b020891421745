"""A page as Markdown, for a wiki or a pull request: texts and tables, no charts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from planner.show.page import (
    BEST,
    Beside,
    Cell,
    Code,
    Drawn,
    Lines,
    Page,
    Pairs,
    Table,
    Title,
    joined,
)

MOST_ROWS = 20
"""Rows of a table; the page and the result have all."""

# What Markdown takes for markup, or a repository's page for a person or an issue.
_MARKUP = re.compile(r"([\\`*_{}\[\]#|!~$@])")
_TAKEN_FOR_LISTS = re.compile(r"^([-+=]|\d+[.)] )")
_EMPTY_LINES = re.compile(r"\n{3,}")


def markdown(page: Page) -> str:
    """The text of a page in the Markdown of repositories."""
    lines = [f"# {plain(page.title)}", "", *_broken(page.question), ""]
    lines += [words for line in page.answer for words in (f"**{plain(line)}**", "")]
    lines += ["", *_pairs(page.reached), "", *_broken(page.sure), ""]
    for section in page.sections:
        lines += [f"## {plain(section.title)}", ""]
        for block in joined(section.blocks):
            if write := _WRITERS.get(type(block)):
                lines += [*write(block), ""]
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).rstrip() + "\n"


def plain(words: str) -> str:
    """A text that stands in Markdown as it is, on one line.

    >>> plain("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    flat = " ".join(words.split()).replace("&", "&amp;")
    flat = _MARKUP.sub(r"\\\1", flat).replace("<", "&lt;").replace(">", "&gt;")
    return _TAKEN_FOR_LISTS.sub(r"\\\1", flat)


def _broken(lines: Any) -> list[str]:
    """Lines that stay lines: paragraphs."""
    return [words for line in lines for words in (plain(line), "")]


def _pairs(pairs: Mapping[str, str]) -> list[str]:
    found = [f"| {plain(name)} | {plain(value)} |" for name, value in pairs.items()]
    return ["| | |", "|---|---|", *found] if found else []


def _code(block: Code) -> list[str]:
    """A command between more backticks than it has itself."""
    fence = "`" * (3 + max(map(len, re.findall("`+", block.text)), default=0))
    return [fence, *block.text.splitlines(), fence]


def _title(words: str) -> list[str]:
    return [f"**{plain(words)}**", ""]


def _table(table: Table) -> Iterator[str]:
    if table.caption:
        yield from _title(table.caption)
    yield "| " + " | ".join(plain(head.text.strip() or head.title) for head in table.heads) + " |"
    yield "|" + "|".join("--:" if head.numeric else "---" for head in table.heads) + "|"
    for number, row in enumerate(table.rows[:MOST_ROWS]):
        words = [*map(_cell, row)]
        if table.mark_of(number) == BEST and words:
            words[0] = f"**{words[0]}**"
        yield "| " + " | ".join(words) + " |"
    yield ""
    if len(table.rows) > MOST_ROWS:
        yield f"{MOST_ROWS} of {len(table.rows):,} rows."
    yield from _broken(table.notes)


def _cell(cell: Cell) -> str:
    return f"{plain(cell.text)} ({plain(cell.more)})" if cell.more else plain(cell.text)


_WRITERS: Mapping[type[Any], Callable[[Any], Any]] = {
    Title: lambda block: _title(block.text),
    Table: _table,
    Beside: lambda block: [
        line for title, table in block.tables.items() for line in [*_title(title), *_table(table)]
    ],
    Drawn: lambda block: _code(Code(text="\n".join(block.lines(80, True)))),
    Pairs: lambda block: _pairs(block.pairs),
    Lines: lambda block: [f"- {plain(line)}" for line in block.lines],
    Code: _code,
}
