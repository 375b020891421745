"""How the GPUs of a disaggregated deployment are shared out."""

from __future__ import annotations

import math

import numpy as np

from planner.base.arrays import FloatArray

_EVERY_WAY_UP_TO = 4096
# Then neighbours differ by 0.8 % of all GPUs, far less than predictions are off.
_MOST_WAYS = 256


def numbers_of_prefill(num_gpus: int, each_prefill: int, each_decode: int) -> FloatArray:
    """Numbers of prefill workers that, with some decode workers, fill all GPUs.

    ``each_prefill`` and ``each_decode`` are the GPUs of a worker. Of more than 4,096 GPUs at
    most 256 numbers are kept: half of them evenly spaced, the others ever denser towards
    the fewest and the most.
    """
    step = each_decode // math.gcd(each_prefill, each_decode)
    firsts = range(1, step + 1)
    first = next((p for p in firsts if (num_gpus - p * each_prefill) % each_decode == 0), None)
    if first is None:
        return np.empty(0)
    most = (num_gpus - each_decode) // each_prefill
    number = max((most - first) // step + 1, 0)
    thinned = num_gpus > _EVERY_WAY_UP_TO and number > _MOST_WAYS
    return first + step * (_spread(number) if thinned else np.arange(float(number)))


def _spread(number: int) -> FloatArray:
    """Some of the whole numbers from 0 to ``number``, which is not among them."""
    even = np.linspace(0, number - 1, _MOST_WAYS // 2)
    dense = np.geomspace(1, number, _MOST_WAYS // 4) - 1
    return np.unique(np.round(np.concatenate([even, dense, number - 1 - dense])))
