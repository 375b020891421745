"""Communication behind computation: what of it shows."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric


def exposed_time(
    *, communication: Numeric, computation: Numeric, interference: Numeric
) -> FloatArray:
    r"""Seconds that communication n adds to the computation c it runs beside.

    .. math:: \max(n, c) + g \min(n, c) - c = n - (1 - g) \min(n, c)

    Each slows the other by the ``interference`` g, the share of multiprocessors and bandwidth
    they contend for.
    """
    n, c = communication, computation
    return n - (1 - interference) * np.minimum(n, c)


def partly_hidden(*, communication: Numeric, hidden: Numeric) -> FloatArray:
    r"""Seconds that show when a share ``hidden`` of a transfer is pipelined with a kernel.

    .. math:: n (1 - h)
    """
    return np.asarray(communication * (1 - np.asarray(hidden)))
