"""What runs beside something else: what of it shows."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def exposed_time(
    *, communication: Numeric, computation: Numeric, interference: Numeric
) -> FloatArray:
    """Seconds that communication adds to the computation it runs beside.

    Together they take ``max(n, c) + g min(n, c)``: each slows the other by the
    ``interference`` g, the share of multiprocessors and bandwidth they contend for.
    """
    n, c = communication, computation
    return n - (1 - interference) * np.minimum(n, c)


def partly_hidden(*, communication: Numeric, hidden: Numeric) -> FloatArray:
    """Seconds that show when a share ``hidden`` of a transfer is pipelined with a kernel."""
    return np.asarray(communication * (1 - np.asarray(hidden)))


def launched_time(*, launches: Numeric, kernels: Numeric) -> FloatArray:
    """Seconds of kernels that take ``kernels`` and that the host needs ``launches`` to launch.

    The slower of the two sets the pace. Where they are close each waits for the other now and
    then: ``(l^8 + k^8)^(1/8)``, 9 % over either where they are equal. The exponent is chosen
    on VIA-Research/vTrain (A100), whose runs lie on both sides.
    """
    eighth_powers = np.asarray(launches, dtype=np.float64) ** 8 + np.asarray(kernels) ** 8
    return np.asarray(np.sqrt(np.sqrt(np.sqrt(eighth_powers))))
