"""Objects as documents of YAML that anyone can read and change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.shell.quoting import yaml_scalar


def documents(objects: Iterable[Any]) -> str:
    """A stream of documents; texts of several lines are written as blocks."""
    return "".join(f"---\n{text_of(one)}" for one in objects)


def text_of(value: Any) -> str:
    """One document."""
    return "\n".join(_lines(value)) + "\n"


def _lines(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [line for key, part in value.items() for line in _pair(str(key), part)]
    return [line for part in value for line in _item(part)]


def _pair(key: str, value: Any) -> list[str]:
    name = yaml_scalar(key)
    if isinstance(value, Mapping | list) and value:
        by = "  " if isinstance(value, Mapping) else ""
        return [f"{name}:", *(by + line if line else line for line in _lines(value))]
    head, *rest = _scalar(value)
    return [f"{name}: {head}", *rest]


def _item(value: Any) -> list[str]:
    if isinstance(value, Mapping | list) and value:
        first, *rest = _lines(value)
        return [f"- {first}", *(f"  {line}" if line else line for line in rest)]
    head, *rest = _scalar(value)
    return [f"- {head}", *rest]


def _scalar(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return ["{}"]
    if isinstance(value, list):
        return ["[]"]
    if isinstance(value, str) and "\n" in value and _is_block(value):
        return ["|", *(f"  {line}" if line else "" for line in value[:-1].split("\n"))]
    return [yaml_scalar(value)]


def _is_block(text: str) -> bool:
    """Whether a block gives the text back: it ends with one line feed and begins with no blank."""
    lines = text[:-1].split("\n")
    return (
        text.endswith("\n")
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0].startswith((" ", "\t"))
        and all(line.isprintable() for line in lines)
    )
