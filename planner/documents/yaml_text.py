"""YAML as launch files have it: sections, keys, lists, and remarks beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.shell.quoting import yaml_scalar


def yaml_text(document: Mapping[str, Any], notes: Mapping[str, str] | None = None) -> str:
    """A document of sections, lists of scalars or of sections, and scalars.

    ``notes`` by dotted key become comments behind their lines.

    >>> print(yaml_text({"a": {"b": [1, "x"]}, "c": None}, {"c": "unknown"}), end="")
    a:
      b:
        - 1
        - x
    c: null  # unknown
    """
    return "".join(f"{line}\n" for line in _lines(document, notes or {}, "", ""))


def _lines(
    section: Mapping[str, Any], notes: Mapping[str, str], indent: str, path: str
) -> Iterator[str]:
    for key, value in section.items():
        note = notes.get(f"{path}{key}")
        remark = f"  # {note}" if note else ""
        if isinstance(value, Mapping) and value:
            yield f"{indent}{key}:{remark}"
            yield from _lines(value, notes, indent + "  ", f"{path}{key}.")
        elif isinstance(value, (list, tuple)) and value:
            yield f"{indent}{key}:{remark}"
            for item in value:
                yield from _item(item, notes, indent + "  ")
        elif isinstance(value, (Mapping, list, tuple)):
            yield f"{indent}{key}: {'{}' if isinstance(value, Mapping) else '[]'}{remark}"
        else:
            yield f"{indent}{key}: {yaml_scalar(value)}{remark}"


def _item(item: Any, notes: Mapping[str, str], indent: str) -> Iterator[str]:
    if not isinstance(item, Mapping):
        yield f"{indent}- {yaml_scalar(item)}"
        return
    first, *rest = _lines(item, notes, indent + "  ", "")
    yield f"{indent}- {first.strip()}"
    yield from rest
