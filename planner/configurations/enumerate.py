"""Every configuration of a search space, as an open mesh in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any, Generic, TypeVar

import numpy as np

from planner.configurations.table import ConfigurationTable
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.terms import terms_of

Table = TypeVar("Table", bound=ConfigurationTable)

# Parameters that appear in the same formulas share an axis: what a formula does not depend
# on costs it nothing. A stage's time does not depend on the global batch size, which therefore
# has its own. Pipeline and micro-batch come last, as most large arrays have both: numpy then
# runs over them in one inner loop.
AXES: tuple[tuple[str, ...], ...] = tuple(
    tuple(name for _, name in axis)
    for _, axis in groupby(
        sorted((term.axis, name) for name, term in terms_of("train", "parameter").items()),
        key=lambda place: place[0][0],
    )
)

# A block costs some milliseconds of Python whatever its size, and some bytes per row.
_BLOCK_ROWS = 2**22


@dataclass(frozen=True, kw_only=True)
class OpenMesh(Generic[Table]):
    """All combinations of the entries of ``axes``.

    An axis maps the parameters that vary together to equally long columns. Rows are numbered
    in C order of the axes.
    """

    kind: type[Table]
    axes: Sequence[Mapping[str, Any]]

    @property
    def num_rows(self) -> int:
        """Number of configurations."""
        return math.prod(len(next(iter(axis.values()))) for axis in self.axes)

    def blocks(self, max_rows: int = _BLOCK_ROWS) -> Iterator[Table]:
        """Open meshes of at most about ``max_rows`` rows that together are the whole mesh."""
        lengths = [len(next(iter(axis.values()))) for axis in self.axes]
        steps = _steps(lengths, max_rows)
        for starts in product(*(range(0, n, step) for n, step in zip(lengths, steps, strict=True))):
            yield self.kind(
                **{
                    name: _on_axis(axis, len(lengths), values[start : start + step])
                    for axis, (start, step) in enumerate(zip(starts, steps, strict=True))
                    for name, values in self.axes[axis].items()
                }
            )


@dataclass(frozen=True)
class Mesh:
    """All combinations of the values of every parameter of training, by ``AXES``."""

    values: Mapping[str, Sequence[Any]]

    @property
    def num_rows(self) -> int:
        """Number of configurations."""
        return math.prod(len(self.values[name]) for name in NAMES)

    def blocks(self, max_rows: int = _BLOCK_ROWS) -> Iterator[TrainingConfigurations]:
        """Open meshes of at most about ``max_rows`` rows that together are the whole mesh."""
        axes = [combinations(TrainingConfigurations, axis, self.values) for axis in AXES]
        return OpenMesh(kind=TrainingConfigurations, axes=axes).blocks(max_rows)


def combinations(
    kind: type[Table], names: Sequence[str], values: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Columns of all combinations of the values of some parameters, the last fastest."""
    grids = np.meshgrid(*(np.arange(len(values[name])) for name in names), indexing="ij")
    return {
        name: kind.cast(name, values[name])[grid.ravel()]
        for name, grid in zip(names, grids, strict=True)
    }


def _steps(lengths: Sequence[int], max_rows: int) -> list[int]:
    """How many entries of each axis a block takes: later axes whole first."""
    steps = []
    room = max_rows
    for length in reversed(lengths):
        step = max(1, min(length, room))
        steps.append(step)
        room //= step
    return steps[::-1]


def _on_axis(axis: int, num_axes: int, values: Any) -> Any:
    shape = [1] * num_axes
    shape[axis] = len(values)
    return values.reshape(shape)
