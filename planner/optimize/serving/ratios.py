"""How the GPUs of a disaggregated deployment are shared out."""

from __future__ import annotations

import math

import numpy as np

from planner.arrays import FloatArray

# As many as 4,096 GPUs can be shared out; of more, the shares differ by less than a per mille.
_MOST = 4096


def numbers_of_prefill(num_gpus: int, each_prefill: int, each_decode: int) -> FloatArray:
    """Numbers of prefill workers that, with some decode workers, fill all GPUs.

    ``each_prefill`` and ``each_decode`` are the GPUs of a worker. Of more than 4,096 numbers
    some are left out: half of those kept are evenly spaced, the others ever denser towards
    the fewest and the most.
    """
    step = each_decode // math.gcd(each_prefill, each_decode)
    firsts = range(1, step + 1)
    first = next((p for p in firsts if (num_gpus - p * each_prefill) % each_decode == 0), None)
    if first is None:
        return np.empty(0)
    most = (num_gpus - each_decode) // each_prefill
    return first + step * _spread(max((most - first) // step + 1, 0))


def _spread(number: int) -> FloatArray:
    """At most 4,096 of the whole numbers from 0 to ``number``, which is not among them."""
    if number <= _MOST:
        return np.arange(float(number))
    even = np.linspace(0, number - 1, _MOST // 2)
    dense = np.geomspace(1, number, _MOST // 4) - 1
    return np.unique(np.round(np.concatenate([even, dense, number - 1 - dense])))
