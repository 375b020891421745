"""Requests that come at a rate, whatever becomes of those before, and may end."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record
from planner.estimators.inference.waits import Queue

# A share of requests that wait for a place, above which they come faster than they are served.
_OVERLOADED = 0.5
CARRIED = 1e-3
"""By this share a rate may be beyond what is carried, which is found in steps."""


@record(kw_only=True)
class Offered:
    r"""``number`` requests that come at a ``rate`` [1/s] to what answers ``capacity`` [1/s].

    Arrays that broadcast, of a replica or of a whole deployment. An infinite rate is of requests
    that are all there at once, an infinite number one without end. ``places``: for requests in
    flight; ``prompt``: seconds of a prompt in a queue of them.

    Where they come faster than they are answered, they are a fluid [1]_: each comes
    :math:`1 / \mu - 1 / \lambda` later than it should, from when all places are taken. The last
    of N waits

    .. math:: N \left(\frac{1}{\mu} - \frac{1}{\lambda}\right) f, \quad
        f = 1 - \frac{c}{N (1 - \mu / \lambda)},

    the share f of them that comes after that half of it on average, and those before only for
    the prompts of each other. Of requests at once all wait.

    References
    ----------
    .. [1] G. Newell, "Applications of Queueing Theory," 2nd ed., 1982, chapter 2.
    """

    rate: Numeric
    number: Numeric
    capacity: Numeric
    places: Numeric
    prompt: Numeric

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
    def waiting_share(self) -> FloatArray:
        """Share of the requests that come when all places are taken."""
        held = self._sent * self._later * self.capacity
        full = np.clip(1 - self.places / np.maximum(held, 1e-300), 0.0, 1.0)
        return np.where(np.isfinite(self.rate), full, 1.0)

    @cached_property
    def _of_prompts(self) -> FloatArray:
        """Seconds that the last prompt waits of those that have places, where they come faster."""
        placed = np.minimum(self._sent, self.places)
        faster = np.maximum(self.prompt - 1 / np.asarray(self.rate), 0.0)
        return np.where(np.isfinite(self.rate), placed * faster, 0.0)

    @property
    def mean_wait(self) -> FloatArray:
        """Mean seconds of all requests before their place; infinite without an end."""
        wait = self._sent / 2 * self._later * self.waiting_share**2 + self._of_prompts / 2
        return np.where(self.is_endless, np.inf, wait)

    @property
    def last_wait(self) -> FloatArray:
        """Seconds of the last request before its place; infinite without an end."""
        wait = np.maximum(self._sent * self._later * self.waiting_share, self._of_prompts)
        # What a wave adds to the mean of a burst, `burst` tells.
        wait = np.where(np.isfinite(self.rate), wait, self.mean_wait)
        return np.where(self.is_endless, np.inf, wait)

    def wait_within(self, share: float) -> FloatArray:
        """Seconds that a ``share`` of the requests does not exceed before their place.

        In the order in which they come: those that find a place wait for each other's prompts.
        """
        waiting = np.where(self.waiting_share > 0, self.waiting_share, 1.0)
        with np.errstate(invalid="ignore"):
            part = np.clip(1 - (1 - share) / waiting, 0.0, 1.0)
            piled_up = np.where(part > 0, self.last_wait * part, 0.0)
        return np.maximum(piled_up, self._of_prompts * share)

    def place_wait(self, queue: Queue, carried: FloatArray) -> FloatArray:
        """Mean seconds until there is a place where requests that come at random are ``carried``.

        Of a number that ends no more wait than do not find a place if nobody ends, and those that
        come faster than they are served wait in what piles up.
        """
        beyond = np.where(
            np.isfinite(self.number),
            np.maximum(1 - self.places / np.asarray(self.number), 0.0),
            1.0,
        )
        longest = self.number / carried / 2 * beyond**2
        piles_up = (queue.place_share >= _OVERLOADED) & np.isfinite(self.number)
        return np.where(piles_up, 0.0, np.minimum(queue.place_wait, longest))

    def until_the_end(self, carried: FloatArray, latency: FloatArray) -> FloatArray:
        """The rate [1/s] of all requests over the time until the last is answered.

        That is a ``latency`` after it came, and not sooner than all are ``carried`` at a rate.
        """
        return np.minimum(carried, 1 / (1 / np.asarray(self.rate) + latency / self.number))
