"""Time of one kernel: from its FLOPs and its bytes, or between the points of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, Numeric


def trilinear(
    axes: Sequence[FloatArray], values: FloatArray, point: Sequence[Numeric]
) -> FloatArray:
    """Interpolate ``values`` on a grid of three ascending ``axes`` linearly at ``point`` [1]_.

    Above the last point of an axis the value grows as much as the coordinate does; below the
    first it stays (derived here). ``point`` holds three coordinates of broadcastable shapes.

    References
    ----------
    .. [1] W. Press et al., "Numerical Recipes," 3rd edition, 2007, section 3.6.
    """
    cells = [_cell(axis, np.asarray(x)) for axis, x in zip(axes, point, strict=True)]
    (first, _, _), (second, _, _), (third, _, _) = cells
    _, rows, columns = values.shape
    lowest = np.asarray((first * rows + second) * columns + third)
    offsets = np.arange(2)
    corners = (offsets[:, None, None] * rows + offsets[:, None]) * columns + offsets
    # The corners come first: numpy's inner loops are then as long as there are points.
    interpolated = values.ravel()[corners.reshape(-1, *(1 for _ in lowest.shape)) + lowest]
    for half, (_, share, _) in zip((4, 2, 1), cells, strict=True):
        low, high = interpolated[:half], interpolated[half:]
        interpolated = low + share * (high - low)
    return np.asarray(interpolated[0] + sum(beyond for _, _, beyond in cells))


def _cell(axis: FloatArray, x: FloatArray) -> tuple[IndexArray, FloatArray, FloatArray]:
    """Return the grid index before ``x``, the fraction to the next point, and the excess."""
    inside = np.minimum(np.maximum(x, axis[0]), axis[-1])
    start = axis[1:-1].searchsorted(inside, side="right")
    share = (inside - axis[start]) / (axis[start + 1] - axis[start])
    return start, share, np.maximum(x - inside, 0.0)


def roofline_time(
    *,
    flops: Numeric,
    num_bytes: Numeric,
    peak_flops: Numeric,
    memory_bandwidth: Numeric,
    compute_fraction: Numeric,
    bandwidth_fraction: Numeric,
    latency: Numeric,
    sharpness: Numeric,
) -> FloatArray:
    r"""Return seconds of a kernel that computes and moves data at the same time.

    .. math:: t = t_0 + \left((F/Pe)^q + (B/Wb)^q\right)^{1/q}

    ``sharpness`` q joins the two bounds smoothly; infinity gives the classic
    roofline, the larger of the two [1]_. The q-norm form has the least error per
    parameter of nine forms on 24 million kernel timings [2]_.

    Parameters
    ----------
    flops, num_bytes : work [FLOP] and traffic [byte] of the kernel
    peak_flops, memory_bandwidth : dense peak P [FLOP/s], bandwidth W [byte/s]
    compute_fraction, bandwidth_fraction : reached shares e and b of them
    latency : t0 [s]
    sharpness : q, at least 1

    References
    ----------
    .. [1] S. Williams et al., "Roofline: an insightful visual performance model for
       multicore architectures," CACM 52(4), 2009.
    .. [2] Kernel tables of ai-dynamo/aiconfigurator, commit 095f58a.
    """
    compute = flops / (peak_flops * compute_fraction)
    traffic = num_bytes / (memory_bandwidth * bandwidth_fraction)
    q = sharpness

    longer = np.maximum(compute, traffic)
    shorter = np.minimum(compute, traffic)
    ratio = shorter / np.maximum(longer, np.finfo(np.float64).tiny)
    return np.asarray(latency + longer * (1 + ratio**q) ** (1 / np.asarray(q)))


def time_with_extra_traffic(
    *, time: Numeric, extra_time: Numeric, sharpness: Numeric
) -> FloatArray:
    r"""Return seconds of a kernel of ``time`` [s] with ``extra_time`` [s] of traffic.

    .. math:: \left(t^q + m^q\right)^{1/q}

    Derived here: joined as the bounds of `roofline_time` are, by ``sharpness`` q.
    """
    q = sharpness
    return np.asarray((np.asarray(time) ** q + np.asarray(extra_time) ** q) ** (1 / np.asarray(q)))


def memory_bound_time(
    *, num_bytes: Numeric, memory_bandwidth: Numeric, bandwidth_fraction: Numeric, latency: Numeric
) -> FloatArray:
    r"""Return seconds of a memory-bound (element-wise or reduction) kernel.

    .. math:: t_0 + \frac{B}{W b}

    Derived here: the slope of a roofline behind a latency.
    """
    return np.asarray(latency + num_bytes / (memory_bandwidth * bandwidth_fraction))


def gemm_flops(*, rows: Numeric, columns: Numeric, depth: Numeric) -> FloatArray:
    r"""Return FLOPs of ``C[m, n] = A[m, k] B[n, k]``.

    .. math:: 2 m n k

    Derived here: k products and k sums for each of m n numbers.
    """
    return np.asarray(2.0 * rows * columns * depth)


def tiled_gemm_flops(
    *,
    rows: Numeric,
    columns: Numeric,
    depth: Numeric,
    row_offset: Numeric,
    column_offset: Numeric,
    depth_offset: Numeric,
    area_floor: Numeric,
) -> FloatArray:
    r"""Return effective FLOPs of a GEMM, with the padding of its tiles.

    .. math:: 2 \left((m + m_0) (n + n_0) + A_0\right) (k + k_0)

    Derived here: offsets stand for tiles that are not full, the floor for what few leave idle.
    """
    area = (rows + row_offset) * (np.asarray(columns) + column_offset) + area_floor
    return np.asarray(2.0 * area * (np.asarray(depth) + depth_offset))
