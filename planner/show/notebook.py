"""A page in a notebook, readable on a light and on a dark page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from planner.show import page

# Half transparent: the page's own colour shows through.
_MARKED = "background: rgba(46, 160, 67, 0.2); font-weight: bold"
_STYLES = {page.BEST: _MARKED, page.TOTAL: "font-weight: bold", page.FAINT: "opacity: 0.6"}
_CELL = "padding: 0.1em 0.8em 0.1em 0; text-align: {}; white-space: nowrap"
_WIDTH = 80


def notebook(blocks: Iterable[page.Block]) -> str:
    """Blocks as the HTML of a cell; sentences that follow each other are a paragraph."""
    parts: list[str] = []
    sentences: list[page.Lines] = []
    for block in (*blocks, None):
        if isinstance(block, page.Lines):
            sentences.append(block)
            continue
        parts.append(_paragraphs(sentences))
        sentences = []
        if block is not None:
            parts.append(_WRITERS[type(block)](block))
    return f"<div>{''.join(parts)}</div>"


def _paragraphs(several: Iterable[page.Lines]) -> str:
    lines = [
        (f'<span style="{style}">{escape(line)}</span>' if style else escape(line))
        for one in several
        for style in [_STYLES.get(one.mark)]
        for line in one.lines
    ]
    found = "<br>".join(lines).removeprefix("<br>").removesuffix("<br>")
    return f"<p>{found.replace('<br><br>', '</p><p>')}</p>" if found else ""


def _table(table: page.Table) -> str:
    styles = [_CELL.format("right" if head.numeric else "left") for head in table.heads]
    heads = [page.Cell(text=head.text) for head in table.heads]
    body = "".join(
        _row(cells, styles, "td", _STYLES.get(table.mark_of(number), ""))
        for number, cells in enumerate(table.rows)
    )
    has_head = any(head.text.strip() for head in heads)
    head = f"<thead>{_row(heads, styles, 'th', '')}</thead>" if has_head else ""
    notes = "".join(f"<p>{escape(note)}</p>" for note in table.notes)
    return f"<table>{head}<tbody>{body}</tbody></table>{notes}"


def _row(cells: Sequence[page.Cell], styles: Sequence[str], tag: str, style: str) -> str:
    inner = "".join(
        f'<{tag} style="{one}">{escape(cell.text)}</{tag}>'
        for cell, one in zip(cells, styles, strict=True)
    )
    return f'<tr style="{style}">{inner}</tr>'


def _pairs(pairs: page.Pairs) -> str:
    return _table(page.grid(("", ""), pairs.pairs.items(), words=(0, 1)))


def _preformatted(text: str) -> str:
    return f"<pre>{escape(text)}</pre>"


_WRITERS: Mapping[type[Any], Callable[[Any], str]] = {
    page.Title: lambda title: f"<p><b>{escape(title.text)}</b></p>",
    page.Code: lambda code: _preformatted(code.text),
    page.Pairs: _pairs,
    page.Table: _table,
    page.Beside: lambda beside: "".join(
        f"<p><b>{escape(title)}</b></p>{_table(table)}" for title, table in beside.tables.items()
    ),
    page.Drawn: lambda drawn: _preformatted("\n".join(drawn.lines(_WIDTH, True))),
}
