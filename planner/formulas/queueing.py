"""Queueing in a serving engine: Little's law, queueing delay, and variances around the mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, Numeric

_RATE_ROUNDS = 12
_NUMBER_ROUNDS = 12
_SETTLED_GAP = 1e-10
# A secant that encloses nothing leads so many times as far as what is lacking, no more.
_FARTHEST = 30.0
_POOL_ROUNDS = 30
_SERVER_ROUNDS = 6
_SETTLED = 1e-12
_BUSIEST = 0.8


def mean_queueing_delay(
    *, utilization: Numeric, service_time: Numeric, variation: Numeric = 0.0, bursts: Numeric = 1.0
) -> FloatArray:
    r"""Return the mean queueing delay before service at one server [s].

    .. math:: \frac{\rho s (c_a^2 + c^2)}{2 (1 - \rho)}

    Pollaczek and Khinchine's formula for Poisson arrivals [1]_, where ``bursts``
    :math:`c_a^2` is 1, and Allen and Cunneen's for others [2]_; c is the coefficient of
    ``variation`` of the service time, 0 for equal requests.

    References
    ----------
    .. [1] L. Kleinrock, "Queueing Systems, volume 1," Wiley, 1975, chapter 5.
    .. [2] A. Allen, "Probability, Statistics and Queueing Theory," 2nd ed., Academic Press, 1990,
       section 6.2.
    """
    rho = np.minimum(utilization, 1 - 1e-9)
    return np.asarray(rho * service_time * (bursts + np.square(variation)) / (2 * (1 - rho)))


def fifo_queueing_delays(*, times: FloatArray, service: FloatArray) -> FloatArray:
    r"""Return the queueing delay [s] of each request at one first-come-first-served server.

    .. math:: W_n = X_n - \min_{k \le n} X_k, \quad X_n = \sum_{i < n} (s_i - u_i)

    Lindley's recursion [1]_ as a sum reflected at zero, u the gaps between the ``times``.

    Parameters
    ----------
    times, service : array
        Arrival and service time of each request, in order [s].

    References
    ----------
    .. [1] D. Lindley, "The theory of queues with a single server," 1952, Proceedings of the
       Cambridge Philosophical Society 48(2).
    """
    steps = np.concatenate([[0.0], service[:-1] - np.diff(times)])
    left = np.cumsum(steps)
    return np.asarray(left - np.minimum(np.minimum.accumulate(left), 0.0))


def queueing_delay_variance(*, mean_wait: Numeric, load: Numeric) -> FloatArray:
    r"""Return the variance [s^2] of a queueing delay with mean ``mean_wait`` w [s].

    .. math:: w^2 \left(\frac{2}{\rho} - 1\right)

    A share of the requests waits, the ``load``, exponentially. Derived here.
    """
    return np.asarray(np.asarray(mean_wait) ** 2 * (2 / np.asarray(load) - 1))


def step_time_at_arrival(
    *, decode_step: Numeric, load: Numeric, work: Numeric, variation: Numeric, mixes: bool
) -> FloatArray:
    r"""Return the mean length of the step in which a request arrives, E[T^2] / E[T] [s].

    A step lasts d = ``decode_step`` and, if ``mixes``, s = ``work`` for every
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


def step_time_variance_at_arrival(
    *,
    decode_step: Numeric,
    load: Numeric,
    work: Numeric,
    variation: Numeric,
    mixes: bool,
) -> FloatArray:
    r"""Return the variance of the step length that an arriving request meets [s^2].

    With the third cumulant of the branching process of `step_time_at_arrival`, of lognormal work,

    .. math:: \kappa_3 (1 - \rho^3) = \rho s^2 (1 + c^2)^3 E[T] + 3 \rho^2 s (1 + c^2) Var[T]

    and without mixing of the two kinds of steps, those of prompts as exponential.

    Derived here.
    """
    d, rho, s = decode_step, np.asarray(load), work
    second = 1 + np.square(variation)
    mean_at_arrival = step_time_at_arrival(
        decode_step=d, load=rho, work=s, variation=variation, mixes=mixes
    )
    if not mixes:
        prompts = (mean_at_arrival - (1 - rho) * d) / np.maximum(rho, 1e-12)
        return np.asarray(rho * (1 - rho) * (prompts - d) ** 2 + rho * prompts**2)
    mean = d / (1 - rho)
    variance = mean * (mean_at_arrival - mean)
    third = rho * s**2 * second**3 * mean + 3 * rho**2 * s * second * variance
    moment = third / (1 - rho**3) + 3 * mean * variance + mean**3
    return np.asarray(np.maximum(moment / mean - mean_at_arrival**2, 0.0))


def mean_residual(*, mean: Numeric, variation: Numeric) -> FloatArray:
    r"""Return the mean rest of a quantity at a random time, equal to its mean age.

    .. math:: \frac{E[X^2]}{2 E[X]} = \frac{m (1 + c^2)}{2}

    A long one is met the more often: the mean excess of a renewal process [1]_; c is the
    coefficient of ``variation``.

    References
    ----------
    .. [1] H. Tijms, "A First Course in Stochastic Models," Wiley, 2003, section 2.1, equations
       2.1.6 and 2.1.7 for a time without end.
    """
    return np.asarray(mean * (1 + variation**2) / 2)


def arrival_noise(*, load: Numeric, bursts: Numeric = 1.0) -> FloatArray:
    r"""Return variance over mean of the number of sequences that decode together.

    .. math:: \kappa = \frac{1}{2} \left(1 + \frac{c_a^2}{(1 - \rho)^2}\right)

    One half for the answers that end; a prompt stops all others for its time, so that an arrival
    counts for 1 / (1 - rho) of one, and varies with :math:`c_a^2`, the ``bursts`` that are 1 of
    arrivals at random. Derived here, as the noise of a diffusion.
    """
    return np.asarray(0.5 * (1 + bursts / (1 - np.asarray(load)) ** 2))


def running_variance(
    *, running: Numeric, load: Numeric, fixed: Numeric, slope: Numeric, bursts: Numeric = 1.0
) -> tuple[FloatArray, FloatArray]:
    r"""Return the variance of the number of decoding sequences, and `arrival_noise`.

    .. math:: Var[B] = \kappa B \frac{a + b B}{a}, \quad
        \kappa = \frac{1}{2} \left(1 + \frac{1}{(1 - \rho)^2}\right)

    The answers share a processor whose step takes a + b B: without prompts B is negative
    binomial, whatever the lengths are (Kelly's insensitivity [1]_); prompts add `arrival_noise`.

    References
    ----------
    .. [1] F. Kelly, "Reversibility and Stochastic Networks," 1979, section 3.3.
    """
    b, noise = running, arrival_noise(load=load, bursts=bursts)
    return np.asarray(noise * b * (fixed + slope * b) / fixed), noise


def averaged_share(*, fixed: Numeric, step: Numeric) -> FloatArray:
    r"""Return the share of the variance in running sequences that an answer's mean retains.

    .. math:: 2 \frac{x - 1 + e^{-x}}{x^2}, \quad x = \frac{a}{a + b B}

    Their number is forgotten exponentially, at the rate x of the answer's time: the derivative
    of what leaves, of the diffusion of `running_variance`. Derived here.
    """
    x = np.clip(np.asarray(fixed) / step, 1e-3, 1.0)
    return np.asarray(2 * (x - 1 + np.exp(-x)) / x**2)


def slot_queueing_delay(
    *, running: Numeric, slots: Numeric, variance: Numeric, noise: Numeric, spare_rate: Numeric
) -> tuple[FloatArray, FloatArray]:
    r"""Return the share of requests that wait for a decode slot, and their mean wait [s].

    .. math:: P = \Phi\left(-\frac{c - B}{\sigma}\right), \quad
        \tau = \frac{\kappa}{\mu - \lambda}

    The running B of c slots are taken as normal. While all are taken, a queue shrinks by the
    ``spare_rate``, by which the replica finishes more requests than arrive. Infinite without it.

    Derived here, of the diffusion of `running_variance`.
    """
    spare = np.asarray(spare_rate, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = normal_tail((slots - np.asarray(running)) / np.sqrt(variance))
        time = np.where(spare > 0, noise / np.maximum(spare, 1e-300), np.inf)
    return share, np.asarray(time)


def critical_load_queueing_delay(
    *, number: Numeric, rate: Numeric, noise: Numeric, capacity: Numeric
) -> FloatArray:
    r"""Return the mean wait [s] of N requests that arrive as fast as served.

    .. math:: \frac{4}{3} \sqrt{\frac{\kappa T}{\pi \mu}}, \quad T = N / \lambda

    A queue without drift whose variance grows by :math:`2 \kappa \mu t` is
    :math:`\sqrt{4 \kappa \mu t / \pi}` long on average, reflected at zero [1]_; here it is
    averaged over T.

    References
    ----------
    .. [1] J. Harrison, "Brownian Motion and Stochastic Flow Systems," 1985, section 1.8.
    """
    seconds = np.asarray(number) / rate
    return np.asarray(4 / 3 * np.sqrt(noise * seconds / (np.pi * np.asarray(capacity))))


def normal_tail(score: Numeric) -> FloatArray:
    r"""Return the probability that a standard normal variable exceeds ``score`` [1]_.

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
    r"""Return the ``share`` quantile of a gamma variable (Wilson and Hilferty [1]_).

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
    r"""Return the ``share`` quantile of a lognormal variable.

    .. math:: \frac{m}{\sqrt{1 + v}} e^{z \sqrt{\ln(1 + v)}}, \quad v = \frac{\sigma^2}{m^2}

    Derived here: the logarithm is normal, of variance ln(1 + v).
    """
    m = np.maximum(mean, 1e-100)
    log = np.log1p(np.maximum(variance, 0.0) / m**2)
    return np.asarray(m * np.exp(NormalDist().inv_cdf(share) * np.sqrt(log) - log / 2))


def first_token_variance(
    *,
    load: Numeric,
    step_at_arrival: Numeric,
    step_variance_at_arrival: Numeric,
    wait: Numeric,
    prompt: Numeric,
    variation: Numeric,
) -> FloatArray:
    r"""Return the variance of the time to first token of a request with a slot [s^2].

    A request arrives at any time of a step of T' seconds. Its own prompt of s seconds runs
    together with the prompts of the others of that step:

    .. math:: \left(\tfrac{1}{2} + \rho\right)^2 Var[T'] + \frac{E[T'^2]}{12} +
        \rho s (1 + c^2) E[T'] + s^2 c^2

    A queue of prompts that one step does not take, with a mean ``wait``, spreads like its
    exponential wait, and of requests that find nothing running only a share waits. Derived here.
    """
    rho, s, c = load, prompt, variation
    step = step_variance_at_arrival + step_at_arrival**2
    spread = (0.5 + rho) ** 2 * step_variance_at_arrival + step / 12
    spread = spread + rho * step_at_arrival * (s * (1 + c**2))
    longer = wait / np.maximum((0.5 + rho) * step_at_arrival, 1e-300)
    queued = spread * longer * np.maximum(longer, 1.0)
    exponential = queueing_delay_variance(mean_wait=wait, load=np.clip(rho, 1e-6, 1.0))
    spread = np.where(longer > 1, np.minimum(queued, exponential), queued)
    return np.asarray(spread + (s * c) ** 2)


def step_variances(
    *,
    fixed: Numeric,
    slope: Numeric,
    step: Numeric,
    load: Numeric,
    running: Numeric,
    prompts: Numeric,
    steps: Numeric,
    variation: Numeric,
) -> tuple[FloatArray, FloatArray]:
    r"""Return variances of an answer's mean step: by other sequences, and by prompts [s^2].

    The first, of a + b B seconds with a variance ``running`` of B, is averaged over an answer of
    n steps (`averaged_share`); a Poisson number of prompts stops it, and while they do others
    come. Lengths of answers have the coefficient of ``variation`` c_n:

    .. math:: \left(\frac{b}{1 - \rho}\right)^2 Var[B] \cdot g,
        \quad \frac{\lambda E[T] s^2 (1 + c^2)}{n (1 - \rho)^2} (1 + c_n^2)

    ``prompts`` is the second without n and c_n. Derived here.
    """
    averaged = averaged_share(fixed=fixed, step=step)
    by_other_sequences = (slope / (1 - load)) ** 2 * running * averaged
    return np.asarray(by_other_sequences), np.asarray(prompts / steps * (1 + variation**2))


def mean_if_positive(expected: Numeric) -> FloatArray:
    r"""Return the mean of a Poisson variable, given that the variable is not zero.

    .. math:: \frac{x}{1 - e^{-x}}

    Derived here.
    """
    few = np.maximum(expected, 1e-9)
    return np.asarray(few / -np.expm1(-few))


def solve_rate(
    *, excess: Callable[[FloatArray], FloatArray], upper_bound: FloatArray
) -> FloatArray:
    """Find the rate [1/s] at which ``excess`` crosses zero, between 0 and ``upper_bound`` [1]_.

    ``upper_bound`` where it does not cross. ``excess`` is the logarithm of requests in flight
    over available requests. It rises at least half as fast as the logarithm of the rate, which
    gives a lower bound.

    References
    ----------
    .. [1] M. Dowell and P. Jarratt, "A modified regula falsi method for computing the root of an
       equation," BIT 11, 1971: the root is enclosed.
    """
    high = np.asarray(upper_bound)
    above = excess(high)
    low = high * np.exp(-2 * np.maximum(above, 0.0))
    below = excess(low)
    rate, was_above = high, None
    for rounds_left in reversed(range(_RATE_ROUNDS)):
        width = above - below
        with np.errstate(divide="ignore", invalid="ignore"):
            back = np.where(width > 0, above / width, 0.0)
        rate = high - np.clip(back, 0.0, 1.0) * (high - low)
        if not rounds_left:
            break
        excess_at_rate = excess(rate)
        is_above = excess_at_rate > 0
        # An end that stays a second time counts half.
        weight = 1.0 if was_above is None else 1.0 - 0.5 * (is_above == was_above)
        low, high = np.where(is_above, low, rate), np.where(is_above, rate, high)
        below = np.where(is_above, weight * below, excess_at_rate)
        above = np.where(is_above, excess_at_rate, weight * above)
        was_above = is_above
    return rate


def solve_concurrency(
    *, required: Callable[[FloatArray], FloatArray], start: FloatArray, upper_bound: FloatArray
) -> FloatArray:
    r"""Find the concurrency B with ``required(B)`` = B, from ``start``; at most ``upper_bound``.

    .. math:: g(B) = \ln \frac{f(B)}{B} = 0

    By secants over :math:`\ln B` between enclosing points [1]_; before two points enclose the
    root, and far from it, by fixed-point iteration. A converged number stays as it is while others
    go on.

    References
    ----------
    .. [1] M. Dowell and P. Jarratt, "A modified regula falsi method for computing the root of an
       equation," BIT 11, 1971.
    """
    number = np.minimum(start, upper_bound)
    gap = np.log(required(number) / number)
    other, other_gap = number, np.zeros(())
    for _ in range(_NUMBER_ROUNDS):
        moves = (np.abs(gap) > _SETTLED_GAP) & ((number < upper_bound) | (gap < 0))
        if not moves.any():
            break
        encloses = gap * other_gap < 0
        with np.errstate(divide="ignore", invalid="ignore"):
            move = gap * np.log(number / other) / (other_gap - gap)
            leads = (np.abs(gap) < 1) & (move / gap > 0) & (move / gap < _FARTHEST)
        move = np.where(encloses | leads, move, gap)
        next_number = np.where(moves, np.minimum(number * np.exp(move), upper_bound), number)
        next_gap = np.log(required(next_number) / next_number)
        # An end that stays a second time counts half.
        stays = encloses & (next_gap * gap > 0)
        other, other_gap = np.where(stays, other, number), np.where(stays, other_gap / 2, gap)
        number, gap = next_number, next_gap
    return np.asarray(np.minimum(number * np.exp(gap), upper_bound))


def loaded_decode_step_time(*, fixed: Numeric, slope: Numeric, steps: Numeric) -> FloatArray:
    r"""Return seconds of a decode step a + b B at a load of λ n sequence steps per second.

    .. math:: \frac{a}{1 - \lambda n b}

    At least one sequence is in it. Derived here, by Little's law.
    """
    with np.errstate(divide="ignore"):
        step = fixed / np.maximum(1 - steps * np.asarray(slope), 0.0)
    return np.maximum(step, fixed + np.asarray(slope))


def disaggregated_concurrency(
    *, rate: FloatArray, unqueued_time: Numeric, service_time: Numeric, decoding: Numeric
) -> FloatArray:
    r"""Return requests in flight at a ``rate`` [1/s] with separate prefill and decode.

    .. math:: N = \frac{x + \sqrt{x^2 + 4 \rho x / (1 - \rho)}}{2}, \quad
        x = \lambda (z + d) - \rho, \quad \rho = \lambda s

    ``unqueued_time`` z and ``decoding`` d pass without a queue. Up to one request there is none.
    Infinite where the server does not keep up. The inverse of `disaggregated_closed_loop_rate`
    (derived here).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        load, without_queue = rate * np.asarray(service_time), rate * (unqueued_time + decoding)
        x = np.maximum(without_queue - load, 0.0)
        queued = (x + np.sqrt(x * x + 4 * load * x / (1 - load))) / 2
        return np.where(load < 1, np.where(without_queue > 1, queued, without_queue), np.inf)


def disaggregated_closed_loop_rate(
    *,
    requests: FloatArray,
    unqueued_time: FloatArray,
    service_time: FloatArray,
    servers: FloatArray,
    steps: Numeric,
    fixed: FloatArray,
    slope: FloatArray,
    slots: FloatArray,
    simultaneous: Numeric,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    r"""Return rate [1/s], servers and decode step [s] of a closed loop of ``requests``.

    .. math:: N = \lambda (z + w + d), \quad w = \frac{s k \rho}{1 - k \rho}, \quad
        k = 1 - 1 / N, \quad \rho = \lambda s, \quad d = \frac{n a}{1 - \lambda n b}

    Prompts queue at ``servers`` that take ``service_time`` each (approximate mean value analysis
    of a closed network [1]_), spend z = ``unqueued_time`` without a queue, and decode in
    n = ``steps`` of ``fixed + slope B`` seconds, B at most ``slots``. A share g =
    ``simultaneous`` of them starts with all others: they wait for half of them,
    :math:`(1 - g) w + g s (N - 1) / 2`, if a queue is not longer. 0 servers: the fewest that keep
    up.

    References
    ----------
    .. [1] P. Schweitzer, "Approximate analysis of multiclass closed networks of queues,"
       1979; A. Seidmann et al., 1987, for several servers.
    """
    slots = np.minimum(slots, requests)
    fixed_time, added_time, num_servers = steps * fixed, steps * slope, servers

    def settled(num_servers: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the request rate [1/s] and the seconds to decode an answer, by prefill servers."""
        served = service_time / num_servers
        rate = _closed_loop_rate_by_newton(
            requests, unqueued_time, served, slots, fixed_time, added_time, simultaneous
        )
        least = fixed_time + added_time * np.minimum(slots, 1.0)
        return rate, np.maximum(fixed_time / (1 - added_time * rate), least)

    if not np.all(servers > 0):
        decode = fixed_time + added_time * slots
        for _ in range(_SERVER_ROUNDS):
            needed = requests / (unqueued_time + decode) * service_time / _BUSIEST
            _, decode = settled(np.maximum(needed, 1.0))
        num_servers = np.where(servers > 0, servers, np.maximum(np.ceil(needed), 1.0))
    rate, decode = settled(num_servers)
    return rate, num_servers, decode / steps


def _closed_loop_rate_by_newton(*arguments: Numeric) -> FloatArray:
    """Solve `disaggregated_closed_loop_rate` for the rate [1/s] by Newton's method.

    T is the total time of a request. Both terms are concave, so that no round passes the rate.
    Only rows that have not converged go on.
    """
    shape = np.broadcast_shapes(*(np.shape(argument) for argument in arguments))
    columns = [np.ravel(np.broadcast_to(argument, shape)) for argument in arguments]
    rate = np.empty(math.prod(shape))
    moving: IndexArray | slice = slice(None)
    _, _, served, slots, fixed_time, added_time, _ = columns
    previous = upper_bound = np.minimum(1 / served, slots / (fixed_time + added_time * slots))
    for _ in range(_POOL_ROUNDS):
        n, unqueued_time, served, slots, fixed_time, added_time, simultaneous = columns
        others, later = served * np.maximum(1 - 1 / n, 0.0), np.maximum(n - 1, 0.0) / 2 * served
        queue, decode = 1 / (1 - others * previous), fixed_time / (1 - added_time * previous)
        waiting = served * (queue - 1)
        least = fixed_time + added_time * np.minimum(slots, 1.0)
        started = (1 - simultaneous) * waiting + simultaneous * later
        total = unqueued_time + np.maximum(waiting, started) + np.maximum(decode, least)
        slope = served * others * queue**2 * np.where(started > waiting, 1 - simultaneous, 1.0)
        slope = slope + np.where(decode > least, decode**2 * added_time / fixed_time, 0.0)
        next_rate = np.minimum(n * (total + previous * slope) / (total**2 + n * slope), upper_bound)
        rate[moving] = next_rate
        moves = np.abs(next_rate - previous) > _SETTLED * next_rate
        if not moves.any():
            break
        moving = np.flatnonzero(moves) if isinstance(moving, slice) else moving[moves]
        previous, upper_bound = next_rate[moves], upper_bound[moves]
        columns = [column[moves] for column in columns]
    return rate.reshape(shape)


_ROUNDS = 12
# Nearer to 1 what fills a replica does not end, and its places bound it long before.
_FULLEST = 0.995


def finite_run_time_per_token_ratio(
    *,
    number: Numeric,
    rate: Numeric,
    capacity: Numeric,
    steady: Numeric,
    steps: Numeric,
    fixed: Numeric,
    slope: Numeric,
    load: Numeric,
) -> FloatArray:
    r"""Return mean time per token of ``number`` requests over an endless stream's.

    They come at a ``rate`` [1/s] to an empty replica that answers ``capacity`` [1/s]; a step over B
    of them takes ``fixed + slope B`` seconds, an answer n = ``steps``, and prompts a share
    :math:`\rho` = ``load`` of the time. ``steady`` of them, :math:`B_\infty`, decode in the end, or
    all that have places. A fluid, with u the answers of time :math:`n` steps [1]_:

    .. math:: B(u) = \lambda (t(u) - t(u - 1)), \quad
        t'(u) = \frac{n (a + b B(u))}{1 - \rho}, \quad x = \frac{\lambda n b}{1 - \rho}

    Until the first is answered :math:`B = a / b (e^{x u} - 1)`; then, of :math:`B_1 = a x / b
    (1 - x)` without bounds, a share :math:`D e^{-\kappa (u - 1)}` is lacking,

    .. math:: D = 1 - \frac{(e^x - 1) (1 - x)}{x}, \quad \kappa = x (e^\kappa - 1)

    where the second is the root of the characteristic equation. A request that comes at u meets
    steps of :math:`B(u + 1) / \lambda n`, by Little's law. Once none comes no prompts stop those
    that are left, who become fewer by the time of an answer: on average they save
    :math:`g / 2 - a / 2 - b B / 3` of their steps' g. Where all come before the first is
    answered, a share U of the time of an answer, a step takes
    :math:`N / 2 \lambda n + U (a / 2 + b N / 3) + (1 - U) (a + b N)`, with U = 1 no less than if
    some are answered before. Where they come faster than
    they are answered, places bound what fills. Derived here; `tests/reference/event_replica.py`
    holds it.

    References
    ----------
    .. [1] G. Newell, "Applications of Queueing Theory," 2nd ed., 1982, chapter 2.
    """
    n, a, b = (np.maximum(np.asarray(term, dtype=float), 1e-12) for term in (steps, fixed, slope))
    offered = np.asarray(rate, dtype=np.float64)
    max_rate = np.asarray(capacity, dtype=np.float64)
    served = np.minimum(offered, max_rate)
    stopped = np.minimum(np.asarray(load) * offered / served, 0.98)
    fed = offered * n * b / (1 - stopped)
    x = np.minimum(fed, _FULLEST)
    unbound = a / b * x / (1 - x)
    # How much more than the places would decode without that bound.
    beyond = np.maximum(unbound * served / (offered * np.maximum(steady, 1e-9)), 1.0)
    beyond = np.where(offered > max_rate, beyond, 1.0)
    lacking = np.clip(1 - np.expm1(x) * (1 - x) / x, 0.0, 1.0)
    kappa = _relaxation(x)

    ends = np.isfinite(np.asarray(number))
    count = np.where(ends, number, 1.0)
    first = a / b * np.expm1(x)
    early = np.minimum(np.log1p(count * b / a) / fed, 1.0)
    later = _time_of_count(np.maximum(count - first, 0.0) / unbound, x * lacking, kappa)
    with np.errstate(divide="ignore"):
        full = np.log(np.maximum(lacking, 1e-300) / (1 - 1 / beyond)) / kappa
    until = np.minimum(1 + later, np.maximum(full, 0.0))
    missed = _unmet_decoding_share(until, x=x, lacking=lacking, kappa=kappa, beyond=beyond)
    # Faster than that all places are taken before the first is answered.
    missed = np.where((offered > max_rate) & (fed >= _FULLEST), 0.0, missed)

    level = unbound * (1 - lacking * np.exp(-kappa * later))
    level = np.minimum(np.where(fed < _FULLEST, level, steady), np.minimum(steady, count))
    step = a + b * level
    steady_step = (a + b * steady) / (1 - np.asarray(load))
    emptied = level * (step / (1 - np.asarray(load)) / 2 - a / 2 - b * level / 3) / steady_step
    many_ratio = 1 - (unbound * missed + np.maximum(emptied, 0.0)) / count
    until_last = count / 2 * np.maximum(1 / offered, np.asarray(load) / served)
    few_ratio = until_last / n + early * (a / 2 + b * count / 3) + (1 - early) * (a + b * count)
    few_ratio = np.where(count <= steady, few_ratio / steady_step, np.inf)
    is_few = (early < 1) & np.isfinite(few_ratio)
    ratio = np.where(is_few, few_ratio, np.minimum(few_ratio, many_ratio))
    return np.where(ends, np.clip(ratio, a / steady_step, 1.0), 1.0)


def _relaxation(x: FloatArray) -> FloatArray:
    """Return the positive root k of k = x (e^k - 1), by Newton's method from above."""
    kappa = 2 * np.log(1 / x) + 2 * (1 - x)
    for _ in range(_ROUNDS):
        grown = x * np.exp(kappa)
        kappa = kappa - (kappa - grown + x) / (1 - grown)
    return np.asarray(kappa)


def _time_of_count(count: FloatArray, share: FloatArray, kappa: FloatArray) -> FloatArray:
    """Solve w - share / k (1 - e^-kw) = ``count`` for the time w since the first answer."""
    w = count + share / kappa
    for _ in range(_ROUNDS):
        left = np.exp(-kappa * w)
        w = np.maximum(w - (w - share / kappa * (1 - left) - count) / (1 - share * left), 0.0)
    return np.asarray(w)


def _unmet_decoding_share(
    until: FloatArray, *, x: FloatArray, lacking: FloatArray, kappa: FloatArray, beyond: FloatArray
) -> FloatArray:
    """Return the missing share of steady concurrency, summed over requests until a time."""
    u, w = np.minimum(until, 1.0), np.maximum(until - 1.0, 0.0)
    come = (1 - x) * np.expm1(x * u) / x + w - x * lacking / kappa * -np.expm1(-kappa * w)
    away = kappa - x
    with np.errstate(divide="ignore", invalid="ignore"):
        begun = np.where(np.abs(away) > 1e-9, -np.expm1(-away * u) / away, u)
    ends = -np.expm1(-kappa * w) / kappa - x * lacking * -np.expm1(-2 * kappa * w) / (2 * kappa)
    short = lacking * ((1 - x) * begun + np.exp(-kappa) * ends)
    return np.maximum((1 - beyond) * come + beyond * short, 0.0)
