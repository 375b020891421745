"""Requests that come at a rate, whatever becomes of those before, and may end."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record
from planner.estimators.inference.waits import Queue
from planner.formulas.queueing import critical_wait

CARRIED = 1e-3
"""By this share a rate may be beyond what is carried, which is found in steps."""


@record(kw_only=True)
class Offered:
    r"""``number`` requests that come at a ``rate`` [1/s] to what answers ``capacity`` [1/s].

    Arrays that broadcast, of a replica or of a whole deployment. An infinite rate is of requests
    that are all there at once, an infinite number one without end. ``places``: for requests in
    flight; ``prompt``: seconds of a prompt in a queue of them; ``answer``: of an answer while what
    answers them empties.

    Where they come faster than they are answered, they are a fluid [1]_ that is answered by
    :math:`N / \mu`. The i-th is not among the first c, who find a place, and has its place

    .. math:: i \left(\frac{1}{\mu} - \frac{1}{\lambda}\right) - a

    later than it comes: i are answered in :math:`i / \mu`, the last of them in a. Of those who find
    a place each waits for the prompts before its own. `tests/reference/event_replica.py` holds it.
    Of requests at once all wait.

    References
    ----------
    .. [1] G. Newell, "Applications of Queueing Theory," 2nd ed., 1982, chapter 2.
    """

    rate: Numeric
    number: Numeric
    capacity: Numeric
    places: Numeric
    prompt: Numeric
    answer: Numeric = 0.0

    @property
    def is_beyond(self) -> BoolArray:
        """Where requests come faster than they are answered."""
        return np.asarray(np.asarray(self.rate) > np.asarray(self.capacity) * (1 + CARRIED))

    @property
    def is_endless(self) -> BoolArray:
        """Where they do without an end: all wait for ever."""
        return np.asarray(self.is_beyond & ~np.isfinite(self.number))

    @cached_property
    def _later(self) -> FloatArray:
        """Seconds by which each request is answered later than the one before."""
        return np.maximum(1 / np.asarray(self.capacity) - 1 / np.asarray(self.rate), 0.0)

    @cached_property
    def _sent(self) -> FloatArray:
        return np.where(np.isfinite(self.number), self.number, 0.0)

    @cached_property
    def _placed(self) -> FloatArray:
        """How many of the requests find a place when they come."""
        with np.errstate(divide="ignore", invalid="ignore"):
            caught_up = np.where(self._later > 0, self.answer / self._later, np.inf)
        found = np.where(np.isfinite(self.rate), np.maximum(self.places, caught_up), 0.0)
        return np.minimum(found, self._sent)

    @cached_property
    def _of_prompts(self) -> FloatArray:
        """Seconds that the last prompt waits of those that have places, where they come faster."""
        faster = np.maximum(self.prompt - 1 / np.asarray(self.rate), 0.0)
        return np.minimum(self._placed, self.places) * faster

    def _place_after(self, order: Numeric) -> FloatArray:
        """Seconds that the request of this ``order`` waits for a place, if it finds none."""
        return np.maximum(order * self._later - self.answer, 0.0)

    @property
    def mean_wait(self) -> FloatArray:
        """Mean seconds of all requests before their place; infinite without an end."""
        placed, sent = self._placed, np.maximum(self._sent, 1e-300)
        waiting = (self._place_after(placed) + self._place_after(sent)) / 2
        wait = (self._of_prompts * placed / 2 + waiting * (self._sent - placed)) / sent
        return np.where(self.is_endless, np.inf, wait)

    @property
    def last_wait(self) -> FloatArray:
        """Seconds of the last request before its place; infinite without an end."""
        waits = self._sent > self._placed
        wait = np.where(waits, self._place_after(self._sent), 0.0)
        wait = np.maximum(wait, self._of_prompts)
        # What a wave adds to the mean of a burst, `burst` tells.
        wait = np.where(np.isfinite(self.rate), wait, self.mean_wait)
        return np.where(self.is_endless, np.inf, wait)

    def wait_within(self, share: float) -> FloatArray:
        """Seconds that a ``share`` of the requests does not exceed before their place.

        In the order in which they come: those that find a place wait for each other's prompts.
        """
        order, placed = share * self._sent, self._placed
        before = self._of_prompts * np.minimum(order / np.maximum(placed, 1e-300), 1.0)
        wait = np.where(order > placed, np.maximum(self._place_after(order), before), before)
        wait = np.where(np.isfinite(self.rate), wait, self.last_wait * share)
        return np.where(self.is_endless, np.inf, wait)

    def place_wait(self, queue: Queue, carried: FloatArray) -> FloatArray:
        r"""Mean seconds of all for a place where requests that come at random are ``carried``.

        .. math:: P f \left(W_\infty^{-2} + W_0^{-2}\right)^{-1/2}, \quad f = 1 - n / N

        The first n fill an empty replica. The others wait as without an end, :math:`W_\infty`,
        unless all have come before that has built up: it takes as long as `critical_wait`,
        :math:`W_0`, says. Faster than they are answered they wait as at the capacity, or in what
        piles up.
        """
        share = np.maximum(1 - queue.place_fill / np.asarray(self.number), 0.0)
        spare = np.maximum(queue.place_rate, self.capacity) - np.asarray(self.rate)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lasting = np.where(spare > 0, queue.place_noise / spare, np.inf)
            ending = critical_wait(
                number=self.number * share,
                rate=carried,
                noise=queue.place_noise,
                capacity=self.capacity,
            )
            wait = 1 / np.hypot(1 / lasting, 1 / ending)
        return np.where(queue.place_share > 0, queue.place_share * share * wait, 0.0)

    def first_wait(self, queue: Queue, carried: FloatArray) -> FloatArray:
        """Mean seconds of all requests before their place: by chance, or in what piles up."""
        return np.maximum(self.place_wait(queue, carried), self.mean_wait)

    def until_the_end(self, carried: FloatArray, latency: FloatArray) -> FloatArray:
        """The rate [1/s] of all requests over the time until the last is answered.

        That is a ``latency`` after it came, and not sooner than all are ``carried`` at a rate.
        """
        return np.minimum(carried, 1 / (1 / np.asarray(self.rate) + latency / self.number))
