"""Matrix products measured on a grid of sizes: ``hardware_specs/kernels/NAME.csv``."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.reading import TABLE
from planner.base.records import record
from planner.errors import SpecError, did_you_mean
from planner.specs.cache import kept, stamp
from planner.specs.load import read_text
from planner.specs.paths import kernel_folders, listing

COLUMNS = "rows,columns,depth,share"
_LARGE = 4096


@record(kw_only=True, eq=False)
class GemmTable:
    """What products of each size take, as that of large products.

    ``sizes``: logarithms of rows, columns and depth, ascending; ``work``: logarithm of the FLOPs
    that take as long at the median rate of products all of whose sizes are at least 4,096. It
    grows with each size.
    """

    sizes: tuple[FloatArray, FloatArray, FloatArray]
    work: FloatArray


def gemm_table_file(name: str, where: str, folder: Path | None = None) -> Path:
    """The file of a table that the GPU file ``where`` names as ``gemm_table``.

    Raises
    ------
    SpecError
        There is none.
    """
    places = kernel_folders(folder)
    for place in places:
        path = place / f"{name}.csv"
        if stamp(path) and os.path.isfile(path):
            return path
    known = [path.stem for place in places for path in listing(place, ".csv")]
    raise SpecError(
        f"{where}: efficiency.gemm_table {name!r} is unknown: there is no {name}.csv in "
        f"{' or '.join(map(str, places))}.{did_you_mean(name, known)}"
    )


def load_gemm_table(name: str, where: str, folder: Path | None = None) -> GemmTable:
    """The table that the GPU ``where`` names.

    Raises
    ------
    SpecError
        There is none, or it is not a full grid of positive numbers.
    """
    return read_gemm_table(gemm_table_file(name, where, folder))


@kept
def read_gemm_table(path: Path) -> GemmTable:
    """The table of a file, read once.

    Raises
    ------
    SpecError
        It is not a full grid of positive numbers.
    """
    try:
        header, *lines = read_text(path, TABLE).splitlines() or [""]
        if header.strip() != COLUMNS:
            raise SpecError(f"{path}:1: the first line must be {COLUMNS}.")
        if not lines:
            raise SpecError(f"{path}: has no products.")
        values = np.loadtxt(lines, delimiter=",", ndmin=2)
    except ValueError as error:
        raise SpecError(f"{path}: cannot be read: {str(error).rstrip('.')}.") from error
    if values.shape[1] != len(COLUMNS.split(",")) or not np.all(values > 0):
        raise SpecError(f"{path}: every line must have four positive numbers.")
    axes = [np.array(sorted(set(column))) for column in values[:, :3].T.tolist()]
    shape = tuple(len(axis) for axis in axes)
    indices = [np.searchsorted(axis, values[:, i]) for i, axis in enumerate(axes)]
    share = np.full(shape, np.nan)
    share[tuple(indices)] = values[:, 3]
    if len(values) != share.size or np.any(np.isnan(share)) or min(shape) < 2:
        raise SpecError(f"{path}: must have each combination of its rows, columns and depths once.")
    return _of_shares(axes, share)


def _of_shares(axes: list[FloatArray], share: FloatArray) -> GemmTable:
    rows, columns, depth = np.meshgrid(*axes, indexing="ij")
    large = np.minimum(np.minimum(rows, columns), depth) >= _LARGE
    usual = _median(share[large]) if np.any(large) else np.max(share)
    work = np.log(2 * rows * columns * depth * usual / share)
    work = (_growing(work) + _growing(work, from_large=True)) / 2
    first, second, third = (np.log(axis) for axis in axes)
    return GemmTable(sizes=(first, second, third), work=work)


def _growing(work: FloatArray, from_large: bool = False) -> FloatArray:
    """No less than at any smaller size, or no more than at any larger one."""
    for axis in range(3):
        if from_large:
            work = np.flip(np.minimum.accumulate(np.flip(work, axis), axis=axis), axis)
        else:
            work = np.maximum.accumulate(work, axis=axis)
    return work


def _median(values: FloatArray) -> float:
    # That of numpy imports its masked arrays, which takes longer than to read a table.
    ordered, half = np.sort(values), values.size // 2
    return float(ordered[half] + ordered[~half]) / 2
