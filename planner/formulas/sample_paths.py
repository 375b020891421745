"""Queues on the path of requests that were recorded: what drifts, fills and stalls."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record

_PARTS = 2
_BUSIEST = 0.98
_LEAST = 1e-9
_MOST_BEHIND = 0.9


def drifting_counts(counts: FloatArray, before: FloatArray) -> FloatArray:
    r"""Requests of windows without what varies at random within them.

    .. math:: m + s (c - m), \quad s^2 = \frac{4}{3} \left(1 - \frac{D(w / 4)}{D(w)}\right)

    The dispersion D, variance over mean, of ``counts`` in windows w grows with w by what drifts
    and stays the same by what comes in bursts; ``before`` are counts in windows of a quarter.
    Derived here.
    """
    mean = counts.mean()
    dispersion = np.maximum(counts.var() / mean, 1e-12)
    share = 4 / 3 * (1 - before.var() / before.mean() / dispersion)
    return np.asarray(mean + np.sqrt(np.clip(share, 0.0, 1.0)) * (counts - mean))


def filled_by_drift(
    *,
    prompts: FloatArray,
    answers: FloatArray,
    seconds: Numeric,
    rate: FloatArray,
    fixed: FloatArray,
    slope: FloatArray,
    steps: Numeric,
    places: Numeric,
    prompt: FloatArray,
    queued: FloatArray,
    fullest: Numeric,
) -> tuple[FloatArray, FloatArray]:
    r"""Sequences that decode in each of some windows, and seconds of waits for a place, of a fluid.

    .. math:: \frac{dX}{dt} = \lambda o - \frac{B}{n t}, \quad B = \min(X, c) - \frac{Q}{s}, \quad
        t = \min\left(\frac{a + b B}{1 - \lambda p s}, a + b B + f\right)

    Requests come at a ``rate`` [1/s] of a mean over windows of so many ``seconds``, in which
    ``prompts`` p and ``answers`` o have so much of the mean work [1]_. A step over B of c
    ``places`` takes ``fixed + slope B``, an answer n ``steps``, and a ``prompt`` s seconds, of
    which at most ``fullest`` f are in a step. What comes beyond that is Q seconds of prompts that
    wait in their places, L if there were places for all:

    .. math:: \frac{dQ}{dt} = \lambda p s - \varphi, \quad \varphi = \frac{f}{a + b B + f}

    Where f is infinite, prompts stop all answers, and Q stays 0. Where X is beyond the places,
    prompts come as those are left, and take s' ``queued`` seconds beside others. The wait is what
    is longer than the queue of the prompts alone:

    .. math:: W = \frac{X - c}{c} \left(n (a + b c) + c s' p / o\right) - \frac{L - Q}{\varphi}

    Each part of a window is solved with the slope that it begins with. Windows may have further
    axes, those of paths that are followed side by side. The first axis of what is returned is
    that of the windows.

    References
    ----------
    .. [1] G. Newell, "Applications of Queueing Theory," 2nd ed., 1982, chapter 2; the rest is
       derived here, and held by replays.
    """
    n, c, work = np.asarray(steps), np.asarray(places), np.minimum(rate * prompt, _BUSIEST)
    crowd = np.minimum(rate * n * slope / (1 - work), _BUSIEST)
    held = np.minimum(rate * n * fixed / (1 - work) / (1 - crowd), c)
    part = np.asarray(seconds) / _PARTS
    behind, line = np.zeros(()), np.zeros(())
    running, waits = [], []
    for p, o in zip(prompts, answers, strict=True):
        each = (n * (fixed + slope * c) + c * queued * p / np.maximum(o, _LEAST)) / c
        free = 1 - np.minimum(rate * p * prompt, _BUSIEST)
        ran, waited = np.zeros(()), np.zeros(())
        for _ in range(_PARTS):
            active = np.minimum(held, c)
            decoding = active - np.minimum(behind / prompt, _MOST_BEHIND * active)
            alone = fixed + slope * decoding
            full = alone + fullest
            step = np.where(behind > 0, full, np.minimum(alone / free, full))
            beyond = held > c
            left = decoding / (n * step)
            left = np.where(beyond & (behind <= 0), 1 / each, left)
            slower = left / np.maximum(decoding, _LEAST) * fixed / alone
            slower = np.where(beyond | (behind > 0), _LEAST, np.maximum(slower, _LEAST))
            later = held - (rate * o - left) / slower * np.expm1(-slower * part)
            later = np.maximum(later, 0.0)
            come = np.where(beyond, left * p / np.maximum(o, _LEAST), rate * p) * prompt
            most = 1 - alone / full
            behind = np.where(
                np.isfinite(full), np.maximum(behind + (come - most) * part, 0.0), 0.0
            )
            middle, held = (held + later) / 2, later
            ran = ran + np.minimum(middle, c) / _PARTS
            line = np.maximum(line + (rate * p * prompt - most) * part, 0.0)
            longer = np.maximum(middle - c, 0.0) * each - (line - behind) / most
            waited = waited + np.maximum(longer, 0.0) / _PARTS
        running.append(ran)
        waits.append(waited)
    return np.stack(running), np.stack(waits)


def weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> FloatArray:
    """What a share of some values, along the first axis, does not exceed; each has a weight: the
    inverse of their distribution function, between middles of steps. Derived here.
    """
    of_each = weights.reshape(*weights.shape, *[1] * (values.ndim - weights.ndim))
    order = np.argsort(values, axis=0)
    values = np.take_along_axis(values, order, axis=0)
    ranked = np.take_along_axis(np.broadcast_to(of_each, values.shape), order, axis=0)
    until = np.cumsum(ranked, axis=0)
    middle = (until - ranked / 2) / until[-1]
    right = np.clip((middle < share).sum(axis=0, keepdims=True), 1, len(values) - 1)
    ends = [
        np.take_along_axis(one, at, axis=0) for one in (values, middle) for at in (right - 1, right)
    ]
    part = np.clip((share - ends[2]) / np.maximum(ends[3] - ends[2], 1e-300), 0.0, 1.0)
    return np.asarray((ends[0] + part * (ends[1] - ends[0]))[0])


@record(kw_only=True)
class ServerPath:
    """One server that works on the prompts of requests in their order, beside answers.

    ``service``: of each prompt [s]; ``waits`` of each before it [s] at their ``times``.
    """

    times: FloatArray
    service: FloatArray
    waits: FloatArray

    @cached_property
    def _between(self) -> FloatArray:
        """Seconds for which it was idle just before each request."""
        ends = self.times + self.waits + self.service
        return np.concatenate([[0.0], np.maximum(self.times[1:] - ends[:-1], 0.0)])

    @cached_property
    def _idle(self) -> FloatArray:
        return np.cumsum(self._between)

    @cached_property
    def _worked(self) -> FloatArray:
        return np.cumsum(self.service)

    @cached_property
    def _before(self) -> FloatArray:
        """Requests that came before each since it was idle."""
        order = np.arange(self.times.size)
        begun = np.maximum.accumulate(np.where(self._between > 0, order, 0))
        return np.asarray(order - begun, dtype=np.float64)

    def stalls(self, every: int, idle: FloatArray) -> FloatArray:
        """Seconds that it works after some requests until it was idle for so long.

        An answer that decodes while no prompt is computed takes its own time and these. ``idle``:
        what each of those needs that are looked at, one of ``every``. Derived here.
        """
        last = np.searchsorted(self._idle, self._idle[::every] + idle, side="right") - 1
        return np.asarray(self._worked[last] - self._worked[::every])

    def most(self, every: int, lengths: FloatArray, places: int) -> FloatArray:
        r"""Seconds of prompts that may come while an answer holds one of some places, at most.

        .. math:: \sum_{k = i + 1}^{i + c} s_k \left(\max(1 - p_i / c, 0) + n_i / n\right)

        Of those that came since it was idle p were before it, so that the others of c places
        are filled while it waits, and as it decodes n as many are left and taken again as
        answers end. ``lengths`` are those of answers over their mean. Derived here.
        """
        first = np.arange(0, self.times.size, every)
        beside = np.minimum(first + places, self.times.size - 1)
        work = self._worked[beside] - self._worked[first]
        return np.asarray(work * (np.maximum(1 - self._before[first] / places, 0.0) + lengths))
