"""From a step to a run: time, GPU-hours, cost, energy."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def time_to_train(
    *, step_time: Numeric, total_tokens: Numeric, tokens_per_step: Numeric
) -> FloatArray:
    """Seconds to process ``total_tokens``, in whole steps, without restarts."""
    return np.asarray(step_time * np.ceil(np.asarray(total_tokens) / tokens_per_step))


def gpu_seconds(*, duration: Numeric, num_gpus: Numeric) -> FloatArray:
    """GPU-seconds of a run."""
    return np.asarray(duration * np.asarray(num_gpus))


def energy(*, duration: Numeric, num_gpus: Numeric, power_per_gpu: Numeric) -> FloatArray:
    """Joules that the GPUs draw at ``power_per_gpu`` [W]; hosts and cooling excluded."""
    return np.asarray(duration * np.asarray(num_gpus) * power_per_gpu)
