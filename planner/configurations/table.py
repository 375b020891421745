"""What the structs of arrays of training and serving have in common, and rules that judge them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import Field
from functools import cache
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IndexArray,
    Item,
    Values,
    first_true,
)
from planner.base.records import record
from planner.question.terms import glossary, plain_values
from planner.specs.model import ModelSpec

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


Judged = TypeVar("Judged", contravariant=True)
Context = TypeVar("Context", contravariant=True)


class _Split(Protocol):
    """Configurations of training or of serving."""

    @property
    def data_parallel(self) -> FloatArray: ...

    @property
    def tensor_parallel(self) -> FloatArray: ...


class _OfModel(Protocol):
    """The context of either."""

    @property
    def model(self) -> ModelSpec: ...


@record(kw_only=True)
class Reason:
    """What rejects a configuration, in a word and in a sentence."""

    name: str
    description: str


@record(kw_only=True)
class Rule(Reason, Generic[Judged, Context]):
    """``violated`` is true where a configuration breaks the rule, in a context."""

    violated: Callable[[Judged, Context], BoolArray]


def indivisible(whole: FloatArray | float, part: FloatArray) -> BoolArray:
    """Where ``part`` does not divide ``whole``."""
    quotient = np.asarray(whole) / part
    return np.asarray(quotient != np.floor(quotient))


def left_over_gpus(c: _Split, _: object) -> BoolArray:
    """Where the GPUs are no whole number of copies."""
    return np.asarray((c.data_parallel < 1) | indivisible(c.data_parallel, np.ones(())))


def uneven_widths(c: _Split, context: _OfModel) -> BoolArray:
    """Where tensor parallelism does not divide the feed-forward widths of the context's model."""
    violated = np.zeros((), dtype=np.bool_)
    for mlp in context.model.feed_forwards:
        violated = violated | indivisible(mlp.shared_width, c.tensor_parallel)
    return violated


def first_broken(
    rules: Sequence[Rule[Judged, Context]], configurations: Judged, context: Context
) -> CodeArray:
    """One-based number of the first rule each configuration breaks, else 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return first_true(rule.violated(configurations, context) for rule in rules)


def predicted(name: str, description: str) -> Rule[object, object]:
    """A rule that no configuration breaks by itself: predictions tell."""
    return Rule(
        name=name, description=description, violated=lambda *_: np.zeros((), dtype=np.bool_)
    )


OUT_OF_HOST_MEMORY = predicted(
    "out_of_host_memory", "what is offloaded or loads whole needs more than the host memory"
)
