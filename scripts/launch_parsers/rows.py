"""Rows of the tables of options: of argparse's actions, of dataclasses' and pydantic's fields."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import re
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

Row = dict[str, str]
REQUIRED = "<required>"
FLAGS = ("StoreTrue", "StoreFalse", "BooleanOptional", "EnableDisable", "StoreConst")
FLAGS += ("Help", "Version", "Count")


def one_line(value: object) -> str:
    return re.sub(r"\s+", " ", str(value)).strip()


def of_parser(parser: argparse.ArgumentParser) -> Iterator[Row]:
    """A row of each option of an argument parser, under its first long spelling.

    What says no to a flag is a row of its own, and so no alias of what says yes.
    """
    spelt: dict[int, list[str]] = {}
    actions = {id(x): x for x in parser._option_string_actions.values()}
    for spelling, action in parser._option_string_actions.items():
        spelt.setdefault(id(action), []).append(spelling)
    for key, action in actions.items():
        if isinstance(action, argparse._HelpAction):
            continue
        no = [x for x in spelt[key] if is_negative(action, x)]
        for spellings in (no, [x for x in spelt[key] if x not in no]):
            if spellings:
                yield of_action(action, spellings)


def is_negative(action: argparse.Action, spelling: str) -> bool:
    """Whether a spelling of a flag that has both says no."""
    if hasattr(action, "negative_option_strings"):
        return spelling in action.negative_option_strings
    return isinstance(action, argparse.BooleanOptionalAction) and spelling.startswith("--no-")


def of_action(action: argparse.Action, spellings: list[str]) -> Row:
    """The row of an action, or of its spellings that say no."""
    long = [x for x in spellings if x.startswith("--")]
    name = (long or spellings)[0]
    flag = action.nargs == 0 or type(action).__name__.strip("_").startswith(FLAGS)
    return {
        "name": name,
        "type": "flag" if flag else type_of_action(action),
        "choices": "|".join(value_text(x) for x in action.choices or ()),
        "default": default_text(action.default),
        "nargs": "0" if flag else one_line(action.nargs or ""),
        "aliases": "|".join(x for x in spellings if x != name),
    }


def type_of_action(action: argparse.Action) -> str:
    """The name of what converts an option's text; text where nothing does."""
    kind = action.type
    if kind is None:
        return "str"
    name = getattr(kind, "__name__", type(kind).__name__)
    return "str" if name == "<lambda>" else name


def value_text(value: object) -> str:
    if isinstance(value, enum.Enum):
        return one_line(value.value if isinstance(value.value, str) else value.name)
    return one_line(value)


def default_text(value: object) -> str:
    """A default as a file would spell it; nothing where it is made, not written."""
    if value is argparse.SUPPRESS or callable(value):
        return ""
    if isinstance(value, (str, int, float, bool, list, tuple, dict, enum.Enum, type(None))):
        return value_text(value)
    return ""


def alternatives(annotation: Any) -> list[Any]:
    """The types of a union but None, or the type."""
    if get_origin(annotation) is typing.Annotated:
        return alternatives(get_args(annotation)[0])
    if get_origin(annotation) in (typing.Union, types.UnionType):
        found = [y for x in get_args(annotation) for y in alternatives(x)]
        return [x for x in found if x is not type(None)]
    return [annotation]


def type_text(annotation: Any) -> str:
    """A type without None; the values of a Literal or an enumeration are choices instead."""
    return " | ".join(dict.fromkeys(map(simple_text, alternatives(annotation))))


def simple_text(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, enum.IntEnum):
        return "int"
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, enum.Enum)):
        return "str"
    if isinstance(kind, type) and not get_args(kind):
        return kind.__name__
    return re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", one_line(kind))


def choices_text(annotation: Any) -> str:
    found: list[object] = []
    for kind in alternatives(annotation):
        if get_origin(kind) is Literal:
            found += get_args(kind)
        elif isinstance(kind, type) and issubclass(kind, enum.Enum):
            found += [int(x) if isinstance(x, enum.IntEnum) else x for x in kind]
    return "|".join(value_text(x) for x in found)


def sections(annotation: Any) -> list[type]:
    """Dataclasses and pydantic models among a field's types."""
    found = [x for x in alternatives(annotation) if isinstance(x, type)]
    return [x for x in found if dataclasses.is_dataclass(x) or hasattr(x, "model_fields")]


def fields(kind: type) -> Iterator[tuple[str, Any, Any, str]]:
    """Name, annotation, default and alias of each field of a dataclass or a pydantic model."""
    if hasattr(kind, "model_fields"):
        for name, field in kind.model_fields.items():
            default = REQUIRED if field.is_required() else field.default
            if not field.is_required() and field.default_factory:
                default = field.default_factory
            yield field.alias or name, field.annotation, default, name if field.alias else ""
        return
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        default = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory is not dataclasses.MISSING
            default = field.default_factory if made else REQUIRED
        if field.init:
            yield field.name, hints[field.name], default, ""


def of_class(kind: type, prefix: str = "", above: tuple[type, ...] = ()) -> Iterator[Row]:
    """A row of each field, and of those of its sections."""
    for name, annotation, default, alias in fields(kind):
        yield {
            "name": prefix + name,
            "type": type_text(annotation),
            "choices": choices_text(annotation),
            "default": default_text(default),
            "nargs": "",
            "aliases": prefix + alias if alias else "",
        }
        for inner in sections(annotation):
            if inner not in above:
                yield from of_class(inner, f"{prefix}{name}.", (*above, kind, inner))


def distinct(rows: Iterable[Row]) -> list[Row]:
    """The rows, of each name the first."""
    found: dict[str, Row] = {}
    for row in rows:
        found.setdefault(row["name"], row)
    return list(found.values())
