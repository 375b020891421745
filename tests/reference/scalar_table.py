"""Products of a GPU's table of measured kernels, one at a time."""

from __future__ import annotations

import csv
import math
from functools import cache
from pathlib import Path
from statistics import median

KERNELS = Path(__file__).parents[2] / "hardware_specs" / "kernels"
Sizes = tuple[int, int, int]


@cache
def _times(name: str) -> tuple[dict[Sizes, float], tuple[list[int], ...]]:
    """FLOPs at the rate of large products that take as long, between smaller and larger ones."""
    with (KERNELS / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    share = {
        (int(row["rows"]), int(row["columns"]), int(row["depth"])): float(row["share"])
        for row in rows
    }
    usual = median(value for sizes, value in share.items() if min(sizes) >= 4096)
    axes = tuple(sorted({sizes[axis] for sizes in share}) for axis in range(3))
    raw = {sizes: 2 * math.prod(sizes) * usual / value for sizes, value in share.items()}
    least: dict[Sizes, float] = {}
    for sizes in sorted(raw):
        beside = [_beside(axes, sizes, axis, -1) for axis in range(3)]
        least[sizes] = max(raw[sizes], *(least[less] for less in beside if less), 0.0)
    most: dict[Sizes, float] = {}
    for sizes in sorted(raw, reverse=True):
        beside = [_beside(axes, sizes, axis, 1) for axis in range(3)]
        most[sizes] = min(raw[sizes], *(most[more] for more in beside if more), math.inf)
    return {sizes: math.sqrt(least[sizes] * most[sizes]) for sizes in raw}, axes


def _beside(axes: tuple[list[int], ...], sizes: Sizes, axis: int, step: int) -> Sizes | None:
    place = axes[axis].index(sizes[axis]) + step
    if not 0 <= place < len(axes[axis]):
        return None
    other = list(sizes)
    other[axis] = axes[axis][place]
    return other[0], other[1], other[2]


def tabulated_flops(name: str, *sizes: float) -> float:
    """Geometric interpolation along rows, then columns, then depth."""
    times, axes = _times(name)

    def along(axis: int, fixed: tuple[int, ...]) -> float:
        if axis == len(axes):
            return math.log(times[fixed[0], fixed[1], fixed[2]])
        points, size = axes[axis], sizes[axis]
        beyond = math.log(max(size / points[-1], 1.0))
        size = min(max(size, points[0]), points[-1])
        above = next(index for index in range(1, len(points)) if size <= points[index])
        low, high = points[above - 1], points[above]
        share = math.log(size / low) / math.log(high / low)
        ends = [along(axis + 1, (*fixed, end)) for end in (low, high)]
        return beyond + (1 - share) * ends[0] + share * ends[1]

    return math.exp(along(0, ()))
