"""The request rate of a replica at a concurrency, by Little's law."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import (
    Phases,
    decode_steps,
    gathered_prompts,
    new_tokens,
    outside_engine,
    prompt_room,
    requests_sent,
)
from planner.estimators.inference.queueing_delay import (
    QueueState,
    StepDemand,
    num_sharing_replicas,
    queue_state,
    steady_noise,
)
from planner.formulas.draining import mean_overlap_share, synchronized_share
from planner.formulas.queueing import mean_if_positive

_PROMPT_ROUNDS = 2
# Share of the clients with equal requests that stay together in the next wave.
_STILL_TOGETHER = 0.9
LEAST_SHARE = 1e-6
"""A queue that has less than this share of the engine left is as long as its clients make it."""


def step_demand(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    costs: Phases,
    running: FloatArray,
    places: FloatArray,
) -> StepDemand:
    """Return what requests need of the steps of a replica with ``running`` requests."""
    return StepDemand(
        fixed=costs.fixed,
        slope=costs.slope,
        prompt=costs.added,
        per_step=prompt_room(inputs, configurations, running) / new_tokens(inputs),
        steps=decode_steps(inputs),
        places=places,
    )


@record(kw_only=True)
class ReplicaState:
    """State of a replica at a request rate; times in seconds.

    ``step``: of a step of an answer with the prompts that stop it; ``answer``: of all of them;
    ``first``: from a place to the first token.
    """

    step: FloatArray
    answer: FloatArray
    first: FloatArray
    queue: QueueState


@record(kw_only=True)
class Loop:
    """The requests of a replica: at most ``running`` of them have places.

    A request of a closed loop sees the state without itself (the arrival theorem [1]_, in
    Schweitzer's approximation [2]_). A request that arrives at random sees the mean state.

    References
    ----------
    .. [1] M. Reiser and S. Lavenberg, "Mean-value analysis of closed multichain queuing
       networks," 1980, Journal of the ACM 27(2).
    .. [2] P. Schweitzer, "Approximate analysis of multiclass closed networks of queues," 1979.
    """

    inputs: ServingInputs
    configurations: ServingConfigurations
    costs: Phases
    work: StepDemand
    running: FloatArray

    @cached_property
    def together(self) -> Numeric:
        """Share of the requests that start with all others that have a place."""
        in_step = np.minimum(self.work.per_step, 1.0)
        clients = self.running * self.configurations.data_parallel
        return together_share(self.inputs, clients, in_step)

    @cached_property
    def burst(self) -> FloatArray:
        """Seconds in which prompts that started together wait for each other."""
        costs = self.costs
        last = (self.running + costs.together) / 2 * costs.queued
        return np.asarray(self.together * np.maximum(last - costs.prefill, 0.0))

    @cached_property
    def spread(self) -> FloatArray:
        """Seconds from the mean to the last of those prompts."""
        costs = self.costs
        half = np.maximum(self.running - costs.together, 0.0) / 2 * costs.queued
        return np.asarray(np.minimum(half, self.burst / np.maximum(self.together, 1e-12)))

    @cached_property
    def before_the_first(self) -> FloatArray:
        r"""Return seconds until the first answers of a simultaneous start, minus steady state.

        .. math:: R w + n t (1 - c^2) / 2

        Their prompts come first. Of a renewal process that starts anew, answers of n steps are
        late by so much [1]_.

        References
        ----------
        .. [1] D. Cox, "Renewal Theory," Methuen, 1962, section 4.2.
        """
        costs, work = self.costs, self.inputs.workload
        late = (1 - work.output_variation**2) / 2
        answer = self.work.steps * costs.decode_step(self.running)
        return np.asarray(np.maximum(self.running * costs.queued + late * answer, 0.0))

    @cached_property
    def thinned(self) -> FloatArray:
        """Share of the sequences that a token misses at the end of a finite number of requests."""
        missed = 1 - mean_overlap_share(self.inputs.workload.output_variation)
        return np.asarray(missed / np.maximum(self.waves, 1.0))

    @property
    def outside(self) -> float:
        """Seconds in which a client's request is not in the engine."""
        return outside_engine(self.inputs)

    @property
    def _is_open(self) -> bool:
        return self.inputs.workload.request_rate is not None

    @cached_property
    def _separate_share(self) -> Numeric:
        """Share of the requests that start apart from the others."""
        return 1 - self.together

    @cached_property
    def _simultaneous(self) -> FloatArray:
        """Number of other requests that start with a request."""
        return np.asarray(self.together * np.maximum(self.running - 1, 0.0))

    @cached_property
    def _behind(self) -> FloatArray:
        """Seconds of a step in which requests that start together wait for each other's prompts.

        Half of the prompts come after a request's own, none after that of the last. An engine that
        mixes them with answers puts no more into a step than fill it.
        """
        half = self._simultaneous * self.costs.queued / 2 / np.maximum(self.work.steps, 1.0)
        if not self.inputs.engine.scheduler.chunked_prefill:
            return np.asarray(half)
        full = self._prompts_that_fill
        stopped = np.maximum(2 * half / np.maximum(full, 1e-300), 1.0)
        return np.asarray(np.where(stopped > 1, full * (1 - 1 / (2 * stopped)), half))

    @cached_property
    def _group_step_time(self) -> FloatArray:
        """Seconds of a step with a request's sequence and those that start with it."""
        return np.asarray(self.costs.fixed + (1.0 + self._simultaneous) * self.costs.slope)

    @cached_property
    def _rounded_up(self) -> FloatArray:
        """Part of a step by which rounding up exceeds the steps of a prompt."""
        return np.asarray(np.ceil(self.costs.parts - 1e-9) - self.costs.parts)

    @cached_property
    def _others(self) -> Numeric:
        """Share of the requests of other clients."""
        if self._is_open:
            return 1.0
        return np.maximum(self.running - 1, 0.0) / self.running

    @cached_property
    def _meets_others(self) -> Numeric:
        """0 of a request that is alone, else 1."""
        return 1.0 if self._is_open else np.clip(self.running - 1, 0.0, 1.0)

    @cached_property
    def waves(self) -> FloatArray:
        """Requests of a replica over those that run at once; infinite where they never end."""
        return np.asarray(requests_sent(self.inputs, self.configurations) / self.running)

    @property
    def rate_bound(self) -> FloatArray:
        """Upper bound of a replica's request rate [1/s]: without waits, or with a busy engine."""
        costs, work = self.costs, self.work
        unloaded = costs.prompt_time + work.steps * (costs.fixed + costs.slope) + self.outside
        busy_time = costs.prompt(costs.most) + work.steps * costs.slope
        if self.inputs.engine.scheduler.chunked_prefill and not self.inputs.workload.embeds:
            # Steps that are full of prompts have a beginning, too.
            busy_time = busy_time + costs.fixed / np.minimum(work.per_step, self.running)
        busy_time = busy_time * self._meets_others
        if (prefixes := self.inputs.prefixes) is not None:
            busy_time = np.maximum(
                busy_time, prefixes.cache_load_time
            )  # one after the other over a link
        return np.minimum(self.running / unloaded, 1 / np.maximum(busy_time, 1e-300))

    def held(self, rate: FloatArray) -> FloatArray:
        """Return the requests that have a slot in the engine at a ``rate`` [1/s]."""
        in_engine = self.configurations.concurrency - rate * self.outside
        return np.minimum(in_engine, self.running)

    def full(self, rate: FloatArray) -> FloatArray:
        """Logarithm of the requests at a rate over those held; positive where they exceed them."""
        state = self.at(rate)
        return np.asarray(np.log(rate * (state.first + state.answer) / self.held(rate)))

    def at(self, rate: FloatArray, most: Numeric | None = None) -> ReplicaState:
        """Return the state of a replica at a ``rate`` [1/s] with at most ``most`` sequences."""
        inputs, costs, work = self.inputs, self.costs, self.work
        step = self._step(rate)
        if most is not None:
            step = np.minimum(step, most / (rate * work.steps))
        answer = work.steps * step
        decoding = rate * answer
        queue = queue_state(inputs, self.configurations, work, rate, decoding)
        rounded = self._rounded_up * queue.decode_step
        between = _scheduled_after(inputs, rate, costs, decoding)
        wait = queue.wait * self._separate_share
        # Long answers meet more of the prompts that an open load sends while others are computed.
        longer = queue.stall * (1 + inputs.workload.output_variation**2)
        return ReplicaState(
            step=step + longer / np.maximum(work.steps, 1.0),
            answer=answer + queue.stall,
            first=costs.prompt_time + rounded + wait + between + self.burst,
            queue=queue,
        )

    def prompt(self, rate: FloatArray) -> FloatArray:
        r"""Return engine seconds per prompt if prompts arrive at a ``rate`` [1/s].

        .. math:: B = (1 - q) g(d) + q g(c), \quad q = 1 - e^{-c}, \quad
            g(x) = \frac{x}{1 - e^{-x}}

        Derived here: in steps of their own, prompts are computed with those that came in the step
        before, which was one of decoding or, as often as one comes in it, one of prompts. Of a
        closed loop, as many come in one of decoding, d, as answers end in it, and in one of
        prompts, c, those of clients that have none in the engine.
        """
        costs, size = self.costs, self.costs.gathered
        if self.inputs.engine.scheduler.chunked_prefill:
            return costs.prefill
        decode, longest = gathered_prompts(self.inputs, self.running), self.outside
        if self._is_open:
            decode, longest = rate * costs.decode_step(self.running), np.inf
        for _ in range(_PROMPT_ROUNDS):
            arrivals = rate * np.minimum(costs.prompt(size) * size, longest)
            again = -np.expm1(-arrivals)
            size = (1 - again) * mean_if_positive(decode) + again * mean_if_positive(arrivals)
            size = np.minimum(np.maximum(size, costs.gathered), costs.most)
        return costs.prompt(size)

    def _step(self, rate: FloatArray) -> FloatArray:
        r"""Return seconds of a decode step of an answer, with the prompts that delay the step.

        .. math:: t = \frac{a + \kappa b + g (B - 1) (b + w_q / 2 n)}
            {1 - (1 - g) \lambda_o (w + n b)}

        A step over B sequences takes a + b B, and of the others :math:`\lambda_o n t` decode. A
        share :math:`\lambda_o w` of the time computes their prompts. Where all come together, g,
        all decode, and half of the prompts come first. :math:`\kappa` is 1, and more where an
        open load varies (`running_variance`). An engine that mixes prompts with answers puts no
        more of them into a step than fill it.
        """
        costs, work = self.costs, self.work
        others = self._others * rate * self._separate_share
        base = self._group_step_time
        if self._is_open:
            bursts = self.inputs.workload.arrivals.dispersion_at(
                self.running, num_sharing_replicas(self.inputs, rate)
            )
            base = (
                costs.fixed + (steady_noise(work, rate, bursts) + self._simultaneous) * costs.slope
            )
        left = 1 - others * work.steps * costs.slope
        stopped = others * self.prompt(others)
        step = (base + self._behind) / np.maximum(left - stopped, LEAST_SHARE)
        if not self.inputs.engine.scheduler.chunked_prefill:
            return step
        return np.minimum(step, self._full_step(base, left))

    @cached_property
    def _prompts_that_fill(self) -> FloatArray:
        """Seconds of the prompts that fill a step."""
        return np.asarray(self.work.per_step * self.costs.prefill)

    def _full_step(self, base: FloatArray, left: FloatArray) -> FloatArray:
        """Seconds of a step full of prompts, in the share that other answers leave of the time."""
        return np.asarray((base + self._prompts_that_fill) / np.maximum(left, LEAST_SHARE))

    def saturated(self, rate: FloatArray, state: ReplicaState) -> ReplicaState:
        """Return the state in which all requests that are held are somewhere at a ``rate`` [1/s].

        Where prompts take all of the engine's time, some always wait. An engine that mixes them
        with answers fills every step with them, and answers take as long; further requests wait
        for their first token. None follow the last wave of a finite number.
        """
        spare = np.maximum(self.held(rate) / rate - state.first - state.answer, 0.0)
        spare = spare * (1 - 1 / np.maximum(self.waves, 1.0))
        answer = state.answer
        if self.inputs.engine.scheduler.chunked_prefill and not self._is_open:
            crowd = self._others * rate * self._separate_share * self.work.steps * self.costs.slope
            full = self.work.steps * self._full_step(self._group_step_time, 1 - crowd)
            full = np.maximum(full - answer, 0.0) * self._meets_others
            answer = answer + np.minimum(spare, full)
        longer = np.where(state.answer > 0, answer / np.maximum(state.answer, 1e-300), 1.0)
        first = state.first + spare - (answer - state.answer)
        return replace(state, step=state.step * longer, answer=answer, first=first)


def _scheduled_after(
    inputs: ServingInputs, rate: FloatArray, costs: Phases, decoding: FloatArray
) -> Numeric:
    """Return seconds that a request waits for the scheduler's next poll or a full batch.

    The first request of a batch waits the full time, later ones half of it on average.
    """
    scheduler = inputs.engine.scheduler
    if scheduler.poll_interval == 1 and not scheduler.batch_wait:
        return 0.0
    step = costs.decode_step(decoding)
    looks = (scheduler.poll_interval - 1) * step / 2
    if not scheduler.batch_wait:
        return looks
    batch_wait = scheduler.batch_wait * step
    others = rate * batch_wait
    return looks + batch_wait * (1 + others / 2) / (1 + others)


def together_share(inputs: ServingInputs, clients: Numeric, in_step: Numeric = 1.0) -> Numeric:
    """Return the share of requests that start together with those of all other clients.

    In a closed loop all ``clients`` start at once. With varying lengths only the first wave is
    simultaneous; with equal lengths also later waves, by the share of clients still together.
    If a step holds only a share of a prompt, ``in_step``, prompts start one after the other. Of
    other requests of varying lengths, the engine's scheduler gathers a share again.
    """
    work, scheduler = inputs.workload, inputs.engine.scheduler
    if work.request_rate is not None:
        return 0.0
    if work.equal_lengths and not scheduler.chunked_prefill:
        return 1.0
    often = 0.0 if work.equal_lengths else scheduler.clustering
    if work.num_requests is None:
        return often
    waves = np.maximum(np.asarray(work.num_requests / clients), 1.0)
    still_together = _STILL_TOGETHER * in_step if work.equal_lengths else 0.0
    share = synchronized_share(waves=waves, still_together=still_together)
    return np.asarray(share + (1 - share) * often)
