"""Pipeline schedules: bubble, micro-batches in flight, layers per stage."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def bubble_time(
    *, all_stages: Numeric, slowest_stage: Numeric, virtual_pipeline: Numeric
) -> FloatArray:
    r"""Idle time of the slowest stage while the pipeline fills and drains.

    .. math:: \frac{T - t}{v}

    T is the time of one micro-batch on all stages together, t on the slowest one.
    """
    return np.asarray((all_stages - slowest_stage) / np.asarray(virtual_pipeline, np.float64))


def bubble_micro_batches(*, pipeline_parallel: Numeric, virtual_pipeline: Numeric) -> FloatArray:
    r"""The bubble of equal stages in units of their time per micro-batch [1]_.

    .. math:: \frac{p - 1}{v}

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient large-scale language model training on GPU
       clusters using Megatron-LM," 2021, arXiv:2104.04473, section 2.2.
    """
    return bubble_time(
        all_stages=pipeline_parallel, slowest_stage=1.0, virtual_pipeline=virtual_pipeline
    )


def bubble_fraction(
    *, pipeline_parallel: Numeric, virtual_pipeline: Numeric, num_micro_batches: Numeric
) -> FloatArray:
    r"""Bubble over ideal time.

    .. math:: \frac{p - 1}{v m}
    """
    bubble = bubble_micro_batches(
        pipeline_parallel=pipeline_parallel, virtual_pipeline=virtual_pipeline
    )
    return np.asarray(bubble / num_micro_batches)


def micro_batches_in_flight(
    *,
    pipeline_parallel: Numeric,
    virtual_pipeline: Numeric,
    num_micro_batches: Numeric,
    stage: Numeric = 0.0,
) -> FloatArray:
    r"""Micro-batches whose activations a stage r holds at once, of m.

    .. math::

       \min(m, p - r), \quad v > 1 :
       \min\left(m, \frac{2 (p - r - 1) + (v - 1) p + 1}{v}\right)

    The first is 1F1B. The interleaved schedule warms up with
    2(p-r-1) + (v-1)p chunks of 1/v stage: p (1 + (p-1)/(p v)) on the first stage [1]_.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing activation recomputation in large transformer
       models," 2022, arXiv:2205.05198, section 4.2.3.
    """
    p, v, r = pipeline_parallel, np.asarray(virtual_pipeline, dtype=np.float64), stage
    interleaved = (2 * (p - r - 1) + (v - 1) * p + 1) / v
    return np.minimum(num_micro_batches, np.where(v > 1, interleaved, p - r))


def turns_time(
    *, all_stages: Numeric, slowest_stage: Numeric, num_micro_batches: Numeric
) -> FloatArray:
    r"""Idle time of the slowest stage where stages take turns.

    .. math:: m (T - t)

    Every one of m micro-batches passes all stages, which last T together, before the next one
    starts; t is the slowest stage.
    """
    return np.asarray(num_micro_batches * (np.asarray(all_stages) - slowest_stage))
