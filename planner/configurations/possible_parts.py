"""Parts of a mesh that hold its possible configurations, without what rules exclude."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations, product
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import BoolArray, CodeArray, IndexArray, Values, lowest_code, rank_values
from planner.base.records import record
from planner.configurations.configuration_tables import ConfigurationTable
from planner.configurations.enumerate import Table, block_steps

# A prediction takes some milliseconds whatever its size: as long as for so many rows more.
ROWS_OF_A_PREDICTION = 2**18
_PAIRED_COUNT_ROWS = 2**16
_COUNTED_ENTRIES = 2**16
_LARGE_MESH = 2**16  # rules take longer for so many rows than a grid of their parameters
_MOST_COMBINATIONS = 2  # of values of an axis, for each of its indices
_MOST_AXES = 24  # numpy has 64

Part: TypeAlias = tuple[Any, CodeArray | None]
"""Configurations and the codes of rules that they break; None: not known."""


def possible_parts(
    mesh: Table, codes: MeshCodes, num_rejections: int, least_saved: float
) -> tuple[list[tuple[Table, CodeArray]], IndexArray]:
    """Parts of a mesh that hold all its possible configurations, with their codes.

    Also returns the number of configurations that are left out, by index of the first axis and
    code. ``least_saved``: see `MeshCodes.parts`.
    """
    parts = codes.parts(least_saved)
    left_out = codes.counts_outside(parts, num_rejections)
    return [(mesh.narrow_axes(part), codes.at(part)) for part in parts], left_out


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
        indices = [
            [np.arange(length) % each.shape[axis] for each in by_shape]
            for axis, length in enumerate(shape)
        ]
        return cls._merged(by_shape, indices, shape)

    @classmethod
    def of_rules(cls, mesh: Table, judge: Callable[[Any], Sequence[CodeArray]]) -> MeshCodes:
        """Codes that ``judge`` gives to configurations, in arrays of any shapes.

        It judges each combination of the parameters that it reads once.
        """
        grid = None if mesh.size < _LARGE_MESH else _ParameterGrid.of(mesh)
        if grid is None:
            return cls.of(judge(mesh), mesh.shape)
        codes = []
        indices = [list[IndexArray]() for _ in grid.ranks]
        for each in judge(grid.table):
            lengths = (1,) * (len(grid.table.shape) - each.ndim) + each.shape
            merged = []
            for ranks, of_axis, length in zip(grid.ranks, indices, mesh.shape, strict=True):
                index, size = np.zeros(length, dtype=np.intp), 1
                for place, rank in ranks.items():
                    if lengths[place] > 1:
                        index, size = index * lengths[place] + rank, size * lengths[place]
                of_axis.append(index)
                merged.append(size)
            codes.append(each.reshape(merged))
        return cls._merged(codes, indices, mesh.shape)

    @classmethod
    def _merged(
        cls,
        codes: Sequence[CodeArray],
        indices: Sequence[Sequence[IndexArray]],
        shape: tuple[int, ...],
    ) -> MeshCodes:
        """Merge codes; ``indices``: for each axis, where each array has each of its indices."""
        if math.prod(shape) < _LARGE_MESH:
            every_index = tuple(np.arange(length) for length in shape)
            return cls(codes=np.broadcast_to(lowest_code(codes), shape), entries=every_index)
        entries, lengths = list[IndexArray](), list[int]()
        for axis, (of_arrays, length) in enumerate(zip(indices, shape, strict=True)):
            entry_of_index, first_indices = _distinct_slices(codes, axis, of_arrays, length)
            entries.append(entry_of_index)
            lengths.append(len(first_indices))
            codes = [
                each if each.shape[axis] == 1 else each.take(index[first_indices], axis=axis)
                for each, index in zip(codes, of_arrays, strict=True)
            ]
        return cls(codes=np.broadcast_to(lowest_code(codes), lengths), entries=tuple(entries))

    @property
    def weights(self) -> list[IndexArray]:
        """For each axis, the number of indices of each entry."""
        return [np.bincount(entry_of_index) for entry_of_index in self.entries]

    def at(self, indices_by_axis: Sequence[IndexArray]) -> CodeArray:
        """The codes at these indices of each axis."""
        codes = self.codes
        for axis in reversed(range(codes.ndim)):  # the first axis last, as its pieces are longest
            codes = codes.take(self.entries[axis][indices_by_axis[axis]], axis=axis)
        return codes

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
            inside = [
                np.bincount(entry_of_index[indices], minlength=length) > 0
                for entry_of_index, indices, length in zip(
                    self.entries, part, self.codes.shape, strict=True
                )
            ]
            is_outside &= ~reduce(np.logical_and.outer, inside)
        rows = reduce(np.multiply.outer, self.weights[1:], np.ones(()))
        num_codes, counts = num_rejections + 1, list[NDArray[Any]]()
        step = max(1, _COUNTED_ENTRIES // max(rows.size, 1))
        for start in range(0, len(self.codes), step):
            codes, outside = self.codes[start : start + step], is_outside[start : start + step]
            first = np.arange(0, num_codes * len(codes), num_codes)
            bins = codes + first.reshape(-1, *[1] * rows.ndim)
            weights = np.where(outside, rows, 0.0)
            counts.append(np.bincount(bins.ravel(), weights.ravel(), num_codes * len(codes)))
        table = np.concatenate(counts).astype(np.intp).reshape(-1, num_codes)
        return table[self.entries[0]]


@record(kw_only=True)
class _ParameterGrid:
    """A mesh with an axis for each parameter, on which a rule costs only what it reads.

    Parameters
    ----------
    table : the distinct values of each parameter
    ranks : for each axis of the mesh, by axis of ``table``, the position of each of its indices
    """

    table: ConfigurationTable
    ranks: Sequence[Mapping[int, IndexArray]]

    @classmethod
    def of(cls, mesh: ConfigurationTable) -> _ParameterGrid | None:
        """The grid of a mesh; None: a parameter varies on several axes, or too many vary."""
        shape = mesh.shape
        columns = {name: np.asarray(getattr(mesh, name)) for name in mesh.names()}
        columns = {
            name: values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
            for name, values in columns.items()
        }
        axes: list[dict[str, Values]] = []
        ranks: list[dict[int, IndexArray]] = []
        for axis, length in enumerate(shape):
            varying = {name: each for name, each in columns.items() if each.shape[axis] > 1}
            if any(values.size > length for values in varying.values()):
                return None
            ranked = {name: rank_values(values) for name, values in varying.items()}
            num_combinations = math.prod(len(distinct) for distinct, _ in ranked.values())
            if num_combinations <= _MOST_COMBINATIONS * length:
                new = [({name: distinct}, rank) for name, (distinct, rank) in ranked.items()]
            else:  # few of the combinations of these values
                new = [({n: each.ravel() for n, each in varying.items()}, np.arange(length))]
            ranks.append({len(axes) + place: rank for place, (_, rank) in enumerate(new)})
            axes += [values for values, _ in new]
        if len(axes) > _MOST_AXES:
            return None
        single = {
            name: values.reshape((1,) * len(axes))
            for name, values in columns.items()
            if values.size == 1
        }
        several = {
            name: values.reshape([-1 if place == axis else 1 for place in range(len(axes))])
            for axis, of_axis in enumerate(axes)
            for name, values in of_axis.items()
        }
        return cls(table=type(mesh)(**single, **several), ranks=ranks)


def _distinct_slices(
    arrays: Sequence[CodeArray], axis: int, indices: Sequence[IndexArray], length: int
) -> tuple[IndexArray, list[int]]:
    """The number of each index's slices among the distinct ones; an index of each of these.

    ``indices``: where each array has each index of the ``axis``.
    """
    numbers_by_array = []
    for each, index in zip(arrays, indices, strict=True):
        if each.shape[axis] > 1:
            table = np.ascontiguousarray(np.moveaxis(each, axis, 0)).reshape(each.shape[axis], -1)
            slices: dict[bytes, int] = {}
            numbers = [slices.setdefault(row.tobytes(), len(slices)) for row in table]
            numbers_by_array.append(np.array(numbers)[index].tolist())
    numbers_by_index = zip(*numbers_by_array, strict=True) if numbers_by_array else [()] * length
    entries: dict[tuple[int, ...], int] = {}
    first_indices = list[int]()
    entry_of_index = np.zeros(length, dtype=np.intp)
    for place, slice_numbers in enumerate(numbers_by_index):
        entry = entries.setdefault(slice_numbers, len(entries))
        if entry == len(first_indices):
            first_indices.append(place)
        entry_of_index[place] = entry
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
        pairs[first, second] = np.asarray(possible.any(axis=others))
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
