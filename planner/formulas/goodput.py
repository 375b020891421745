"""From failures to calendar time: rates, checkpoints, what is lost, what is left."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric

LEAST_RATIO = 1e-12
"""Runs that would reach less never end in practice; keeping above it keeps times finite."""

_NEWTON_STEPS = 5


def interruption_rate(
    *, num_gpus: Numeric, gpu_time_per_interruption: Numeric, gpu_time_per_preemption: Numeric
) -> FloatArray:
    r"""Return interruptions per second of a job that any GPU failure stops.

    .. math:: \lambda = N \left(\frac{1}{f} + \frac{1}{p}\right)

    ``gpu_time_per_interruption`` f [s] and ``gpu_time_per_preemption`` p [s] are GPU-seconds,
    infinite where there are none. The rate grows in proportion to the GPUs, as measured from
    1,024 of them on [1]_.

    References
    ----------
    .. [1] A. Kokolis et al., "Revisiting reliability in large-scale machine learning research
       clusters," 2024, arXiv:2410.21680.
    """
    f, p = np.asarray(gpu_time_per_interruption), np.asarray(gpu_time_per_preemption)
    return np.asarray(num_gpus * (1 / f + 1 / p))


def checkpoint_bytes(
    *, trained_parameters: Numeric, weight_bytes: Numeric, optimizer_bytes: Numeric
) -> FloatArray:
    r"""Return bytes of a checkpoint: trained weights and optimizer states, no gradients.

    .. math:: P (w + o)

    ``weight_bytes`` w and ``optimizer_bytes`` o are those per parameter. Frozen weights are
    not written again.

    Derived here.
    """
    return np.asarray(trained_parameters * (np.asarray(weight_bytes) + optimizer_bytes))


def checkpoint_time(
    *,
    checkpoint_size: Numeric,
    num_nodes: Numeric,
    bandwidth_per_node: Numeric,
    total_bandwidth: Numeric,
) -> FloatArray:
    r"""Return seconds to write or read a checkpoint: node bandwidth, or the storage limit.

    .. math:: \frac{S}{\min(n b, B)}

    ``bandwidth_per_node`` b and ``total_bandwidth`` B [byte/s] are infinite where unlimited.

    Derived here.
    """
    together = np.asarray(num_nodes, dtype=np.float64) * bandwidth_per_node
    return np.asarray(checkpoint_size / np.minimum(together, total_bandwidth))


def optimal_interval(*, blocking_time: Numeric, write_time: Numeric, rate: Numeric) -> FloatArray:
    r"""Return seconds of training between checkpoints that minimize the lost time.

    The minimum of the expected time of a run, the product of `training_time_parts`:

    .. math:: \left(1 - \lambda\tau\right) e^{\lambda (\tau + \delta)} = 1

    ``blocking_time`` δ [s] is what a checkpoint stops training for. Near
    :math:`\sqrt{2 \delta / \lambda}` for small λδ [1]_, with Daly's higher orders included [2]_.
    A checkpoint is never begun before the last is written: :math:`\tau + \delta` is at least
    ``write_time`` [s]. Infinite without interruptions. Not rounded to whole steps: near the
    minimum a step more or less loses nothing.

    References
    ----------
    .. [1] J. W. Young, "A first order approximation to the optimum checkpoint interval,"
       Communications of the ACM 17 (9), 1974.
    .. [2] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
       dumps," Future Generation Computer Systems 22 (3), 2006, equation 20 and after.
    """
    delta, lam = np.asarray(blocking_time), np.asarray(rate)
    a = lam * delta
    # x = λτ is the root of x + expm1(-(x + a)); the start is never below it, so that Newton's
    # steps fall towards it.
    x = np.minimum(np.sqrt(2 * a), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_NEWTON_STEPS):
            slope = -np.expm1(-(x + a))
            x = np.where(a > 0, x - (x - slope) / slope, 0.0)
        interval = np.where(lam > 0, x / lam, np.inf)
    return np.asarray(np.maximum(interval, np.asarray(write_time) - delta))


def training_time_parts(
    *,
    interval: Numeric,
    blocking_time: Numeric,
    write_time: Numeric,
    recovery_time: Numeric,
    rate: Numeric,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Return shares of time left after checkpoints, repeated work and recoveries.

    .. math::
       \frac{\tau}{\tau + \delta}, \quad
       \frac{\lambda (\tau + \delta)}{e^{\lambda (\tau + \delta)} - 1} e^{-\lambda (w - \delta)},
       \quad e^{-\lambda R}

    whose product is

    .. math::
       \frac{\lambda\tau}{e^{\lambda (R + w - \delta)}\left(e^{\lambda(\tau+\delta)} - 1\right)}

    ``interval`` τ, ``blocking_time`` δ, ``write_time`` w (from the start of a checkpoint until
    it can be used) and ``recovery_time`` R in seconds; ``rate`` λ per second. Failures come at
    any time, during checkpoints and recoveries too. With w = δ, checkpoints that stop training
    until they are written, the product is Daly's exact form [1]_; where training goes on
    meanwhile, a failure within w - δ falls back to the checkpoint before (derived here: the first
    checkpoint after a restart counts once the job lived for τ + w, each further one τ + δ later).

    References
    ----------
    .. [1] J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart
       dumps," Future Generation Computer Systems 22 (3), 2006, equation 13.
    """
    tau, delta, lam = np.asarray(interval), np.asarray(blocking_time), np.asarray(rate)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        checkpoints = np.where(delta > 0, 1 / (1 + delta / tau), 1.0)
        lost = np.where(lam > 0, lam * (tau + delta), 0.0)
        again = np.where(lost > 0, lost / np.expm1(lost), 1.0)
        again = again * np.exp(-lam * (np.asarray(write_time) - delta))
        recoveries = np.exp(-lam * np.asarray(recovery_time))
    return checkpoints, again, recoveries


def effective_training_time_ratio(*parts: Numeric) -> FloatArray:
    r"""Return the share of wall-clock time with lasting progress (goodput).

    .. math:: \prod_i g_i

    ``parts`` are the shares that each cause leaves of the time: those of `training_time_parts`,
    and `straggler_ratio`. Never below ``LEAST_RATIO``.

    Derived here: each cause takes its share of what the others leave.
    """
    ratio = np.prod(np.broadcast_arrays(*parts), axis=0)
    return np.asarray(np.maximum(ratio, LEAST_RATIO))


def straggler_ratio(
    *,
    num_gpus: Numeric,
    gpu_time_per_slowdown: Numeric,
    slowdown_duration: Numeric,
    lost_share: Numeric,
) -> FloatArray:
    r"""Return the share of full speed if the slowest GPU sets the pace of all.

    .. math:: 1 - l \left(1 - e^{-N d / h}\right)

    A GPU or its links turn slow once in ``gpu_time_per_slowdown`` h [GPU-s], for
    ``slowdown_duration`` d [s]; the job then loses ``lost_share`` l of its speed. Slowdowns that
    come independently leave no GPU slow with the probability exp(-N d / h), whatever the
    distribution of their durations: none is in progress in a queue M/G/∞ [1]_.

    References
    ----------
    .. [1] S. Ross, "Stochastic Processes," 2nd edition, Wiley, 1996, example 2.3(B).
    """
    n, d, h = np.asarray(num_gpus), np.asarray(slowdown_duration), gpu_time_per_slowdown
    return np.asarray(1 + lost_share * np.expm1(-n * d / np.asarray(h)))


def calendar_time(*, duration: Numeric, goodput: Numeric) -> FloatArray:
    r"""Return calendar seconds of a run that takes ``duration`` seconds uninterrupted.

    .. math:: t / g

    Derived here: goodput g is time that makes progress over time.
    """
    return np.asarray(duration / np.asarray(goodput))


def spare_gpus(*, num_gpus: Numeric, gpus_per_node: Numeric, spare_share: Numeric) -> FloatArray:
    r"""Return spare GPUs in full nodes of m GPUs; 0 if the share is below one node.

    .. math:: m \lfloor s N / m \rfloor

    Derived here.
    """
    n, m = np.asarray(num_gpus), np.asarray(gpus_per_node)
    return np.asarray(m * np.floor(spare_share * n / m))
