"""Time of one kernel from its FLOPs and its bytes."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric


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
    r"""Seconds of a kernel that computes and moves data at the same time.

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


def with_more_traffic(*, time: Numeric, more: Numeric, sharpness: Numeric) -> FloatArray:
    r"""Seconds of a kernel of ``time`` t that has traffic of ``more`` m seconds beside it.

    .. math:: \left(t^q + m^q\right)^{1/q}

    Derived here: joined as the bounds of `roofline_time` are, by ``sharpness`` q.
    """
    q = sharpness
    return np.asarray((np.asarray(time) ** q + np.asarray(more) ** q) ** (1 / np.asarray(q)))


def memory_bound_time(
    *, num_bytes: Numeric, memory_bandwidth: Numeric, bandwidth_fraction: Numeric, latency: Numeric
) -> FloatArray:
    r"""Seconds of an elementwise or reduction kernel.

    .. math:: t_0 + \frac{B}{W b}

    Derived here: the slope of a roofline behind a latency.
    """
    return np.asarray(latency + num_bytes / (memory_bandwidth * bandwidth_fraction))


def gemm_flops(*, rows: Numeric, columns: Numeric, depth: Numeric) -> FloatArray:
    r"""FLOPs of ``C[m, n] = A[m, k] B[n, k]``.

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
    r"""FLOPs that a GEMM pays for in tiles.

    .. math:: 2 \left((m + m_0) (n + n_0) + A_0\right) (k + k_0)

    Derived here: offsets stand for tiles that are not full, the floor for what few leave idle.
    """
    area = (rows + row_offset) * (np.asarray(columns) + column_offset) + area_floor
    return np.asarray(2.0 * area * (np.asarray(depth) + depth_offset))
