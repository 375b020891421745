"""From a step of d tokens to a run of D: time t, GPU-hours on n GPUs."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def time_to_train(
    *, step_time: Numeric, total_tokens: Numeric, tokens_per_step: Numeric
) -> FloatArray:
    r"""Seconds to process ``total_tokens``, in whole steps, without restarts.

    .. math:: t \lceil D / d \rceil
    """
    return np.asarray(step_time * np.ceil(np.asarray(total_tokens) / tokens_per_step))


def gpu_seconds(*, duration: Numeric, num_gpus: Numeric) -> FloatArray:
    r"""GPU-seconds of a run.

    .. math:: t n
    """
    return np.asarray(duration * np.asarray(num_gpus))
