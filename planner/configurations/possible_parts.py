"""Parts of a mesh that hold its possible configurations, without what rules exclude."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import combinations, product
from typing import TypeAlias

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, IndexArray, lowest_code
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable
from planner.configurations.enumerate import Table, block_steps

# A prediction takes some milliseconds whatever its size: as long as for so many rows more.
ROWS_OF_A_PREDICTION = 2**18
_PAIRED_COUNT_ROWS = 2**16

Part: TypeAlias = tuple[ConfigurationTable, CodeArray | None]
"""Configurations and the codes of rules that they break; None: not known."""


def possible_parts(
    mesh: Table,
    codes: Sequence[CodeArray],
    num_rejections: int,
    *,
    least_saved: float = ROWS_OF_A_PREDICTION,
) -> tuple[list[tuple[Table, CodeArray]], IndexArray]:
    """Parts of a mesh that hold all its possible configurations, with their codes.

    Also returns the number of configurations that are left out, by index of the first axis and
    code. ``codes``: arrays of any shapes, the lowest above 0 counts; ``least_saved``: see
    `MeshCodes.parts`.
    """
    mesh_codes = MeshCodes.of(codes, mesh.shape)
    parts = mesh_codes.parts(least_saved)
    left_out = mesh_codes.counts_outside(parts, num_rejections)
    return [(mesh.narrow_axes(part), mesh_codes.at(part)) for part in parts], left_out


def split_mesh(
    configurations: Table, codes: CodeArray | None, max_rows: int
) -> Iterator[tuple[Table, CodeArray | None]]:
    """Yield parts of a mesh with their codes, each of at most about ``max_rows`` rows."""
    shape = configurations.shape
    if configurations.size <= max_rows:
        if configurations.size:
            yield configurations, codes
        return
    steps = block_steps(shape, max_rows)
    for starts in product(*(range(0, n, step) for n, step in zip(shape, steps, strict=True))):
        ends = (min(s + step, n) for s, step, n in zip(starts, steps, shape, strict=True))
        part = [slice(*both) for both in zip(starts, ends, strict=True)]
        table = configurations.narrow_axes(
            [np.arange(axis_slice.start, axis_slice.stop) for axis_slice in part]
        )
        yield table, None if codes is None else codes[tuple(part)]


def count_codes(codes: CodeArray, num_rejections: int) -> IndexArray:
    """The number of rows with each code, from 0 to ``num_rejections``."""
    flat = np.ravel(codes).astype(np.int8, copy=False).view(np.uint8)
    if flat.size < _PAIRED_COUNT_ROWS:
        return np.bincount(flat, minlength=num_rejections + 1)
    # Two codes make one 16-bit number; numpy counts as many of these per second as of bytes.
    pairs = np.bincount(flat[: flat.size // 2 * 2].view(np.uint16), minlength=2**16)
    both = pairs.reshape(2**8, 2**8)
    counts = both.sum(axis=0) + both.sum(axis=1)
    if flat.size % 2:
        counts[flat[-1]] += 1
    return np.asarray(counts[: num_rejections + 1])


@record(kw_only=True)
class MeshCodes:
    """The number of the first rule that each configuration of a mesh breaks; 0: none.

    Indices of an axis that no rule tells apart share an entry: 20 million configurations are some
    hundred thousand entries.

    Parameters
    ----------
    codes : codes over the entries of each axis
    entries : for each axis, the entry of each of its indices
    """

    codes: CodeArray
    entries: tuple[IndexArray, ...]

    @classmethod
    def of(cls, codes: Sequence[CodeArray], shape: tuple[int, ...]) -> MeshCodes:
        """Merge codes of any shapes that broadcast to the ``shape`` of the mesh."""
        by_shape = [each.reshape((1,) * (len(shape) - each.ndim) + each.shape) for each in codes]
        entries = []
        for axis, length in enumerate(shape):
            entry_of_index, first_indices = _distinct_slices(by_shape, axis, length)
            entries.append(entry_of_index)
            by_shape = [
                each if each.shape[axis] == 1 else each.take(first_indices, axis=axis)
                for each in by_shape
            ]
        lengths = [int(entry_of_index.max(initial=-1)) + 1 for entry_of_index in entries]
        return cls(codes=np.broadcast_to(lowest_code(by_shape), lengths), entries=tuple(entries))

    @property
    def weights(self) -> list[IndexArray]:
        """For each axis, the number of indices of each entry."""
        return [np.bincount(entry_of_index) for entry_of_index in self.entries]

    def at(self, indices_by_axis: Sequence[IndexArray]) -> CodeArray:
        """The codes at these indices of each axis."""
        return self.codes[self._positions(indices_by_axis)]

    def parts(self, least_saved: float = ROWS_OF_A_PREDICTION) -> list[list[IndexArray]]:
        """Parts that hold all possible configurations, as their indices of each axis.

        The mesh without indices at which nothing is possible, divided where two axes exclude each
        other, such as pipelines and high ZeRO stages, as long as this leaves out ``least_saved``
        configurations.
        """
        every_entry = [np.arange(length) for length in self.codes.shape]
        boxes = _divide(self.codes == 0, every_entry, self.weights, least_saved)
        parts = [
            [
                np.flatnonzero(np.bincount(chosen, minlength=length)[entry_of_index])
                for entry_of_index, chosen, length in zip(
                    self.entries, box, self.codes.shape, strict=True
                )
            ]
            for box in boxes
        ]
        return sorted(parts, key=lambda part: [int(indices[0]) for indices in part])

    def counts_outside(
        self, parts: Sequence[Sequence[IndexArray]], num_rejections: int
    ) -> IndexArray:
        """The number of configurations outside of ``parts`` by index of the first axis and code."""
        is_outside = np.ones(self.codes.shape, dtype=np.bool_)
        for part in parts:
            is_outside[self._positions(part)] = False
        rows = reduce(np.multiply.outer, self.weights[1:], np.ones(()))
        rows_outside = np.where(is_outside, rows, 0.0)
        lengths = len(self.codes), num_rejections + 1
        first = np.arange(lengths[0]).reshape(-1, *[1] * (self.codes.ndim - 1))
        bins = (first * lengths[1] + self.codes).ravel()
        counts = np.bincount(bins, weights=rows_outside.ravel(), minlength=math.prod(lengths))
        return counts.astype(np.intp).reshape(lengths)[self.entries[0]]

    def _positions(self, indices_by_axis: Sequence[IndexArray]) -> tuple[IndexArray, ...]:
        """An index of ``codes`` for these indices of each axis."""
        pairs = zip(self.entries, indices_by_axis, strict=True)
        return np.ix_(*(entry_of_index[indices] for entry_of_index, indices in pairs))


def _distinct_slices(
    arrays: Sequence[CodeArray], axis: int, length: int
) -> tuple[IndexArray, list[int]]:
    """The number of each index's slices among the distinct ones; an index of each of these.

    Arrays of length 1 on the ``axis`` are the same at all of its ``length`` indices.
    """
    tables = [
        np.ascontiguousarray(np.moveaxis(each, axis, 0)).reshape(length, -1)
        for each in arrays
        if each.shape[axis] > 1
    ]
    numbers: dict[bytes, int] = {}
    first_indices = []
    entry_of_index = np.zeros(length, dtype=np.intp)
    for index in range(length if tables else min(length, 1)):
        key = b"".join([table[index].tobytes() for table in tables])
        number = numbers.setdefault(key, len(numbers))
        if number == len(first_indices):
            first_indices.append(index)
        entry_of_index[index] = number
    return entry_of_index, first_indices


def _divide(
    possible: BoolArray,
    box: Sequence[IndexArray],
    weights: Sequence[IndexArray],
    least_saved: float,
) -> Iterator[list[IndexArray]]:
    """Yield boxes of entries that together hold all that is possible in a ``box``."""
    inside = possible[np.ix_(*box)]
    axes = range(inside.ndim)
    some = [inside.any(axis=tuple(other for other in axes if other != axis)) for axis in axes]
    if not all(each.any() for each in some):
        return
    box = [entries[each] for entries, each in zip(box, some, strict=True)]
    sizes = [weight[entries] for weight, entries in zip(weights, box, strict=True)]
    if math.prod(int(size.sum()) for size in sizes) > least_saved:
        saved, axis, is_first = _best_division(possible[np.ix_(*box)], sizes)
        if saved >= least_saved:
            for half in (is_first, ~is_first):
                part = [*box[:axis], box[axis][half], *box[axis + 1 :]]
                yield from _divide(possible, part, weights, least_saved)
            return
    yield box


def _best_division(possible: BoolArray, sizes: Sequence[IndexArray]) -> tuple[int, int, BoolArray]:
    """Divide one axis in two so that both halves need fewest entries of the other axes.

    Returns the configurations that are left out, the axis, and a mask of its first half. The
    halves are those at which some entry of another axis is possible, and the others.
    """
    axes = [axis for axis, length in enumerate(possible.shape) if length > 1]
    pairs: dict[tuple[int, int], BoolArray] = {}
    for first, second in combinations(axes, 2):
        others = tuple(axis for axis in range(possible.ndim) if axis not in (first, second))
        pairs[first, second] = possible.any(axis=others)
        pairs[second, first] = pairs[first, second].T
    totals = [int(size.sum()) for size in sizes]
    rows = math.prod(totals)
    best = 0, 0, np.ones(possible.shape[0], dtype=np.bool_)
    for axis in axes:
        needed_by = {other: pairs[axis, other] for other in axes if other != axis}
        unaffected = rows // math.prod(totals[each] for each in axes)
        halves = {column.tobytes(): column for pair in needed_by.values() for column in pair.T}
        for is_first in halves.values():
            saved = rows
            for half in (is_first, ~is_first):
                needed = (sizes[other][pair[half].any(axis=0)] for other, pair in needed_by.items())
                halved = int(sizes[axis][half].sum())
                saved -= unaffected * halved * math.prod(int(size.sum()) for size in needed)
            if saved > best[0]:
                best = saved, axis, is_first
    return best
