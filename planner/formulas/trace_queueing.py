"""Queueing delay over a recorded trace of requests: drifting load, full slots, stalls."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.formulas.queueing import mean_if_positive

_PARTS, _MAX_PARTS, _FILLING = 2, 8, 0.3
_BUSIEST = 0.98
_LEAST = 1e-9


def drifting_counts(counts: FloatArray, before: FloatArray) -> FloatArray:
    r"""Return request counts per window without their random variation: only the slow drift.

    .. math:: m + s (c - m), \quad s^2 = \frac{4}{3} \left(1 - \frac{D(w / 4)}{D(w)}\right)

    The dispersion D, variance over mean, of ``counts`` in windows w grows with w by what drifts
    and stays the same by what comes in bursts; ``before`` are counts in windows of a quarter.
    Derived here.
    """
    mean = counts.mean()
    dispersion = np.maximum(counts.var() / mean, 1e-12)
    share = 4 / 3 * (1 - before.var() / before.mean() / dispersion)
    return np.asarray(mean + np.sqrt(np.clip(share, 0.0, 1.0)) * (counts - mean))


def simulate_fluid_queue(
    *,
    requests: FloatArray,
    prompts: FloatArray,
    answers: FloatArray,
    seconds: Numeric,
    rate: FloatArray,
    fixed: FloatArray,
    slope: FloatArray,
    steps: Numeric,
    places: Numeric,
    prompt: FloatArray,
    lone: FloatArray,
    added: FloatArray,
    fullest: Numeric,
) -> tuple[FloatArray, FloatArray]:
    r"""Simulate a replica as a fluid: decoding sequences and queueing delay [s] per window.

    .. math:: \frac{dX}{dt} = \lambda r - \frac{B}{n m t}, \quad
        t = \min\left(\frac{a + b B}{1 - \lambda p s}, a + b B + f\right)

    Requests come at a ``rate`` [1/s] of a mean over windows of so many ``seconds``, which have so
    much of the mean ``requests`` r and of the mean work of ``prompts`` p and ``answers`` o [1]_. A
    step over B of c ``places`` takes ``fixed + slope B``, a mean answer n ``steps``, and an answer
    of the X requests m times as many, which new requests change. A prompt takes
    ``lone`` seconds, or ``added`` with others; of x that come to a step at random
    each takes s, the first ``prompt``:

    .. math:: s(x) = s_a + (s_l - s_a) \frac{1 - e^{-x}}{x}

    At most ``fullest`` f seconds of prompts are in a step. The rest waits in its slots, so
    that fewer decode: Q seconds of prompts, and L if there were slots for all:

    .. math:: \frac{dB}{dt} = \frac{\varphi r}{s p} - \frac{B}{n m t}, \quad
        \varphi = \frac{f}{a + b B + f}

    Where f is infinite, prompts have their own steps, which stop all answers, and Q stays 0. Where
    X exceeds the slots, prompts of waiting requests start as slots become free. The wait is the
    part that exceeds the queue of prompts:

    .. math:: W = \frac{X - c}{c} \left(m n (a + b c) + \frac{c s p}{r}\right)
        - \frac{L - Q}{\varphi}

    Each part of a window is solved with the slope that it begins with; there are more of them where
    a replica fills. Windows may have further axes, those of paths that are followed side by side.
    The first axis of what is returned is that of the windows.

    References
    ----------
    .. [1] G. Newell, "Applications of Queueing Theory," 2nd ed., 1982, chapter 2; the rest is
       derived here, and held by replays.
    """
    n, c, m = np.maximum(steps, _LEAST), np.asarray(places), np.ones(())
    work = np.minimum(rate * prompt, _BUSIEST)
    is_mixed = bool(np.all(np.isfinite(fullest)))
    crowd = np.minimum(rate * n * slope / (1 - work), _BUSIEST)
    held = np.minimum(rate * n * fixed / (1 - work) / (1 - crowd), c)
    decoding, outside, line = held, np.zeros(()), np.zeros(())
    s, size = prompt, np.ones(())
    running, waits = [], []
    for r, p, o in zip(requests, prompts, answers, strict=True):
        ran, waited = np.zeros(()), np.zeros(())
        fills = np.any((held > _FILLING * c) | (rate * p * prompt > 1 - _FILLING))
        parts = _MAX_PARTS if fills else _PARTS
        part = np.asarray(seconds) / parts
        for _ in range(parts):
            come = rate * r * part
            others = np.maximum(held - c, 0.0)
            ratio = (outside + rate * p * part) / np.maximum(others + come, _LEAST)
            m = np.maximum((held * m + rate * o * part) / np.maximum(held + come, _LEAST), _LEAST)
            decode_step, answer = fixed + slope * decoding, n * m
            if is_mixed:
                size = mean_if_positive(decoding * ratio / answer)
            else:
                # Prompts that arrived during the same step, of answers or of prompts.
                came = rate * p * s * size
                again = -np.expm1(-came)
                size = (1 - again) * mean_if_positive(
                    rate * p * decode_step
                ) + again * mean_if_positive(came)
            s = added + (lone - added) / size
            leaving = added + (lone - added) / mean_if_positive(c * ratio / answer)
            # A slot is also taken during the step of the prompt if that step has answers.
            each = ((answer + is_mixed) * fixed + answer * slope * c) / c + leaving * ratio
            full = decode_step + fullest
            spare_share = 1 - decode_step / full
            through = spare_share / (s * np.maximum(ratio, _LEAST))
            queue = np.minimum(held, c) - decoding
            busy = is_mixed & ((queue * ratio / part + rate * p) * s > spare_share)
            placed = (held > c) & (~busy | (through * each > 1))
            step = np.minimum(decode_step / (1 - np.minimum(rate * p * s, _BUSIEST)), full)
            time = answer * np.where(busy, full, step)
            slower = np.where(busy, 1 - slope * decoding / full, fixed / decode_step) / time
            begun = np.where(busy, through, (come + queue) / part)
            more = (decoding / time - begun) / slower * np.expm1(-slower * part)
            more = np.where(placed, c - decoding, more)
            left = np.where(placed, part / each, begun * part - more)
            later = np.maximum(held + come - left, 0.0)
            inside, before = np.minimum(later, c), decoding
            decoding = np.where(busy | placed, np.clip(decoding + more, 0.0, inside), inside)
            line = np.maximum(line + (rate * p * s - spare_share) * part, 0.0)
            longer = np.maximum((held + later) / 2 - c, 0.0) * each
            longer = longer - (line - (inside - decoding) * s) / spare_share
            ran = ran + (before + decoding) / 2 / parts
            waited = waited + np.maximum(longer, 0.0) / parts
            held, outside = later, ratio * np.maximum(later - c, 0.0)
        running.append(ran)
        waits.append(waited)
    return np.stack(running), np.stack(waits)


def weighted_quantile(values: FloatArray, weights: FloatArray, share: float) -> FloatArray:
    """Return the weighted quantile of ``values`` along the first axis, interpolated.

    Derived here.
    """
    of_each = weights.reshape(*weights.shape, *[1] * (values.ndim - weights.ndim))
    order = np.argsort(values, axis=0)
    values = np.take_along_axis(values, order, axis=0)
    ranked = np.take_along_axis(np.broadcast_to(of_each, values.shape), order, axis=0)
    until = np.cumsum(ranked, axis=0)
    middle = (until - ranked / 2) / until[-1]
    right = np.clip((middle < share).sum(axis=0, keepdims=True), 1, len(values) - 1)
    ends = [
        np.take_along_axis(array, positions, axis=0)
        for array in (values, middle)
        for positions in (right - 1, right)
    ]
    part = np.clip((share - ends[2]) / np.maximum(ends[3] - ends[2], 1e-300), 0.0, 1.0)
    return np.asarray((ends[0] + part * (ends[1] - ends[0]))[0])


@record(kw_only=True)
class PrefillServerPath:
    """One server that computes the prompts of requests in their order, while answers decode.

    ``times`` of arrival [s], ``service`` time of each prompt [s], ``waits`` before it [s].
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

    def stall_time(self, every: int, idle: FloatArray) -> FloatArray:
        """Return prompt seconds after a sampled request until the server idled ``idle`` [s].

        An answer that decodes while no prompt is computed takes its own time and these. ``idle``:
        what each of those needs that are looked at, one of ``every``. Derived here.
        """
        last = np.searchsorted(self._idle, self._idle[::every] + idle, side="right") - 1
        return np.asarray(self._worked[last] - self._worked[::every])

    def max_prompt_time(self, every: int, lengths: FloatArray, slots: int) -> FloatArray:
        r"""Return an upper bound of prompt seconds while an answer has its slot.

        .. math:: \sum_{k = i + 1}^{i + c} s_k \left(\max(1 - p_i / c, 0) + n_i / n\right)

        p requests came before it since the server was idle, so that the others of c slots
        are filled while it waits. While it decodes n steps, answers end and others take their
        slots. ``lengths`` are lengths of answers over their mean. Derived here.
        """
        first = np.arange(0, self.times.size, every)
        last = np.minimum(first + slots, self.times.size - 1)
        work = self._worked[last] - self._worked[first]
        return np.asarray(work * (np.maximum(1 - self._before[first] / slots, 0.0) + lengths))
