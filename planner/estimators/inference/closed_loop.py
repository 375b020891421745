"""Rate and latencies of a replica with a constant number of requests, in closed form."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.adapters import adapter_load_time
from planner.estimators.inference.balance import LEAST_SHARE, Loop, step_demand
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import (
    Phases,
    decode_steps,
    front_end_times,
    phases,
    request_overhead,
    requests_sent,
    tokens_per_step,
)
from planner.estimators.inference.queueing_delay import (
    Line,
    OfferedLoad,
    QueueState,
    StepDemand,
    num_sharing_replicas,
)
from planner.estimators.inference.serving_memory import ServingMemory
from planner.formulas.queueing import (
    finite_run_time_per_token_ratio,
    mean_if_positive,
    mean_queueing_delay,
    solve_concurrency,
    solve_rate,
)
from planner.formulas.trace_queueing import simulate_fluid_queue, weighted_quantile
from planner.specs.arrivals import CLASSES, POINT_WEIGHTS, POINTS, Arrivals, TracePaths, classes_of
from planner.specs.validated import replace_unvalidated


@record(kw_only=True)
class RequestMeans:
    """Means over the requests of one replica; times in seconds.

    ``decoding``: sequences in a step; ``utilization``: share of the engine's time in which
    prompts are computed; ``wait``: seconds a prompt queues; ``placed_first``: from its place
    among the sequences to the first token, ``burst`` of them behind prompts that started with it,
    as a share ``together`` of the requests does, and ``spread`` from the first of them to the mean;
    ``line``: requests of clients who wait for a place; ``intake_time``: seconds in which the server
    takes in the requests of clients who start at once; ``queue``: what it meets; ``offered``: the
    requests that come at a rate, and what piles up of them; ``traced``: the classes of those whose
    rate moves.
    """

    phases: Phases
    in_flight: FloatArray
    decoding: FloatArray
    utilization: FloatArray
    wait: FloatArray
    placed_first: FloatArray
    burst: FloatArray
    together: Numeric
    spread: FloatArray
    line: Line
    intake_time: FloatArray
    time_per_output_token: FloatArray
    request_rate: FloatArray
    queue: QueueState
    offered: OfferedLoad | None = None
    traced: RateClasses | None = None

    @property
    def place_wait(self) -> FloatArray:
        """Mean seconds that a request waits for a slot, with random arrivals."""
        if self.offered is None:
            return self.queue.place_wait
        return self.offered.place_wait(self.queue, self.request_rate)

    @property
    def time_to_first_token(self) -> FloatArray:
        """Mean seconds from a request's arrival to its first token."""
        if self.offered is None:
            return self.placed_first + self.queue.place_wait
        wait = self.offered.first_wait(self.queue, self.request_rate)
        if self.traced is None:
            return self.placed_first + wait
        return self.traced.placed_first + np.maximum(wait, self.traced.piled)

    def request_latency(self, output_tokens: Numeric) -> FloatArray:
        """Seconds from arrival to the last token."""
        later = np.maximum(output_tokens - 1, 0)
        return self.time_to_first_token + later * self.token_of_all

    @property
    def token_of_all(self) -> FloatArray:
        """Mean seconds per output token over all tokens (not the mean over answers)."""
        if self.traced is None:
            return self.time_per_output_token
        t = self.traced
        return self.time_per_output_token * (t.step + t.token_stalled) / (t.step + t.stalled)


@record(kw_only=True)
class RateClasses:
    """Requests whose rate moves more slowly than a replica fills, in classes of one rate each.

    ``classes``: latencies of requests that come at random at the rate of a class, which is no more
    than a replica carries, with the sequences of that share of the windows; the first axis of every
    array is the class. ``replicas``: the replicas that share the requests. ``waits``: seconds that
    they wait for a place in each window of the trace (`simulate_fluid_queue`); ``queued``: mean
    seconds before a ``prompt``, and ``behind`` it in its step, at most ``most_behind`` in a class.
    ``steps``: of answers that come in a second; ``filled``: share of the time of steps with
    prompts, ``prompts`` of it for prompts alone, ``stalls`` that of prompts with as many others as
    usual. ``fullest``: seconds of the prompts of a full step that decodes, too, ``left``: of those
    that come in a step as answers leave all places.
    """

    paths: TracePaths
    classes: RequestMeans
    replicas: FloatArray
    waits: FloatArray
    weights: FloatArray
    queued: FloatArray
    behind: FloatArray
    most_behind: FloatArray
    prompt: FloatArray
    steps: FloatArray
    filled: FloatArray
    stalls: FloatArray
    prompts: FloatArray
    fullest: Numeric
    left: FloatArray

    def mean(self, values: FloatArray) -> FloatArray:
        """Return the mean over all requests of ``values`` of the rate classes."""
        return np.asarray(np.tensordot(CLASSES, np.broadcast_to(values, self.shape), axes=1))

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of the arrays of the classes."""
        return self.classes.request_rate.shape

    @cached_property
    def step(self) -> FloatArray:
        """Mean seconds of a step of an answer without the prompts in it."""
        return self.mean(self.steps_of_classes)

    @property
    def steps_of_classes(self) -> FloatArray:
        """Seconds of a step without prompts in each class."""
        return self.classes.phases.decode_step(self.classes.decoding)

    @property
    def placed_first(self) -> FloatArray:
        """Mean seconds from a place to the first token."""
        return self.mean(self.classes.placed_first) + self.queued + self.behind

    def first_within(self, share: float) -> FloatArray:
        """Return the ``share`` quantile of seconds from a decode slot to the first token.

        The longest queues are in the longest steps.
        """
        through = self.queued + self.prompt
        within = self.paths.through_within(through, self.replicas, self.filled, share)
        behind = np.minimum(self.behind * within / through, self.most_behind)
        steps = np.broadcast_to(self.classes.placed_first - self.prompt + behind, self.shape)
        return within + weighted_quantile(steps, CLASSES, share)

    @property
    def piled(self) -> FloatArray:
        """Mean seconds that requests wait for a slot while the rate exceeds the capacity."""
        return np.asarray((self.weights * self.waits).sum(axis=0))

    def piled_within(self, share: float) -> FloatArray:
        """Seconds that a share of the requests waits so at most."""
        return weighted_quantile(self.waits, self.weights, share)

    def _stalls(self, of: int) -> FloatArray:
        """Return prompt seconds per step of answers: mean over steps (``of`` 0) or over tokens (1).

        A step has no more than it has room for, and while requests wait for places no more than
        come as those are left.
        """
        places, answer = self.classes.queue.places, self.steps * self.step
        stalled = self.paths.stalled(self.replicas, places, answer, self.stalls, of)
        waiting = (self.weights * (self.waits > 0)).sum(axis=0)
        late = np.greater.outer(POINTS, 1 - waiting)
        max_stall = np.minimum(np.where(late, self.left, np.inf), self.fullest)
        return np.minimum(self.step * self.prompts * stalled, max_stall)

    def stalled_within(self, share: float) -> FloatArray:
        """Return the ``share`` quantile over answers of prompt seconds per decode step."""
        right = int(np.clip(np.searchsorted(POINTS, share), 1, POINTS.size - 1))
        x = (share - POINTS[right - 1]) / (POINTS[right] - POINTS[right - 1])
        return np.asarray((1 - x) * self._of_answers[right - 1] + x * self._of_answers[right])

    @cached_property
    def _of_answers(self) -> FloatArray:
        return self._stalls(0)

    @cached_property
    def stalled(self) -> FloatArray:
        """The mean over all answers of `stalled_within`."""
        return np.asarray(np.tensordot(POINT_WEIGHTS, self._of_answers, axes=1))

    @cached_property
    def token_stalled(self) -> FloatArray:
        """The mean over the tokens of all answers."""
        return np.asarray(np.tensordot(POINT_WEIGHTS, self._stalls(1), axes=1))


# Requests in a replica where none come.
_FEWEST = 1e-9


def requests_at_rate(
    inputs: ServingInputs, configurations: ServingConfigurations, rate: FloatArray
) -> FloatArray:
    """Return the requests in a replica at a ``rate`` [1/s]; at most ``concurrency``.

    At most the ``concurrency`` of each configuration. If it is reached, the rate may exceed the
    capacity.
    """
    c = configurations
    ranks = inputs.engine.scheduler.max_num_seqs * c.attention_data_parallel
    max_running = np.minimum(c.concurrency, ranks)
    running = _running_at_rate(inputs, c, rate, max_running)
    return np.where(running < max_running, running, c.concurrency)


def token_time_at_rate(
    inputs: ServingInputs, configurations: ServingConfigurations, rate: FloatArray
) -> FloatArray:
    """Return seconds per output token at a ``rate`` [1/s], without a concurrency limit."""
    c = replace(configurations, concurrency=np.ones(()))
    max_running = inputs.engine.scheduler.max_num_seqs * c.attention_data_parallel
    running = _running_at_rate(inputs, c, rate, max_running)
    loop = _loop_of(inputs, c, running, max_running)
    return loop.at(rate).step / tokens_per_step(inputs)


def _running_at_rate(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    rate: FloatArray,
    max_running: FloatArray,
) -> FloatArray:
    """Return the requests in a replica at a rate by Little's law, at most ``max_running``.

    Steps over few sequences cost more of each than steps over many, of experts most of all.
    """

    def needed(running: FloatArray) -> FloatArray:
        loop = _loop_of(inputs, configurations, running, max_running)
        state = loop.at(rate)
        return np.maximum(rate * (state.first + state.answer + loop.outside), _FEWEST)

    max_running = np.maximum(max_running, _FEWEST)
    return solve_concurrency(
        required=needed, start=np.minimum(max_running, 1.0), upper_bound=max_running
    )


def _loop_of(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    running: FloatArray,
    places: FloatArray,
) -> Loop:
    """Return the closed `Loop` of a replica with ``running`` requests in progress."""
    c = replace(configurations, concurrency=running)
    costs = phases(inputs, configurations, running)
    work = step_demand(inputs, c, costs, running, places)
    return Loop(inputs=inputs, configurations=c, costs=costs, work=work, running=running)


def served_at_rate(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    offered: OfferedLoad,
    running: FloatArray | None = None,
) -> RequestMeans:
    """Return mean latencies of requests at an offered rate, with the queue before a slot.

    ``running``: concurrency at which requests are answered as fast as they come, or the capacity,
    if computed before.
    """
    if running is None:
        running = requests_at_rate(inputs, configurations, np.asarray(offered.rate))
    c = replace(configurations, concurrency=running)
    served = replace(served_at_concurrency(inputs, c, memory), offered=offered)
    if inputs.workload.num_requests is not None:
        return _serve_finite_load(inputs, served, offered)
    paths = inputs.workload.arrivals.paths
    return served if paths is None else _serve_trace(inputs, c, served, paths)


def _serve_trace(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    served: RequestMeans,
    paths: TracePaths,
) -> RequestMeans:
    """Return mean latencies of requests of a trace with varying rate."""
    queue, costs, rate = served.queue, served.phases, served.request_rate
    replicas, mixes = num_sharing_replicas(inputs, rate), inputs.engine.scheduler.chunked_prefill
    work = step_demand(inputs, configurations, costs, served.in_flight, queue.places)
    calm = replace(inputs, workload=replace_unvalidated(inputs.workload, arrivals=Arrivals()))
    loop = Loop(
        inputs=calm, configurations=configurations, costs=costs, work=work,
        running=served.in_flight,
    )  # fmt: skip
    fullest = work.per_step * work.prompt if mixes else np.inf
    rates = np.minimum(np.multiply.outer(paths.rates, rate), queue.place_rate)
    states = loop.at(rates, most=work.places)
    prompt = loop.prompt(rate)
    if mixes:
        arrivals = mean_if_positive(rates * states.queue.met)
        single_share = np.tensordot(CLASSES, 1 / np.minimum(arrivals, costs.most), axes=1)
        prompt = work.prompt + (prompt - work.prompt) * single_share
    drifted = drift_effects(paths, replicas, rate, costs, work, prompt=prompt, fullest=fullest)
    # The path of the trace has the queue; a class adds the waits of its steps.
    service_time = work.prompt * states.queue.filled / states.queue.load
    w = inputs.workload
    queued = mean_queueing_delay(
        utilization=states.queue.filled, service_time=service_time, variation=w.input_variation
    )
    # A prompt has the step that it meets, and the prompts behind it of a full step.
    max_rest = states.queue.decode_step + work.half_full
    excess = np.clip(states.queue.wait - queued, 0.0, max_rest)
    served_prompt = work.prompt * queue.filled / queue.load
    path, random = (
        mean_queueing_delay(
            utilization=queue.filled,
            service_time=served_prompt,
            variation=w.input_variation,
            bursts=bursts,
        )
        for bursts in (paths.bursts_at(replicas, queue.filled), 1.0)
    )
    # Requests that come in turn meet fewer prompts in the steps of others, too.
    step_rest = np.minimum(states.queue.decode_step / 2, excess)
    excess = step_rest + (excess - step_rest) * np.clip(path / random, 0.0, 1.0)
    # Each of several simultaneous requests has the prompts behind it in its step.
    behind = paths.mean_within(np.maximum(path, 0.0), replicas, queue.filled, work.half_full)
    others = calm.workload.arrivals.mean_within(queued, states.queue.filled, work.half_full)
    others = np.tensordot(CLASSES, others, axes=1)
    classes = replace(
        served,
        decoding=drifted.decoding,
        placed_first=states.first
        - states.queue.wait
        + excess
        + request_overhead(inputs)
        + costs.passed_on,
        time_per_output_token=states.step / tokens_per_step(inputs),
        request_rate=rates,
        queue=states.queue,
        offered=None,
    )
    traced = RateClasses(
        paths=paths,
        classes=classes,
        replicas=replicas,
        waits=drifted.waits,
        weights=drifted.weights,
        queued=np.maximum(path, 0.0),
        behind=np.maximum(behind - others, 0.0),
        most_behind=max_rest - excess,
        prompt=served_prompt,
        steps=rate * work.steps,
        filled=queue.filled,
        stalls=queue.filled * prompt / work.prompt,
        prompts=queue.load / queue.filled,
        fullest=fullest,
        left=np.asarray(
            work.places * work.prompt / work.steps * drifted.longer if mixes else np.inf
        ),
    )
    token = (traced.step + traced.stalled) / tokens_per_step(inputs)
    return replace(served, traced=traced, time_per_output_token=token)


def _serve_finite_load(
    inputs: ServingInputs, served: RequestMeans, offered: OfferedLoad
) -> RequestMeans:
    """Return mean latencies of a finite number of requests: replica fills, then empties."""
    queue, costs = served.queue, served.phases
    # Prompts that are computed alone stop answers for longer than their own work.
    step = served.time_per_output_token * tokens_per_step(inputs)
    load = np.maximum(1 - (costs.fixed + costs.slope * served.decoding) / step, 0.0)
    share = finite_run_time_per_token_ratio(
        number=offered.number,
        rate=offered.rate,
        capacity=offered.capacity,
        steady=served.decoding,
        steps=decode_steps(inputs),
        fixed=costs.fixed,
        slope=costs.slope,
        load=np.maximum(load, queue.load),
    )
    shorter = replace(
        queue,
        wait=queue.wait * share,
        met=queue.met * share,
        met_variance=queue.met_variance * share**2,
        prompts=queue.prompts * share**2,
        running=queue.running * share**2,
    )
    return replace(
        served,
        queue=shorter,
        placed_first=served.placed_first - queue.wait * (1 - share),
        time_per_output_token=served.time_per_output_token * share,
    )


def served_at_concurrency(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    counts: bool | BoolArray = True,
) -> RequestMeans:
    """Return mean latencies of a replica that always has ``concurrency`` requests.

    Requests beyond the KV-cache capacity, or beyond the engine's ``max_num_seqs``, wait for a
    place. The rate follows from Little's law: requests in flight over their latency. Entries that
    ``counts`` excludes may be wrong.
    """
    number = requests_sent(inputs, configurations)
    clients = np.minimum(configurations.concurrency, number)
    c, capacity = replace(configurations, concurrency=clients), memory.most_sequences
    max_seqs = inputs.engine.scheduler.max_num_seqs * c.attention_data_parallel
    places = np.maximum(np.minimum(capacity, max_seqs), 1.0)
    # Without the memory, on which all depends, arrays have the axes that times depend on.
    waits = np.any(counts & (c.concurrency > capacity))
    running = np.minimum(c.concurrency, places if waits else np.maximum(max_seqs, 1.0))
    costs = phases(inputs, c, running)
    work = step_demand(inputs, c, costs, running, places)
    loop = Loop(inputs=inputs, configurations=c, costs=costs, work=work, running=running)
    rate = solve_rate(excess=loop.full, upper_bound=loop.rate_bound * (1 - LEAST_SHARE))
    state = loop.saturated(rate, loop.at(rate))
    # A client outside the engine is not in the queue.
    excess = np.maximum(clients - rate * loop.outside, running)
    line = Line(
        number=number, clients=excess, places=running, rate=rate, delay=loop.before_the_first
    )
    queued = line.wait
    # Each request gives way to the next before its prompt goes to the engine.
    intake_time = np.asarray(clients * front_end_times(inputs, c)[2])
    fewer = costs.slope * np.maximum(rate * state.answer - 1, 0.0) * loop.thinned
    return RequestMeans(
        phases=costs,
        in_flight=clients,
        decoding=rate * state.answer,
        utilization=np.minimum(rate * loop.prompt(rate), 1.0),
        wait=state.first - loop.burst - costs.prompt_time + queued + state.queue.place_wait,
        placed_first=state.first
        + queued
        + costs.passed_on
        + clients / number * intake_time
        + request_overhead(inputs)
        + adapter_load_time(inputs, c),
        burst=loop.burst,
        together=loop.together,
        spread=loop.spread,
        line=line,
        intake_time=intake_time,
        time_per_output_token=(state.step - fewer) / tokens_per_step(inputs),
        request_rate=rate,
        queue=state.queue,
    )


@record(kw_only=True)
class DriftEffects:
    """Effects on requests of replicas that fill and empty along the windows of a trace.

    ``decoding``: sequences in `CLASSES` of the requests; ``waits`` for a place [s] in each window,
    which has a share of the requests of ``weights``; ``longer``: prompts over answers, each over
    its mean, of the requests that wait.
    """

    decoding: FloatArray
    waits: FloatArray
    weights: FloatArray
    longer: FloatArray


def drift_effects(
    paths: TracePaths,
    replicas: FloatArray,
    rate: FloatArray,
    costs: Phases,
    work: StepDemand,
    *,
    prompt: FloatArray,
    fullest: Numeric,
) -> DriftEffects:
    """The windows of the replicas that share the requests, of the nearest number of them."""
    mixes = np.all(np.isfinite(fullest))
    single, added = (costs.prefill, work.prompt) if mixes else (costs.single, costs.another)
    merged: DriftEffects | None = None
    for is_nearest, turns in paths.nearest(replicas):
        shape = (*turns.windows.shape, *[1] * np.ndim(rate))
        requests, prompts, answers = turns.windows.reshape(shape)
        running, waits = (
            array.reshape(-1, *array.shape[2:])
            for array in simulate_fluid_queue(
                requests=requests,
                prompts=prompts,
                answers=answers,
                seconds=paths.requests / replicas / len(prompts) / rate,
                rate=rate,
                fixed=costs.fixed,
                slope=costs.slope,
                steps=work.steps,
                places=work.places,
                prompt=prompt,
                lone=single,
                added=added,
                fullest=fullest,
            )
        )
        weights = requests.reshape(-1, *requests.shape[2:])
        late = (waits > 0) * weights
        ratio = (prompts / np.maximum(answers, 1e-9)).reshape(weights.shape)
        # Windows that do not share out evenly are left out.
        padding = [(0, paths.windows.shape[1] - len(waits)), *[(0, 0)] * (waits.ndim - 1)]
        effects = DriftEffects(
            decoding=classes_of(running, weights.ravel()),
            waits=np.pad(waits, padding),
            weights=np.pad(np.broadcast_to(weights / weights.sum(), waits.shape), padding),
            longer=(ratio * late).sum(axis=0) / np.maximum(late.sum(axis=0), 1e-9),
        )
        if merged is not None:
            earlier = vars(merged)
            effects = DriftEffects(
                **{
                    name: np.where(is_nearest, value, earlier[name])
                    for name, value in vars(effects).items()
                }
            )
        merged = effects
    assert merged is not None
    return merged
