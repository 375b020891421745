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
    """FLOPs at the rate of large products that take as long as each, never less than a smaller."""
    with (KERNELS / f"{name}.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    share = {
        (int(row["rows"]), int(row["columns"]), int(row["depth"])): float(row["share"])
        for row in rows
    }
    usual = median(value for sizes, value in share.items() if min(sizes) >= 4096)
    axes = tuple(sorted({sizes[axis] for sizes in share}) for axis in range(3))
    raw = {sizes: 2 * math.prod(sizes) * usual / value for sizes, value in share.items()}
    found: dict[Sizes, float] = {}
    for sizes in sorted(raw):
        smaller = [_one_less(axes, sizes, axis) for axis in range(3)]
        found[sizes] = max(raw[sizes], *(found[less] for less in smaller if less), 0.0)
    return found, axes


def _one_less(axes: tuple[list[int], ...], sizes: Sizes, axis: int) -> Sizes | None:
    place = axes[axis].index(sizes[axis])
    if not place:
        return None
    less = list(sizes)
    less[axis] = axes[axis][place - 1]
    return less[0], less[1], less[2]


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
