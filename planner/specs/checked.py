"""Frozen dataclasses whose values are checked when one is made, most of them without pydantic.

Building pydantic's schemas takes longer than a search. What is plainly right is therefore checked
here, with the same annotations; whatever is not, pydantic judges: it converts it or says what is
wrong.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, dataclass_transform

from annotated_types import Interval, MaxLen, MinLen

from planner.base.records import record
from planner.specs.validators import After, Before, Strict

Made = TypeVar("Made")
_Check = Callable[[Any, Any], Any]

_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "gt": lambda value, bound: value > bound,
    "ge": lambda value, bound: value >= bound,
    "lt": lambda value, bound: value < bound,
    "le": lambda value, bound: value <= bound,
    "min_length": lambda value, bound: len(value) >= bound,
    "max_length": lambda value, bound: len(value) <= bound,
}


_UNDERSTOOD = (After, Before, Interval, MaxLen, MinLen, Strict)


class _NotPlain(Exception):
    """Pydantic must judge this value."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Info:
    """What the validators of quantities read of pydantic's ``ValidationInfo``."""

    context: Any


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def checked(cls: type[Made]) -> type[Made]:
    """A frozen, keyword-only dataclass that takes no unknown keys and checks every value.

    Raises
    ------
    pydantic.ValidationError
        When one is made of values that its annotations or its validators refuse.
    """
    made: Any = record(kw_only=True)(cls)
    made.__pydantic_config__ = {"extra": "forbid"}
    made.__init__ = _init
    return typing.cast(type[Made], made)


def plainly_made(kind: type[Made], values: Mapping[str, Any], context: Any) -> Made | None:
    """A ``kind`` of values that are plainly right, None where pydantic must judge them."""
    try:
        return typing.cast(Made, _made(kind, values, context))
    except _NotPlain:
        return None


def unchecked(spec: Made, **values: Any) -> Made:
    """A copy with other values, which nobody checks: files may not say infinity, or an array."""
    changed = copy.copy(spec)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


@cache
def adapter(kind: Any) -> Any:
    """Pydantic's validator of a class."""
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


@cache
def field_types(kind: Any) -> Mapping[str, Any]:
    """The fields of a checked class with their types, without their limits; empty for others."""
    if not hasattr(kind, "__pydantic_config__"):
        return {}
    return typing.get_type_hints(kind)


def _init(self: Any, **values: Any) -> None:
    try:
        _fill(self, values, None)
    except _NotPlain:
        from pydantic_core import ArgsKwargs

        arguments = ArgsKwargs((), values)
        kind: Any = type(self)
        adapter(kind).validator.validate_python(arguments, self_instance=self)


def _made(kind: Any, values: Mapping[str, Any], context: Any) -> Any:
    made = object.__new__(kind)
    _fill(made, values, context)
    return made


def _fill(made: Any, values: Mapping[str, Any], context: Any) -> None:
    kind: Any = type(made)
    checks = _checks(kind)
    if not values.keys() <= checks.keys():
        raise _NotPlain
    filled = made.__dict__
    try:
        for name, (check, default) in checks.items():
            filled[name] = check(values[name], context) if name in values else default()
        if hasattr(kind, "__post_init__"):
            made.__post_init__()
    except (_NotPlain, ValueError, TypeError):
        filled.clear()
        raise _NotPlain from None


def _missing() -> Any:
    raise _NotPlain


@cache
def _checks(kind: Any) -> Mapping[str, tuple[_Check, Callable[[], Any]]]:
    """By field, its check and what makes its default."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        field.name: (_check(hints[field.name]), _default(field))
        for field in dataclasses.fields(kind)
    }


def _default(field: Any) -> Callable[[], Any]:
    if field.default_factory is not dataclasses.MISSING:
        return typing.cast(Callable[[], Any], field.default_factory)
    if field.default is dataclasses.MISSING:
        return _missing
    return lambda: field.default


def _check(hint: Any) -> _Check:
    """What returns a value of a type if it is plainly one, and raises `_NotPlain` otherwise."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _limited(_check(arguments[0]), arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return _one_of([_check(argument) for argument in arguments])
    if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
        return _sequence(_check(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*map(_check, arguments))
    if origin is typing.Literal:
        return _accepted(lambda value: type(value) is str and value in arguments)
    if hint is float:
        return _number
    if hint in (bool, int, str, type(None)):
        return _accepted(lambda value: type(value) is hint)
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return _word(hint)
    if hasattr(hint, "__pydantic_config__"):
        return _nested(hint)
    return _refused


def _refused(_: Any, __: Any) -> Any:
    raise _NotPlain


def _accepted(is_plain: Callable[[Any], bool]) -> _Check:
    def check(value: Any, _: Any) -> Any:
        if is_plain(value):
            return value
        raise _NotPlain

    return check


def _number(value: Any, _: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        return float(value)
    raise _NotPlain


def _word(kind: type[enum.StrEnum]) -> _Check:
    def check(value: Any, _: Any) -> Any:
        if not isinstance(value, str):
            raise _NotPlain
        return kind(value)

    return check


def _nested(kind: Any) -> _Check:
    def check(value: Any, context: Any) -> Any:
        if isinstance(value, kind):
            return value
        if type(value) is not dict:
            raise _NotPlain
        return _made(kind, value, context)

    return check


def _sequence(element: _Check) -> _Check:
    def check(value: Any, context: Any) -> Any:
        if type(value) not in (list, tuple):
            raise _NotPlain
        return tuple(element(one, context) for one in value)

    return check


def _mapping(of_key: _Check, of_value: _Check) -> _Check:
    def check(value: Any, context: Any) -> Any:
        if type(value) is not dict:
            raise _NotPlain
        return {of_key(key, context): of_value(one, context) for key, one in value.items()}

    return check


def _one_of(kinds: list[_Check]) -> _Check:
    """The one kind of several that a value is plainly of."""

    def check(value: Any, context: Any) -> Any:
        found = []
        for kind in kinds:
            try:
                found.append(kind(value, context))
            except (_NotPlain, ValueError):
                continue
        if len(found) != 1:
            raise _NotPlain
        return found[0]

    return check


def _limited(check: _Check, metadata: tuple[Any, ...]) -> _Check:
    """A check between the validators of an annotation, within its bounds."""
    if not all(
        isinstance(one, (After, Before, Interval, MaxLen, MinLen, Strict)) for one in metadata
    ):
        return _refused
    before = [one.func for one in metadata if isinstance(one, Before)]
    after = [one.func for one in metadata if isinstance(one, After)]
    bounds = [
        (holds, getattr(one, name))
        for one in metadata
        for name, holds in _BOUNDS.items()
        if getattr(one, name, None) is not None
    ]

    def limited(value: Any, context: Any) -> Any:
        for function in reversed(before):
            value = function(value, _Info(context))
        value = check(value, context)
        for holds, bound in bounds:
            if not holds(value, bound):
                raise _NotPlain
        for function in after:
            value = function(value)
        return value

    return limited
