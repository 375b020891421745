"""Requests in a serving engine: Little's law, waiting, and what spreads around the mean."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from planner.base.arrays import FloatArray, Numeric


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


def mean_wait(
    *, utilization: Numeric, service_time: Numeric, variation: Numeric = 0.0
) -> FloatArray:
    r"""Mean seconds before service at one server.

    .. math:: \frac{\rho s (1 + c^2)}{2 (1 - \rho)}

    Pollaczek and Khinchine's formula for Poisson arrivals; c is the coefficient of
    ``variation`` of the service, 0 where it is the same for all.
    """
    rho = np.minimum(utilization, 1 - 1e-9)
    return np.asarray(rho * service_time * (1 + np.square(variation)) / (2 * (1 - rho)))


def met_step(
    *, decode_step: Numeric, load: Numeric, work: Numeric, variation: Numeric, mixes: bool
) -> FloatArray:
    r"""Mean length of the step in which a request arrives, :math:`E[T^2] / E[T]`.

    A step lasts d = ``decode_step`` and, where the engine mixes, s = ``work`` for every
    prompt that came during the step before, :math:`\rho = \lambda s` of its length on
    average. So the lengths of steps follow one another like generations of a branching
    process, with

    .. math:: E[T] = \frac{d}{1 - \rho}, \quad
        \frac{Var[T]}{E[T]} = \frac{\rho s (1 + c^2)}{1 - \rho^2}

    Where prompts have steps of their own, a share 1 - rho of the requests meets a step of d
    and the others one of prompts, of

    .. math:: \frac{s (1 + c^2) + \rho d (1 - \rho)}{1 - \rho^2}

    Derived here; tests/reference/event_replica.py holds it.
    """
    d, rho, s = decode_step, np.asarray(load), work
    second = s * (1 + np.square(variation))
    if mixes:
        return np.asarray(d / (1 - rho) + rho * second / (1 - rho**2))
    prompts = (second + rho * d * (1 - rho)) / (1 - rho**2)
    return np.asarray((1 - rho) * d + rho * prompts)


def met_step_variance(
    *, decode_step: Numeric, load: Numeric, work: Numeric, variation: Numeric, mixes: bool
) -> FloatArray:
    r"""Variance of the length of the step in which a request arrives [s^2].

    With the third cumulant of the branching process of `met_step`, of lognormal work,

    .. math:: \kappa_3 (1 - \rho^3) = \rho s^2 (1 + c^2)^3 E[T] + 3 \rho^2 s (1 + c^2) Var[T]

    and without mixing of the two kinds of steps, those of prompts as exponential.
    """
    d, rho, s = decode_step, np.asarray(load), work
    second = 1 + np.square(variation)
    met = met_step(decode_step=d, load=rho, work=s, variation=variation, mixes=mixes)
    if not mixes:
        prompts = (met - (1 - rho) * d) / np.maximum(rho, 1e-12)
        return np.asarray(rho * (1 - rho) * (prompts - d) ** 2 + rho * prompts**2)
    mean = d / (1 - rho)
    variance = mean * (met - mean)
    third = rho * s**2 * second**3 * mean + 3 * rho**2 * s * second * variance
    moment = third / (1 - rho**3) + 3 * mean * variance + mean**3
    return np.asarray(np.maximum(moment / mean - met**2, 0.0))


def running_variance(
    *, running: Numeric, load: Numeric, fixed: Numeric, slope: Numeric
) -> tuple[FloatArray, FloatArray]:
    r"""Variance of the sequences that decode at once under Poisson arrivals, and its noise.

    .. math:: Var[B] = \kappa B \frac{a + b B}{a}, \quad
        \kappa = \frac{1}{2} \left(1 + \frac{1}{(1 - \rho)^2}\right)

    The answers share a processor whose step takes a + b B: without prompts B is negative
    binomial, whatever the lengths are (Kelly's insensitivity). A prompt stops all others for
    its time, so that an arrival counts for 1 / (1 - rho) of one [1]_.

    References
    ----------
    .. [1] F. Kelly, "Reversibility and Stochastic Networks," 1979, section 3.3; the factor of
       the stops is derived here as the noise of a diffusion.
    """
    b, rho = running, np.asarray(load)
    noise = 0.5 * (1 + 1 / (1 - rho) ** 2)
    return np.asarray(noise * b * (fixed + slope * b) / fixed), np.asarray(noise)


def averaged_share(*, fixed: Numeric, step: Numeric) -> FloatArray:
    r"""Share of the variance of the running sequences that is left over the time of an answer.

    .. math:: 2 \frac{x - 1 + e^{-x}}{x^2}, \quad x = \frac{a}{a + b B}

    Their number is forgotten exponentially, at the rate x of the answer's time: the derivative
    of what leaves, of the diffusion of `running_variance`. Derived here.
    """
    x = np.clip(np.asarray(fixed) / step, 1e-3, 1.0)
    return np.asarray(2 * (x - 1 + np.exp(-x)) / x**2)


def place_wait(
    *, running: Numeric, places: Numeric, variance: Numeric, noise: Numeric, spare_rate: Numeric
) -> tuple[FloatArray, FloatArray]:
    r"""The share of the requests that wait for a place, and for how long if they do [s].

    .. math:: P = \Phi\left(-\frac{c - B}{\sigma}\right), \quad
        \tau = \frac{\kappa}{\mu - \lambda}

    The running B of c places are taken as normal. While all are taken, a queue shrinks by the
    ``spare_rate``, what the replica finishes beyond what comes. Infinite without such.
    """
    spare = np.asarray(spare_rate, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = normal_tail((places - np.asarray(running)) / np.sqrt(variance))
        time = np.where(spare > 0, noise / np.maximum(spare, 1e-300), np.inf)
    return share, np.asarray(time)


def normal_tail(score: Numeric) -> FloatArray:
    r"""The share of a normal variable that lies above a score, in two rational terms [1]_.

    .. math:: \frac{\varphi(z)}{0.661 z + 0.339 \sqrt{z^2 + 5.51}}

    References
    ----------
    .. [1] P. Borjesson and C.-E. Sundberg, "Simple approximations of the error function Q(x)
       for communications applications," IEEE Trans. Communications 27(3), 1979: within 0.3 %.
    """
    z = np.abs(np.asarray(score, dtype=np.float64))
    density = np.exp(-0.5 * np.minimum(z, 1e3) ** 2) / np.sqrt(2 * np.pi)
    tail = density / (0.661 * z + 0.339 * np.sqrt(z**2 + 5.51))
    return np.asarray(np.where(np.asarray(score) >= 0, tail, 1 - tail))


def gamma_quantile(*, share: float, mean: Numeric, variance: Numeric) -> FloatArray:
    r"""What a share of a gamma variable does not exceed, by Wilson and Hilferty's cube [1]_.

    .. math:: m \left(1 - \frac{1}{9 k} + \frac{z}{3 \sqrt{k}}\right)^3, \quad
        k = \frac{m^2}{\sigma^2}

    References
    ----------
    .. [1] E. Wilson and M. Hilferty, "The distribution of chi-square," PNAS 17, 1931.
    """
    m = np.maximum(mean, 1e-100)
    inverse = np.minimum(np.asarray(variance) / m**2, 1e4)
    root = 1 - inverse / 9 + NormalDist().inv_cdf(share) * np.sqrt(inverse) / 3
    return np.asarray(m * np.maximum(root, 0.0) ** 3)


def lognormal_quantile(*, share: float, mean: Numeric, variance: Numeric) -> FloatArray:
    r"""What a share of a lognormal variable does not exceed.

    .. math:: \frac{m}{\sqrt{1 + v}} e^{z \sqrt{\ln(1 + v)}}, \quad v = \frac{\sigma^2}{m^2}
    """
    m = np.maximum(mean, 1e-100)
    log = np.log1p(np.maximum(variance, 0.0) / m**2)
    return np.asarray(m * np.exp(NormalDist().inv_cdf(share) * np.sqrt(log) - log / 2))
