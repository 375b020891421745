"""Queueing delay of a request before its prompt: the running step, other prompts, a place."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.formulas.draining import (
    client_burst_wait,
    client_burst_wait_quantile,
    client_burst_wait_variance,
)
from planner.formulas.queueing import (
    arrival_noise,
    critical_load_queueing_delay,
    mean_queueing_delay,
    running_variance,
    slot_queueing_delay,
    step_time_at_arrival,
    step_time_variance_at_arrival,
)

# Bounds open loads; the clients bound the queue of a closed loop.
_BUSIEST = 0.98


@record(kw_only=True)
class StepDemand:
    """Demand of a replica's requests on its steps; times in seconds.

    A step over B sequences takes ``fixed + slope B`` and ``prompt`` for every prompt in it;
    ``per_step`` prompts fill one. ``steps``: that an answer takes. ``places``: for sequences.
    """

    fixed: FloatArray
    slope: FloatArray
    prompt: FloatArray
    per_step: FloatArray
    steps: FloatArray
    places: FloatArray

    @cached_property
    def half_full(self) -> FloatArray:
        """Seconds of half of the prompts that fill a step."""
        return np.asarray(self.prompt * self.per_step / 2)

    @cached_property
    def splits_prompts(self) -> BoolArray:
        """True where a step does not hold a whole prompt."""
        return np.asarray(self.per_step < 1)


@record(kw_only=True)
class QueueState:
    """State of the queue that a request meets; times in seconds.

    ``decode_step``: of the step without prompts; ``load``: share of the time that computes prompts;
    ``met``: mean length of the step in which a request comes, ``met_variance`` its variance;
    ``wait``: until its own prompt would be through if it were alone, beyond that time; ``others``:
    what the prompts that came with it add to its own step; ``stall``: what those that come
    meanwhile add to its answer; ``prompts``: variance of what prompts add to a step, of all steps.
    ``running``: variance of the sequences that decode. A share ``place_share`` waits ``place_time``
    for a place before; ``place_noise``: how much more than at random its queue varies,
    ``place_rate``: requests per second of all places, ``place_fill``: requests that come until an
    empty replica is as full as it gets (`averaged_share`); ``places``: for sequences.
    """

    decode_step: FloatArray
    load: FloatArray
    met: FloatArray
    met_variance: FloatArray
    wait: FloatArray
    others: FloatArray
    stall: FloatArray
    backlog: FloatArray
    filled: FloatArray
    prompts: FloatArray
    running: FloatArray
    place_share: FloatArray
    place_time: FloatArray
    place_noise: FloatArray
    place_rate: FloatArray
    place_fill: FloatArray
    places: FloatArray

    @property
    def place_wait(self) -> FloatArray:
        """Mean seconds of all requests until there is a place."""
        with np.errstate(invalid="ignore"):
            return np.where(self.place_share > 0, self.place_share * self.place_time, 0.0)


def queue_state(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    work: StepDemand,
    rate: FloatArray,
    decoding: FloatArray,
) -> QueueState:
    """Return queueing delays of a replica at a ``rate`` [1/s] with ``decoding`` sequences.

    Requests of an open load arrive at random times, mostly in long steps, and long steps bring more
    of them. In a closed loop as many arrive in a step as answers end in it.
    """
    is_open = inputs.workload.request_rate is not None
    return (_open_queue if is_open else _closed_queue)(inputs, configurations, work, rate, decoding)


def _closed_queue(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    work: StepDemand,
    rate: FloatArray,
    decoding: FloatArray,
) -> QueueState:
    """Return queueing delays of a replica with a constant number of requests."""
    w, c = inputs.workload, configurations
    step = (work.fixed + work.slope * decoding) / c.pipeline_parallel
    load = np.minimum(rate * work.prompt, _BUSIEST)
    mean = step / (1 - load)
    together = np.maximum(c.concurrency - 1, 0.0)
    met = np.minimum(mean, step + together * work.prompt)
    busy = np.minimum(together, 1.0)
    others = _others_time(work, load, met)
    # What comes with one step fits the next, unless a prompt does not; where prompts stop
    # all answers, no other comes meanwhile.
    wait = met / 2 + others
    if inputs.engine.scheduler.chunked_prefill and work.splits_prompts.any():
        queued = _wait_time(work, step, load, met, w.input_variation, w.output_variation**2)
        wait = np.where(work.splits_prompts, queued, wait)
    longest = step + together * (work.prompt + step / work.per_step)
    zero, prompts = np.zeros(()), load * mean * (work.prompt * (1 + w.input_variation**2))
    return QueueState(
        decode_step=step, load=load, met=met, met_variance=prompts,
        wait=np.minimum(wait, longest) * busy, others=others * busy, stall=zero,
        backlog=zero, filled=load, prompts=prompts, running=zero, place_share=zero,
        place_time=zero, place_noise=zero, place_rate=zero, place_fill=zero, places=work.places,
    )  # fmt: skip


def _open_queue(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    work: StepDemand,
    rate: FloatArray,
    decoding: FloatArray,
) -> QueueState:
    """Return queueing delays of a replica for requests that arrive at random."""
    w, c = inputs.workload, configurations
    mixes = inputs.engine.scheduler.chunked_prefill
    step = (work.fixed + work.slope * decoding) / c.pipeline_parallel
    load = np.minimum(rate * work.prompt, _BUSIEST)
    mean, mixed_step = step / (1 - load), step if mixes else np.zeros(())
    second = work.prompt * (1 + w.input_variation**2)
    busy = -np.expm1(-c.concurrency)
    replicas = num_sharing_replicas(inputs, rate)
    filled = np.minimum(load * (1 + mixed_step / work.per_step / work.prompt), _BUSIEST)
    bursts = w.arrivals.bursts_at(filled, replicas)
    met, met_variance = (
        moment(
            decode_step=step, load=load, work=work.prompt, variation=w.input_variation, mixes=mixes
        )
        for moment in (step_time_at_arrival, step_time_variance_at_arrival)
    )
    others = _others_time(work, load, met)
    wait = _wait_time(work, mixed_step, load, met, w.input_variation, bursts)
    variance, noise = running_variance(
        running=decoding,
        load=load,
        fixed=work.fixed,
        slope=work.slope,
        bursts=w.arrivals.dispersion_at(decoding, replicas),
    )
    answers = np.asarray(work.steps * (work.fixed + work.slope * work.places))
    stopped = work.places
    if mixes:
        # In a pipeline a sequence sees only the prompts of its own micro-batch.
        in_steps = np.where(c.pipeline_parallel > 1, work.steps * work.per_step, np.inf)
        stopped = np.minimum(stopped, in_steps)
    max_rate = np.minimum(work.places / (answers + stopped * work.prompt), 1 / work.prompt)
    share, time = slot_queueing_delay(
        running=decoding,
        slots=work.places,
        variance=variance,
        noise=noise,
        spare_rate=max_rate - rate,
    )
    prompt_step = work.prompt + others + mixed_step
    stall = np.maximum(prompt_step - mean, 0.0) * load / (1 - load) * busy
    backlog = np.zeros(())
    if not w.arrivals.are_random:
        backlog = _backlog(work.prompt * filled / load, filled, w.input_variation, bursts)
        typical = work.steps / np.sqrt(1 + w.output_variation**2)
        full = mixed_step + work.per_step * work.prompt
        longest = typical * full if mixes else np.inf
        stopped = w.arrivals.mean_within(backlog, filled, longest)
        slower = 1 - mean / full if mixes else 1.0
        longer = work.steps / np.maximum(typical, 1.0) / (1 + w.output_variation**2)
        stall = stall + stopped * np.maximum(slower, 0.0) * longer
    return QueueState(
        decode_step=step,
        load=load,
        met=met,
        met_variance=met_variance,
        wait=wait * busy,
        others=others * busy,
        stall=stall,
        backlog=backlog,
        filled=filled,
        prompts=load * mean * second / (1 - load) ** 2,
        running=variance,
        place_share=share,
        place_time=time,
        place_noise=noise,
        place_rate=max_rate,
        place_fill=decoding * (work.fixed + work.slope * decoding) / work.fixed,
        places=work.places,
    )


def _others_time(work: StepDemand, load: FloatArray, met: FloatArray) -> FloatArray:
    """Return seconds that other prompts add to a request's step.

    Half of the step that it meets is left. The prompts that came before it in that step are
    computed before its own, those that came after it in the same step as long as that has room.
    """
    before = load * met / 2
    return np.asarray(before + np.minimum(before, work.half_full))


def _wait_time(
    work: StepDemand,
    step: FloatArray,
    load: FloatArray,
    met: FloatArray,
    variation: float,
    bursts: Numeric = 1.0,
) -> FloatArray:
    """Return seconds that a request waits for its prompt.

    Where one step does not take what comes, prompts queue at a server that takes them one after the
    other, each with its share of the ``step`` of decoding.
    """
    before = load * met / 2
    gated = met / 2 + before + np.minimum(before, work.half_full)
    share = step / work.per_step
    service_time = work.prompt + share
    busy = np.minimum(load * service_time / work.prompt, _BUSIEST)
    queue = mean_queueing_delay(
        utilization=busy, service_time=service_time, variation=variation, bursts=bursts
    )
    queue = queue + step / 2
    return np.maximum(gated, queue + np.minimum(share, 0.5 * step))


def num_sharing_replicas(inputs: ServingInputs, rate: FloatArray) -> FloatArray:
    """Number of replicas that share the load if each has this ``rate`` [1/s]."""
    offered_rate = inputs.workload.request_rate or 0.0
    return np.maximum(offered_rate / np.maximum(rate, 1e-12), 1.0)


def _backlog(prompt: FloatArray, load: FloatArray, variation: float, bursts: Numeric) -> FloatArray:
    """Return mean seconds of waiting prompts that bursts add compared with random arrivals."""
    waits = [
        mean_queueing_delay(utilization=load, service_time=prompt, variation=variation, bursts=b)
        for b in (bursts, 1.0)
    ]
    return np.maximum(waits[0] - waits[1], 0.0)


def steady_noise(work: StepDemand, rate: FloatArray, bursts: Numeric = 1.0) -> FloatArray:
    r"""Return the factor on one sequence's step cost due to the variance of their number.

    A replica gains less from more sequences than it loses from fewer, so that their number
    must be larger on average; the second order of the same diffusion as `running_variance`.
    """
    return arrival_noise(load=np.minimum(rate * work.prompt, _BUSIEST), bursts=bursts)


@record(kw_only=True)
class Line:
    """Requests of clients who start at once and share the ``places`` of a replica.

    Places become free at a ``rate`` [1/s]; ``number`` is infinite for an endless load. ``delay``:
    seconds by which the first answers free places later than at that rate.
    """

    number: Numeric
    clients: Numeric
    places: Numeric
    rate: Numeric
    delay: Numeric

    @property
    def wait(self) -> FloatArray:
        """Mean seconds before a place."""
        return client_burst_wait(**vars(self))

    @property
    def variance(self) -> FloatArray:
        """Variance of these seconds."""
        return client_burst_wait_variance(**vars(self))

    def wait_within(self, share: float) -> FloatArray:
        """Seconds before a place that a ``share`` of the requests does not exceed."""
        return client_burst_wait_quantile(share=share, **vars(self))


CARRIED = 1e-3
"""By this share a rate may be beyond what is carried, which is found in steps."""


@record(kw_only=True)
class OfferedLoad:
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
        """Mask of rates above the capacity."""
        return np.asarray(np.asarray(self.rate) > np.asarray(self.capacity) * (1 + CARRIED))

    @property
    def is_endless(self) -> BoolArray:
        """Mask of rates above the capacity without an end, where the wait is infinite."""
        return np.asarray(self.is_beyond & ~np.isfinite(self.number))

    @cached_property
    def _later(self) -> FloatArray:
        """Seconds by which each request is answered later than the previous one."""
        return np.maximum(1 / np.asarray(self.capacity) - 1 / np.asarray(self.rate), 0.0)

    @cached_property
    def _sent(self) -> FloatArray:
        return np.where(np.isfinite(self.number), self.number, 0.0)

    @cached_property
    def _placed(self) -> FloatArray:
        """Number of requests that find a free slot on arrival."""
        with np.errstate(divide="ignore", invalid="ignore"):
            caught_up = np.where(self._later > 0, self.answer / self._later, np.inf)
        placed = np.where(np.isfinite(self.rate), np.maximum(self.places, caught_up), 0.0)
        return np.minimum(placed, self._sent)

    @cached_property
    def _of_prompts(self) -> FloatArray:
        """Seconds that the last prompt with a place waits at overload."""
        faster = np.maximum(self.prompt - 1 / np.asarray(self.rate), 0.0)
        return np.minimum(self._placed, self.places) * faster

    def _place_after(self, order: Numeric) -> FloatArray:
        """Return seconds that request number ``order`` waits for a slot."""
        return np.maximum(order * self._later - self.answer, 0.0)

    @property
    def mean_wait(self) -> FloatArray:
        """Mean seconds that requests wait for a slot; infinite if overload does not end."""
        placed, sent = self._placed, np.maximum(self._sent, 1e-300)
        waiting = (self._place_after(placed) + self._place_after(sent)) / 2
        wait = (self._of_prompts * placed / 2 + waiting * (self._sent - placed)) / sent
        return np.where(self.is_endless, np.inf, wait)

    @property
    def last_wait(self) -> FloatArray:
        """Seconds that the last request waits for a slot; infinite if overload does not end."""
        waits = self._sent > self._placed
        wait = np.where(waits, self._place_after(self._sent), 0.0)
        wait = np.maximum(wait, self._of_prompts)
        # `burst` has the time that a wave adds to the mean of a burst.
        wait = np.where(np.isfinite(self.rate), wait, self.mean_wait)
        return np.where(self.is_endless, np.inf, wait)

    def wait_within(self, share: float) -> FloatArray:
        """Return the ``share`` quantile of seconds that requests wait for a slot.

        In order of arrival: requests that find a place wait for each other's prompts.
        """
        order, placed = share * self._sent, self._placed
        before = self._of_prompts * np.minimum(order / np.maximum(placed, 1e-300), 1.0)
        wait = np.where(order > placed, np.maximum(self._place_after(order), before), before)
        wait = np.where(np.isfinite(self.rate), wait, self.last_wait * share)
        return np.where(self.is_endless, np.inf, wait)

    def place_wait(self, queue: QueueState, carried: FloatArray) -> FloatArray:
        r"""Return mean seconds of the wait for a slot if random arrivals are ``carried`` [1/s].

        .. math:: P f \left(W_\infty^{-2} + W_0^{-2}\right)^{-1/2}, \quad f = 1 - n / N

        The first n fill an empty replica. The others wait as without an end, :math:`W_\infty`,
        unless all have come before that has built up: it takes as long as
        `critical_load_queueing_delay`,
        :math:`W_0`, says. Faster than they are answered they wait as at the capacity, or in what
        piles up.
        """
        share = np.maximum(1 - queue.place_fill / np.asarray(self.number), 0.0)
        spare = np.maximum(queue.place_rate, self.capacity) - np.asarray(self.rate)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lasting = np.where(spare > 0, queue.place_noise / spare, np.inf)
            ending = critical_load_queueing_delay(
                number=self.number * share,
                rate=carried,
                noise=queue.place_noise,
                capacity=self.capacity,
            )
            wait = 1 / np.hypot(1 / lasting, 1 / ending)
            waiting = queue.place_share * share
            return np.where(waiting > 0, waiting * wait, 0.0)

    def first_wait(self, queue: QueueState, carried: FloatArray) -> FloatArray:
        """Return mean seconds that requests wait for a slot: by chance, or by overload."""
        return np.maximum(self.place_wait(queue, carried), self.mean_wait)

    def until_the_end(self, carried: FloatArray, latency: FloatArray) -> FloatArray:
        """Return the mean request rate [1/s] until the last request is answered.

        That is a ``latency`` after it came, and not sooner than all are ``carried`` at a rate.
        """
        return np.minimum(carried, 1 / (1 / np.asarray(self.rate) + latency / self.number))
