"""Blocks of a report as JSON values, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.errors import SpecError
from planner.show.output_blocks import (
    Block,
    Cell,
    Code,
    ColumnHead,
    KeyValues,
    Lines,
    SideBySide,
    Table,
    Title,
)

_HEAD_FIELDS = ("name", "text", "title", "numeric", "rank", "short")
_TABLE_FLAGS = ("is_small", "is_folded", "is_whole", "is_low")


def save_blocks(blocks: Iterable[Block]) -> list[dict[str, Any]]:
    """Return blocks of texts and tables as JSON objects; charts are left out."""
    return [saved for block in blocks if (saved := _save(block))]


def _save(block: Block) -> dict[str, Any]:
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


def _save_table(table: Table) -> dict[str, Any]:
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


def _load_table(saved: Mapping[str, Any]) -> Table:
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
