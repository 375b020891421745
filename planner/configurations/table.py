"""What the structs of arrays of training and serving have in common."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import Field
from functools import cache
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import BoolArray, IndexArray, Item, Values
from planner.question.terms import glossary, plain_values

_BYTE = 128  # Codes that a signed byte tells apart.


class ConfigurationTable:
    """A frozen dataclass of arrays that broadcast to one ``shape``.

    A flat table holds equal-length vectors; an open mesh holds one axis per group of
    parameters, so that a formula costs only the axes it depends on. Quantities are float64,
    codes int8 (of many sets int16), flags bool; which is which, and what else is to be known of a
    parameter, stands in the table of terms under ``workload``.
    """

    __slots__ = ("_shape",)  # beside ``vars``, which are the parameters alone

    workload: ClassVar[str]
    _shape: tuple[int, ...]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @classmethod
    def of(cls, **values: object) -> Self:
        """Configurations from numbers, lists or arrays; each is cast to its type.

        Parameters that are not given have the plain value of the table of terms.
        """
        given = {**cls.plain(), **values}
        return cls(**{name: cls.cast(name, value) for name, value in given.items()})

    @classmethod
    @cache
    def plain(cls) -> dict[str, float]:
        """The plain value of every parameter that has one: a code, a flag or a number."""
        words = plain_values(cls.workload)
        return {name: glossary()[name].coded(words[name]) for name in cls.names() if name in words}

    @classmethod
    def cast(cls, name: str, value: object) -> Values:
        """``value`` in the array type of the parameter ``name``."""
        term = glossary()[name]
        if term.codes is not None:
            return np.asarray(value, dtype=np.int8 if len(term.codes) <= _BYTE else np.int16)
        return np.asarray(value, dtype=np.bool_ if term.type == "flag" else np.float64)

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        """The parameters, in order."""
        return tuple(
            name
            for name, field in cls.__dataclass_fields__.items()
            if not str(field.type).startswith("ClassVar")
        )

    def __getstate__(self) -> dict[str, object]:
        return vars(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole table or mesh; worked out once."""
        try:
            return self._shape
        except AttributeError:
            shapes = {np.shape(getattr(self, name)) for name in self.names()}
            object.__setattr__(self, "_shape", np.broadcast_shapes(*shapes))
            return self._shape

    @property
    def size(self) -> int:
        """Number of configurations."""
        return math.prod(self.shape)

    def rows(self, indices: IndexArray) -> Self:
        """The flat table of the rows at these flat indices of the mesh."""
        shape = self.shape
        positions = positions_at(indices, shape)
        return type(self)(
            **{name: pick(getattr(self, name), shape, positions) for name in self.names()}
        )

    @classmethod
    def stacked(cls, tables: Sequence[Self]) -> Self:
        """Flat tables below each other."""
        if len(tables) == 1:
            return tables[0]
        return cls(
            **{
                name: np.concatenate([np.broadcast_to(getattr(t, name), t.shape) for t in tables])
                for name in cls.names()
            }
        )

    def narrowed(self, kept: Sequence[IndexArray]) -> Self:
        """The mesh of some indices of each axis."""
        shape, is_empty = self.shape, not all(indices.size for indices in kept)

        def narrow(values: Values) -> Values:
            padded = np.reshape(values, (1,) * (len(shape) - np.ndim(values)) + np.shape(values))
            if padded.size == 1 and not is_empty:
                return padded
            for axis, indices in enumerate(kept):
                if padded.shape[axis] > 1 or not indices.size:
                    padded = np.take(padded, indices, axis=axis)
            return padded

        return type(self)(**{name: narrow(getattr(self, name)) for name in self.names()})

    def chosen(self, mask: BoolArray | IndexArray) -> Self:
        """The rows of a flat table where ``mask`` (or at which indices) it is true."""
        shape = self.shape
        return type(self)(
            **{name: np.broadcast_to(getattr(self, name), shape)[mask] for name in self.names()}
        )


def word(name: str, value: float) -> str | float:
    """A value of the parameter ``name`` as it is shown: a word, a bool or a number."""
    return glossary()[name].shown(value)


def positions_at(indices: IndexArray, shape: tuple[int, ...]) -> tuple[IndexArray, ...]:
    """Where flat indices are along each axis of a ``shape``."""
    return (indices,) if len(shape) == 1 else np.unravel_index(indices, shape)


def pick(
    values: NDArray[Item], shape: tuple[int, ...], positions: Sequence[IndexArray]
) -> NDArray[Item]:
    """The entries of a broadcastable array at positions of the whole ``shape``."""
    if values.size == 1 and positions:
        return np.repeat(values, len(positions[0]))
    # An index for each axis that it has costs less than a view of the whole shape.
    own = positions[len(shape) - values.ndim :]
    if values.ndim == 1:
        return values.take(own[0])
    index = tuple(at if n > 1 else 0 for n, at in zip(values.shape, own, strict=True))
    return np.asarray(values[index])
