"""Frozen dataclasses with validation of their values by annotations.

A value of another type is converted if nothing is lost: ``2048.0`` and ``"8"`` are whole numbers
unless an annotation is `Strict`. All errors are reported at once, each with its key.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, SupportsFloat, SupportsIndex, TypeVar, dataclass_transform

from planner.base.read_files import UncheckedTable
from planner.base.records import record

T = TypeVar("T")
Key = TypeVar("Key")
Item = TypeVar("Item")
KeyPath = tuple[str, ...]
_Check = Callable[[object, object], object]

UNKNOWN = "is not a known key"
_PARAMETERS = "Parameters\n----------\n"
_LONGEST_SHOWN = 40
_LARGEST = 2**53  # beyond it not every whole number is a float
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "gt": (operator.gt, "must be greater than {}"),
    "ge": (operator.ge, "must be at least {}"),
    "lt": (operator.lt, "must be less than {}"),
    "le": (operator.le, "must be at most {}"),
    "min_length": (lambda value, bound: len(value) >= bound, "must be at least {} long"),
    "max_length": (lambda value, bound: len(value) <= bound, "must be at most {} long"),
}


@record()
class Interval:
    """The bounds of a number.

    Parameters
    ----------
    gt : exclusive lower bound
    ge : inclusive lower bound
    lt : exclusive upper bound
    le : inclusive upper bound
    """

    gt: float | None = None
    ge: float | None = None
    lt: float | None = None
    le: float | None = None


@record()
class MinLen:
    """The least number of values.

    Parameters
    ----------
    min_length : least number of items or characters
    """

    min_length: int


@record()
class MaxLen:
    """The greatest number of values.

    Parameters
    ----------
    max_length : greatest number of items or characters
    """

    max_length: int


@record()
class PreValidator:
    """A function of the raw value and the context of its file.

    Parameters
    ----------
    func : function of the value and the context of the file, applied before the type check
    """

    func: Callable[[object, object], object]


@record()
class PostValidator:
    """A function of the value that is right so far.

    Parameters
    ----------
    func : function of the value, applied after the type check
    """

    func: Callable[[Any], object]


@record()
class Strict:
    """Values are not converted: a text is no number, and 8.0 is no whole number."""


class ValidationErrors(ValueError):
    """Errors in the values of a spec: the key and the text of each."""

    def __init__(self, errors: Sequence[tuple[KeyPath, str]]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "; ".join(f"{'.'.join(place)} {text}".strip() for place, text in self.errors)


@dataclass_transform(
    frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,)
)
def validated(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only dataclass that checks every value.

    Raises ValidationErrors if annotations or validators refuse a value.
    """
    made: Any = record(kw_only=True)(cls)
    made.__checked__ = True
    made.__init__ = _init
    return typing.cast(type[T], made)


def build_validated(kind: type[T], values: UncheckedTable, context: object) -> T:
    """Build a ``kind`` from checked values; ``context`` is passed to every check.

    Raises ValidationErrors if annotations or validators refuse a value.

    Parameters
    ----------
    kind : class made by `validated`
    values : value of each field
    context : object that all `PreValidator` functions get
    """
    instance = object.__new__(kind)
    _fill(instance, values, context)
    return instance


def replace_unvalidated(spec: T, **values: object) -> T:
    """Return a copy with other values, unchecked (such as infinity or an array).

    Parameters
    ----------
    spec : instance of a class made by `validated`
    values : new values by field
    """
    changed = copy.copy(spec)
    for name, value in values.items():
        object.__setattr__(changed, name, value)
    return changed


@cache
def field_types(kind: object) -> UncheckedTable:
    """Return the field types of a checked class, without limits; {} for other types.

    Parameters
    ----------
    kind : class
    """
    return typing.get_type_hints(kind) if hasattr(kind, "__checked__") else {}


def _init(self: object, **values: object) -> None:
    _fill(self, values, None)


def _fill(instance: object, values: UncheckedTable, context: object) -> None:
    """Check ``values`` and set them with the defaults on an instance; raise all errors at once."""
    kind: Any = type(instance)
    filled, checks = instance.__dict__, _checks(kind)
    # A misspelt key comes before the key that is missing for it.
    errors: list[tuple[KeyPath, str]] = [
        ((str(name),), UNKNOWN) for name in values if name not in checks
    ]
    for name, (check, default) in checks.items():
        if name in values:
            try:
                filled[name] = check(values[name], context)
            except ValueError as error:
                errors += _placed(error, name)
        elif default is None:
            errors.append(((name,), "is missing"))
        else:
            filled[name] = default()
    if not errors and hasattr(instance, "__post_init__"):
        try:
            instance.__post_init__()
        except ValueError as error:
            errors += _placed(error)
    if errors:
        filled.clear()
        raise ValidationErrors(errors)


def _placed(error: ValueError, *key_path: str) -> list[tuple[KeyPath, str]]:
    """The validation errors of an exception, with their keys."""
    if isinstance(error, ValidationErrors):
        return [((*key_path, *inner), text) for inner, text in error.errors]
    return [(key_path, str(error))]


@cache
def _checks(kind: Any) -> Mapping[str, tuple[_Check, Callable[[], object] | None]]:
    """Return the check and the default factory of each field (None if required)."""
    homes = {  # of fields that are inherited the module of the class that has them
        name: base.__module__
        for base in reversed(kind.__mro__)
        for name in vars(base).get("__annotations__", ())
    }
    return {
        field.name: (_check_of(homes[field.name], str(field.type)), _default(field))
        for field in dataclasses.fields(kind)
    }


@cache
def _check_of(module: str, annotation: str) -> _Check:
    # As typing.get_type_hints, in a tenth of the time: many fields have the same annotation.
    return _check(eval(annotation, vars(sys.modules[module])))


def _default(field: dataclasses.Field[object]) -> Callable[[], object] | None:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory
    return None if field.default is dataclasses.MISSING else lambda: field.default


def _check(hint: object) -> _Check:
    """Return a function that converts a value to a type, or raises ValueError."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _limited(arguments[0], arguments[1:])
    if origin in (typing.Union, types.UnionType):
        return _one_of(arguments)
    if origin is tuple:
        return _sequence(_check(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(*map(_check, arguments))
    if origin is typing.Literal:
        return _word(arguments, lambda value: arguments[arguments.index(value)])
    if hint in _SIMPLE or not isinstance(hint, type):
        return _SIMPLE[hint]
    return _word(list(hint), hint) if issubclass(hint, enum.StrEnum) else _nested(hint)


def _wrong(expected: str, value: object) -> ValueError:
    """Return the error that a value is not of the expected type."""
    if isinstance(value, Mapping | list | tuple):
        return ValueError(
            f"must be {expected}, not a {'table' if isinstance(value, Mapping) else 'list'}"
        )
    text = repr(value)
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
    return ValueError(f"must be {expected}, not {shown}")


def _check_exact_int(value: object, _: object) -> int:
    if type(value) is not int:
        raise _wrong("a whole number", value)
    return value


def _check_int(value: object, _: object) -> int:
    """Return a value as int, such as 8.0 or "8"; raise ValueError if not an integer."""
    if type(value) is int:
        return value
    try:
        if isinstance(value, float | str) and abs(number := float(value)) < _LARGEST:
            if number.is_integer():
                return int(number)
        elif isinstance(value, SupportsIndex) and not isinstance(value, bool):
            return operator.index(value)
    except (TypeError, ValueError):
        pass
    raise _wrong("a whole number", value)


def _number(value: object, _: object) -> float:
    """Return a value as float; raise ValueError if it is not a number."""
    if type(value) is float:
        return value
    try:
        if isinstance(value, int | str | SupportsFloat) and not isinstance(value, bool):
            return float(value)
    except (TypeError, ValueError):
        pass
    raise _wrong("a number", value)


def _flag(value: object, _: object) -> bool:
    """Return a value as bool; raise ValueError unless it is true, false, 0 or 1."""
    if type(value) is bool:
        return value
    if not isinstance(value, str) and value in (0, 1):
        return bool(value)
    raise _wrong("true or false", value)


def _text(value: object, _: object) -> str:
    """Return a value as plain str; raise ValueError if it is not text."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise _wrong("text", value)


def _nothing(value: object, _: object) -> None:
    if value is not None:
        raise _wrong("left out", value)


def _anything(value: object, _: object) -> object:
    return value


_SIMPLE: Mapping[object, _Check] = {
    int: _check_int, float: _number, bool: _flag, str: _text, type(None): _nothing, Any: _anything
}  # fmt: skip


def _word(words: Iterable[str], make: Callable[[str], object]) -> _Check:
    """Return a check that converts one of ``words`` by ``make``; other values raise ValueError."""

    def check(value: object, _: object) -> object:
        if isinstance(value, str):
            with suppress(ValueError):
                return make(value)
        raise _wrong(f"one of {', '.join(words)}", value)

    return check


def _nested(kind: type) -> _Check:
    """Return a check that builds a ``kind`` from a table; an instance of ``kind`` passes."""

    def check(value: object, context: object) -> object:
        """Return a ``kind`` built from a table; raise ValueError for other values."""
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise _wrong("a table", value)
        return build_validated(kind, value, context)

    return check


def _sequence(element: _Check) -> _Check:
    """Return a check that makes a tuple of a list, each entry checked by ``element``."""

    def check(value: object, context: object) -> object:
        if not isinstance(value, list | tuple):
            raise _wrong("a list", value)
        numbered = ((str(number), entry) for number, entry in enumerate(value))
        return tuple(_each(numbered, lambda _, entry: element(entry, context)))

    return check


def _mapping(of_key: _Check, of_value: _Check) -> _Check:
    """Return a check that makes a dict of a table, with checked keys and values."""

    def check(value: object, context: object) -> object:
        """Return a table as dict with checked keys and values."""
        if not isinstance(value, Mapping):
            raise _wrong("a table", value)
        pairs = _each(
            value.items(), lambda key, entry: (of_key(key, context), of_value(entry, context))
        )
        return dict(pairs)

    return check


def _each(items: Iterable[tuple[Key, Item]], check: Callable[[Key, Item], T]) -> list[T]:
    """Return the converted values; raise the errors of all as one ValidationErrors."""
    converted: list[T] = []
    errors: list[tuple[KeyPath, str]] = []
    for name, value in items:
        try:
            converted.append(check(name, value))
        except ValueError as error:
            errors += _placed(error, str(name))
    if errors:
        raise ValidationErrors(errors)
    return converted


def _one_of(kinds: Sequence[object]) -> _Check:
    """Return a check for a union: converts to the most likely type that accepts the value."""
    checks = [(kind, _check(kind)) for kind in kinds if kind is not type(None)]

    def check(value: object, context: object) -> object:
        """Return the value by the first check that passes, the most likely first; None may pass."""
        if value is None and len(checks) < len(kinds):
            return None
        likely = sorted(checks, key=lambda check: -_likeness(check[0], value))
        errors: list[ValueError] = []
        for _, convert in likely:
            try:
                return convert(value, context)
            except ValueError as error:
                errors.append(error)
        raise errors[0]

    return check


def _likeness(kind: object, value: object) -> int:
    if isinstance(value, Mapping):
        return len(field_types(kind).keys() & value.keys())
    return (tuple if isinstance(value, list) else type(value)) in (kind, typing.get_origin(kind))


def _limited(kind: object, metadata: tuple[object, ...]) -> _Check:
    """Return a check within the bounds and validators of an annotation."""
    is_strict = any(isinstance(validator, Strict) for validator in metadata)
    check = _check_exact_int if is_strict and kind is int else _check(kind)
    before = [validator.func for validator in metadata if isinstance(validator, PreValidator)]
    after = [validator.func for validator in metadata if isinstance(validator, PostValidator)]
    bounds = [
        (holds, getattr(bound, name), text)
        for bound in metadata
        for name, (holds, text) in _BOUNDS.items()
        if getattr(bound, name, None) is not None
    ]

    def limited(value: object, context: object) -> object:
        """Convert and check a value; raise ValueError if it is outside the bounds."""
        for convert in before:
            value = convert(value, context)
        value = check(value, context)
        for holds, bound, text in bounds:
            if not holds(value, bound):
                raise ValueError(text.format(bound))
        for function in after:
            value = function(value)
        return value

    return limited


def field_words(spec: object) -> dict[str, str]:
    """Return descriptions of a spec's fields by dotted name, inner specs included.

    Parameters
    ----------
    spec : class made by `validated`
    """
    return dict(_words(spec, ""))


def _words(spec: object, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the path and description of each documented field, nested specs included."""
    texts = parameter_texts(spec)
    for name, kind in field_types(spec).items():
        if name in texts:
            yield prefix + name, f"{texts[name][:1].upper()}{texts[name][1:]}."
        for part in (kind, *getattr(kind, "__args__", ())):
            if field_types(part):
                yield from _words(part, f"{prefix}{name}.")


def parameter_texts(documented: object) -> dict[str, str]:
    """Return the text of each parameter in a docstring's ``Parameters`` section.

    Parameters
    ----------
    documented : function or class
    """
    _, _, section = inspect.cleandoc(documented.__doc__ or "").partition(_PARAMETERS)
    texts: dict[str, str] = {}
    names = ""
    for line in section.partition("\n\n")[0].splitlines():
        if line.startswith(" "):
            texts |= {name: f"{texts[name]} {line.strip()}" for name in names.split(", ")}
        else:
            names, _, text = line.partition(" : ")
            texts |= dict.fromkeys(names.split(", "), text)
    return texts
