"""Pipeline schedules: bubble, micro-batches in flight, layers per stage."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric


def bubble_time_1f1b(
    *, all_stages: Numeric, slowest_stage: Numeric, virtual_pipeline: Numeric
) -> FloatArray:
    r"""Return idle seconds per step of the slowest stage in a 1F1B pipeline (bubble).

    .. math:: \frac{T - t}{v}

    T is the time of one micro-batch on all stages together, t on the slowest one.

    Derived here of equal stages [1]_.

    References
    ----------
    .. [1] D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using
       Megatron-LM," 2021, arXiv:2104.04473, section 2.2.2.
    """
    return np.asarray((all_stages - slowest_stage) / np.asarray(virtual_pipeline, np.float64))


def zero_bubble_time(
    *, all_stages: Numeric, slowest_stage: Numeric, all_weights: Numeric, slowest_weights: Numeric
) -> FloatArray:
    r"""Return idle seconds per step if weight gradients fill the bubble (ZB-H1) [1]_ [2]_.

    .. math:: (T - 2 W) - (t - 2 w), \quad (p - 1)(F + B - 2 W)\ \text{for equal stages}

    W of T, on all stages, and w of t, on the slowest, make gradients of weights: B without W
    is what other stages wait for, and W fills as much.

    References
    ----------
    .. [1] P. Qi et al., "Zero bubble pipeline parallelism," 2024, arXiv:2401.10241, table 2.
    .. [2] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437, table 2.
    """
    rest = (all_stages - slowest_stage) - 2 * (np.asarray(all_weights) - slowest_weights)
    return np.maximum(rest, 0.0)


def dualpipe_bubble_time(
    *, stages: Numeric, mean_stage: Numeric, mean_backward: Numeric, mean_weights: Numeric
) -> FloatArray:
    r"""Return idle seconds per step with micro-batches from both ends (DualPipe) [1]_.

    .. math:: \left(\frac{p}{2} - 1\right) (F\&B + B - 3 W)

    F&B is a forward and a backward pass side by side, B a backward pass, W that part of it that
    makes gradients of weights, of a mean stage.

    References
    ----------
    .. [1] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437, table 2.
    """
    each = mean_stage + mean_backward - 3 * np.asarray(mean_weights)
    return np.maximum((np.asarray(stages) / 2 - 1) * each, 0.0)


def micro_batches_in_flight(
    *,
    pipeline_parallel: Numeric,
    virtual_pipeline: Numeric,
    num_micro_batches: Numeric,
    stage: Numeric = 0.0,
    from_both_ends: bool | BoolArray = False,
) -> FloatArray:
    r"""Return how many of m micro-batches have activations on pipeline stage r at once.

    .. math::

       \min(m, p - r), \quad v > 1 :
       \min\left(m, \frac{2 (p - r - 1) + (v - 1) p + 1}{v}\right)

    The first is 1F1B. The interleaved schedule warms up with
    2(p-r-1) + (v-1)p chunks of 1/v stage: p (1 + (p-1)/(p v)) on the first stage [1]_.
    Micro-batches ``from_both_ends`` of the pipeline (DualPipe) are p + 1 on every stage [2]_.

    References
    ----------
    .. [1] V. Korthikanti et al., "Reducing activation recomputation in large transformer
       models," 2022, arXiv:2205.05198, section 4.2.3.
    .. [2] DeepSeek-AI, "DeepSeek-V3 technical report," 2024, arXiv:2412.19437, table 2.
    """
    p, v, r = pipeline_parallel, np.asarray(virtual_pipeline, dtype=np.float64), stage
    interleaved = (2 * (p - r - 1) + (v - 1) * p + 1) / v
    of_schedule = np.where(v > 1, interleaved, p - r)
    if np.any(from_both_ends):
        of_schedule = np.where(from_both_ends, p + 1, of_schedule)
    return np.minimum(num_micro_batches, of_schedule)


def sequential_bubble_time(
    *, all_stages: Numeric, slowest_stage: Numeric, num_micro_batches: Numeric
) -> FloatArray:
    r"""Return idle seconds per step of the slowest stage if stages run one at a time.

    .. math:: m (T - t)

    Every one of m micro-batches passes all stages, which last T together, before the next one
    starts; t is the slowest stage.

    Derived here.
    """
    return np.asarray(num_micro_batches * (np.asarray(all_stages) - slowest_stage))
