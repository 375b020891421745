"""Every configuration of a search space, as an open mesh in blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, product
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from planner.base.arrays import FloatArray, Values, distinct
from planner.base.records import record
from planner.configurations.table import ConfigurationTable
from planner.configurations.training import TrainingConfigurations
from planner.question.terms import terms_of

Table = TypeVar("Table", bound=ConfigurationTable)
Factor: TypeAlias = Mapping[str, Values]

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


@record(kw_only=True)
class OpenMesh(Generic[Table]):
    """All combinations of the entries of the factors of all ``axes``.

    A factor maps the parameters that are chosen together to equally long columns; an axis has
    one or several. Rows are numbered in C order of the axes and, in an axis, of its factors.
    """

    kind: type[Table]
    axes: Sequence[Sequence[Factor]]

    @property
    def factors(self) -> list[Factor]:
        """All factors, in the order of the parameters."""
        order = self.kind.names()
        flat = [factor for axis in self.axes for factor in axis]
        return sorted(flat, key=lambda factor: min(order.index(name) for name in factor))

    @property
    def num_rows(self) -> int:
        """Number of configurations."""
        return math.prod(_length(factor) for axis in self.axes for factor in axis)

    def values(self, name: str) -> Values:
        """The distinct values of a parameter, in increasing order."""
        (column,) = (factor[name] for factor in self.factors if name in factor)
        return distinct(column)

    def blocks(self, max_rows: int = _BLOCK_ROWS) -> Iterator[Table]:
        """Open meshes of at most about ``max_rows`` rows that together are the whole mesh."""
        axes = [joined(axis) for axis in self.axes]
        lengths = [_length(axis) for axis in axes]
        steps = steps_of(lengths, max_rows)
        for starts in product(*(range(0, n, step) for n, step in zip(lengths, steps, strict=True))):
            yield self.kind(
                **{
                    name: values[start : start + step].reshape(
                        [-1 if one == axis else 1 for one in range(len(lengths))]
                    )
                    for axis, (start, step) in enumerate(zip(starts, steps, strict=True))
                    for name, values in axes[axis].items()
                }
            )

    def table(self) -> Table:
        """All configurations as one open mesh."""
        (block,) = self.blocks(max(self.num_rows, 1))
        return block

    def flat(self) -> Table:
        """All configurations as one flat table."""
        table = self.table()
        return table.rows(np.arange(table.size))


def training_mesh(values: Mapping[str, Sequence[object]]) -> OpenMesh[TrainingConfigurations]:
    """All combinations of the values of every parameter of training, by ``AXES``."""
    kind = TrainingConfigurations
    return OpenMesh(
        kind=kind, axes=[[factor(kind, name, values[name]) for name in axis] for axis in AXES]
    )


def factor(kind: type[ConfigurationTable], name: str, values: Sequence[object]) -> Factor:
    """The values of one parameter that is chosen for itself."""
    return {name: kind.cast(name, values)}


def numbers(columns: Factor, name: str) -> FloatArray:
    """A column that holds numbers."""
    return np.asarray(columns[name], dtype=np.float64)


def joined(factors: Sequence[Factor]) -> Factor:
    """Columns of all combinations of the entries of some factors, the last fastest."""
    grids = np.meshgrid(*(np.arange(_length(factor)) for factor in factors), indexing="ij")
    return {
        name: values[grid.ravel()]
        for factor, grid in zip(factors, grids, strict=True)
        for name, values in factor.items()
    }


def _length(columns: Factor) -> int:
    return len(next(iter(columns.values())))


def steps_of(lengths: Sequence[int], max_rows: int) -> list[int]:
    """How many entries of each axis a block takes: later axes whole first."""
    steps = []
    room = max_rows
    for length in reversed(lengths):
        step = max(1, min(length, room))
        steps.append(step)
        room //= step
    return steps[::-1]
