"""Requests in a serving engine: Little's law, waiting, and what spreads around the mean."""

from __future__ import annotations

import numpy as np

from planner.arrays import FloatArray, Numeric


def decoding_sequences(
    *, request_rate: Numeric, prefill_time: Numeric, steps: Numeric, fixed: Numeric, slope: Numeric
) -> FloatArray:
    r"""Sequences that decode at once when requests arrive at a rate, by Little's law [1]_.

    .. math:: B = \frac{\lambda n a}{1 - \lambda (w + n b)}

    A request needs n steps of ``fixed`` a + ``slope`` b times B seconds each; prefills take
    w = ``prefill_time`` of the engine's time per request. Infinite where it cannot keep up.

    References
    ----------
    .. [1] J. Little, "A proof for the queuing formula L = lambda W," Operations Research
       9(3), 1961.
    """
    left = 1 - request_rate * (prefill_time + steps * np.asarray(slope))
    with np.errstate(divide="ignore"):
        sequences = request_rate * steps * fixed / np.maximum(left, 0.0)
    return np.where(left > 0, sequences, np.inf)


def mean_wait(*, utilization: Numeric, service_time: Numeric) -> FloatArray:
    r"""Mean seconds before service of constant length at one server.

    .. math:: \frac{\rho s}{2 (1 - \rho)}

    Pollaczek and Khinchine's formula for Poisson arrivals and no spread of service.
    """
    rho = np.minimum(utilization, 1 - 1e-9)
    return np.asarray(rho * service_time / (2 * (1 - rho)))


def waiting_percentile(*, share: Numeric, utilization: Numeric, wait: Numeric) -> FloatArray:
    r"""The wait that a ``share`` q of the requests does not exceed.

    .. math:: \frac{w}{\rho} \ln \max\left(\frac{\rho}{1 - q}, 1\right)

    A share 1 - rho does not wait; of the others the wait is taken as exponential.
    """
    rho = np.clip(utilization, 1e-9, 1 - 1e-9)
    tail = np.maximum(rho / (1 - np.asarray(share)), 1.0)
    return np.asarray(wait / rho * np.log(tail))
