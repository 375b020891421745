"""Replicas that compute prompts and answers together, as candidates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, Numeric
from planner.base.csv_cells import Value
from planner.base.records import record
from planner.confidence.intervals import MEDIAN
from planner.configurations.configuration_tables import (
    OF_PREFILL,
    PREFILL,
    ConfigurationTable,
    ServingConfigurations,
)
from planner.configurations.enumerate import OpenMesh
from planner.configurations.possible_parts import (
    ROWS_OF_A_PREDICTION,
    MeshCodes,
    Part,
    possible_parts,
)
from planner.estimators.inference.batch_share import PrefixHits, ServingInputs
from planner.estimators.inference.burst import emptying_answer, share_until_the_end
from planner.estimators.inference.closed_loop import (
    served_at_concurrency,
    served_at_rate,
    token_time_at_rate,
)
from planner.estimators.inference.continuous_batching import prefix_share
from planner.estimators.inference.percentiles import percentile
from planner.estimators.inference.prefix_hits import (
    ROUNDS,
    PrefixCaches,
    ReplicaLoad,
    cache_sizes,
    caches_at,
    prefixes_at,
    solve_prefix_hits,
)
from planner.estimators.inference.serving_estimate import (
    ServingEstimate,
    broken_serving_rule,
    evaluate_serving,
    serving_rejections,
)
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    has_memory_to_start,
    serving_memory,
)
from planner.estimators.ownership_cost import outlay
from planner.estimators.power_draw import PowerDraw
from planner.optimize.problem import confidence_factors
from planner.optimize.source import Candidates, Columns, Need, Source
from planner.specs.operating_terms import OperatingTerms
from planner.workloads.assumptions import replica_complexity
from planner.workloads.serving.results import (
    AGGREGATED,
    PARAMETERS,
    Deployments,
    ServiceLevels,
    ServingSource,
    cache_of,
    fit_probability,
    image_columns,
    memory_columns,
    needed_memory,
    parameter_columns,
    prefix_cache_columns,
    rounded_up,
)
from planner.workloads.workload import counts, floats, repeated

_GRID = 64
LARGEST_BATCH = _GRID**4


def max_concurrency(source: Source, configurations: ConfigurationTable) -> int:
    """The highest concurrency at which a configuration is accepted; 0: none is.

    Searched in narrowing grids: bytes of a sequence depend on the concurrency.
    """
    source = source.with_immediate_admission
    fewest, step = 0, LARGEST_BATCH // _GRID
    while step:
        grid = fewest + step * np.arange(1.0, _GRID + 1)
        codes = source.rejected(_with_concurrency(configurations, grid))
        accepted = grid[np.broadcast_to(codes == 0, grid.shape)]
        fewest = int(accepted[-1]) if accepted.size else fewest
        step //= _GRID
    return fewest


def at_max_concurrency(source: Source, configurations: ConfigurationTable) -> Candidates | None:
    """Evaluate a configuration at its highest accepted concurrency; None: none is accepted."""
    maximum = max_concurrency(source, configurations)
    if not maximum:
        return None
    return source.with_immediate_admission.judged(
        _with_concurrency(configurations, np.array([float(maximum)]))
    )


def with_filled_cache(
    inputs: ServingInputs,
    configurations: ServingConfigurations,
    memory: ServingMemory,
    run: Callable[[ServingConfigurations], ServingConfigurations] = lambda c: c,
) -> ServingConfigurations:
    """The configurations with the concurrency that fits in the KV cache, where requests wait.

    Configurations are unchanged if all requests fit, if the engine does not start, or if not even
    one request fits. ``memory``: memory of the configurations; ``run``: maps configurations with
    another concurrency to those that then run.
    """
    c = configurations
    if np.all(memory.most_sequences >= c.concurrency):
        return c
    single_request = run(replace(c, concurrency=np.ones_like(c.concurrency)))
    single_memory = serving_memory(inputs, single_request)
    runs = (single_memory.most_sequences >= 1) & has_memory_to_start(
        inputs, single_memory, single_request
    )
    # Of fewer requests each may take more, so that not even those that more have room for fit.
    middle = np.where(runs, np.minimum(memory.most_sequences, c.concurrency), c.concurrency)
    middle = np.maximum(middle, 1.0)
    low = np.where(runs, 1.0, c.concurrency)
    high = c.concurrency + np.zeros_like(low)
    while np.any(high - low > 1):
        attempted = run(replace(c, concurrency=middle))
        fits = serving_memory(inputs, attempted).most_sequences >= middle
        low = np.where(fits, np.maximum(middle, low), low)
        high = np.where(fits, high, np.minimum(middle, high))
        middle = np.ceil((low + high) / 2)
    return replace(c, concurrency=low)


def _with_concurrency(
    configurations: ConfigurationTable, numbers: FloatArray
) -> ConfigurationTable:
    rows = configurations.rows(np.zeros(numbers.size, dtype=np.intp))
    return replace(rows, concurrency=rows.cast("concurrency", numbers))


_BLOCK_ROWS = 2**16


@record(kw_only=True)
class ReplicaSource(ServingSource):
    """Replicas on one GPU with one engine: on fixed GPUs, or as many as the rate needs.

    ``rate_confidence``: how surely plans reach the rate they count on. ``waits``: the concurrency
    is an offered load; requests that do not fit in memory wait.
    """

    inputs: ServingInputs
    mesh: OpenMesh[ServingConfigurations]
    request_rate: float | None
    site: OperatingTerms
    mode: str = AGGREGATED
    rate_confidence: float = MEDIAN
    waits: bool = False

    block_rows = _BLOCK_ROWS
    published = "online"

    @property
    def question_columns(self) -> Mapping[str, Value]:
        """The tokens of a request, and the price of a GPU."""
        prefill = {f"prefill_{name}": value for name, value in OperatingTerms().columns.items()}
        return {**super().question_columns, **prefill}

    @property
    def serves_rate(self) -> bool:
        """Whether requests arrive at a rate."""
        return super().serves_rate or self.request_rate is not None

    def broken(self, configurations: ServingConfigurations) -> CodeArray:
        """The one-based number of the first rule that each configuration breaks; 0: none."""
        return broken_serving_rule(self.inputs, configurations)

    def rejected(self, configurations: ServingConfigurations) -> CodeArray:
        """The one-based number of the rule or memory that rejects each configuration; 0: none."""
        with np.errstate(divide="ignore", invalid="ignore"):
            filled = self.filled(configurations)
            return serving_rejections(self.inputs, filled, serving_memory(self.inputs, filled))

    def possible(
        self, mesh: ServingConfigurations, least_saved: float = ROWS_OF_A_PREDICTION
    ) -> tuple[Sequence[Part], IndexArray]:
        """The parts of a mesh that rules and memory leave, and the counts of what is left out.

        If nothing fits, configurations that only the memory rejects stay: they show how much
        memory is missing.
        """
        parts, dropped = super().possible(mesh, least_saved)
        fitting, counts = list[Part](), dropped.sum(axis=0, keepdims=True)
        for table, _ in parts:
            mesh_codes = MeshCodes.of((self.rejected(table),), table.shape)
            smaller, too_large = possible_parts(table, mesh_codes, len(self.rules), least_saved)
            fitting += smaller
            counts = counts + too_large.sum(axis=0)
        if not fitting:
            return [(table, None) for table, _ in parts], dropped
        return fitting, counts

    def may_fit(self, configurations: ServingConfigurations) -> bool:
        """False if rules or memory reject every configuration."""
        if self.inputs.workload.num_requests is not None:
            return True
        return bool((self.rejected(configurations) == 0).any())

    def judged(
        self, configurations: ServingConfigurations, broken: CodeArray | None = None
    ) -> Replicas:
        """Predict time, memory and rate of every configuration, times its number of replicas.

        ``broken``: codes of broken rules and exceeded memory, as `possible` returns them.
        """
        filled = self.filled(configurations)
        estimate = evaluate_serving(self.inputs, filled, broken)
        if self.inputs.workload.reuse is not None:
            estimate = self._reusing(estimate)
        # At a rate, those that have no room are in what piles up.
        if filled is not configurations and self.inputs.workload.request_rate is None:
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                served = served_at_concurrency(self.inputs, configurations, estimate.memory)
            estimate = replace(estimate, served=served)
        replicas = Replicas(
            source=self,
            configurations=configurations,
            rejected_by=estimate.rejected_by,
            estimate=estimate,
            promises=self._promises(estimate),
        )
        # What a number of requests at a rate meets is no share of what clients who wait meet.
        return replicas if self.inputs.workload.num_requests is None else replicas.at_load

    def _reusing(self, estimate: ServingEstimate) -> ServingEstimate:
        """The estimate with the prefix-cache hit rates that each configuration has at capacity."""

        def again(prefixes: PrefixHits) -> ServingEstimate:
            inputs = replace(self.inputs, prefixes=prefixes)
            return evaluate_serving(inputs, estimate.configurations, estimate.rejected_by)

        return solve_prefix_hits(estimate, again, self._prefixes)

    def _prefixes(self, estimate: ServingEstimate) -> PrefixHits:
        """The prefix-cache hits of an estimate if all batch slots are in use."""
        c, promises = estimate.configurations, self._promises(estimate)
        load = ReplicaLoad(
            replicas=promises.num_gpus / c.replica_gpus,
            rate=promises.request_rate,
            running=c.concurrency,
        )
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return prefixes_at(self.inputs, c, estimate.memory, load)

    @property
    def with_immediate_admission(self) -> ReplicaSource:
        """The source in which all requests must fit in memory at once."""
        return replace(self, waits=False)

    def filled(self, configurations: ServingConfigurations) -> ServingConfigurations:
        """The configurations with the concurrency that fits in the KV cache, if requests wait.

        Unchanged if no request waits.
        """
        if not self.waits:
            return configurations
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            memory = serving_memory(self.inputs, configurations)
            return with_filled_cache(self.inputs, configurations, memory)

    def with_rate_confidence(self, confidence: float) -> ReplicaSource:
        """The source whose plans reach a specified request rate with this ``confidence``."""
        return replace(self, rate_confidence=confidence)

    def rate_share(self, configurations: ServingConfigurations) -> Numeric:
        """The share of the predicted request rate that plans count on."""
        return confidence_factors(self, configurations, "request_rate", self.rate_confidence, -1)

    def _promises(self, estimate: ServingEstimate) -> ServiceLevels:
        """The service levels at capacity: GPUs, rate [1/s], latencies [s], free memory [bytes]."""
        c, served = estimate.configurations, estimate.served
        replicas = c.data_parallel
        if not self.counts and self.request_rate is not None:
            replicas = rounded_up(self.request_rate / (served.request_rate * self.rate_share(c)))
        num_gpus = replicas * c.replica_gpus
        capacity = self.inputs.machine.gpu.allocatable_memory
        work, makespan, rate = self.inputs.workload, None, served.request_rate
        if work.num_requests is not None and work.request_rate is None:
            at_once = self.inputs.engine.scheduler.max_num_seqs * c.attention_data_parallel
            running = np.minimum(c.concurrency, at_once)
            requests_per_replica = work.num_requests / replicas
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                reported = share_until_the_end(
                    self.inputs, c, served, running, requests_per_replica
                )
                # As a benchmark reports it, until its last answer.
                rate = rate * reported
                makespan = requests_per_replica / rate
        return ServiceLevels(
            num_gpus=num_gpus,
            request_rate=rate * replicas,
            time_to_first_token=served.time_to_first_token,
            time_per_output_token=served.time_per_output_token,
            memory_headroom=capacity - estimate.peak_memory,
            price=self.site.rate(num_gpus),
            makespan=makespan,
        )


@record(kw_only=True, repr=False)
class Replicas(Deployments):
    """Deployments of replicas that do all."""

    estimate: ServingEstimate

    @property
    def inputs(self) -> ServingInputs:
        """The machine, model, engine and requests, with their prefix-cache hits."""
        return self.estimate.inputs

    def moved(self, source: ReplicaSource) -> Replicas:
        """The replicas with the operating terms (prices, power) of ``source``; same predictions."""
        price = source.site.rate(self.num_gpus)
        return replace(self, source=source, promises=replace(self.promises, price=price))

    def percentile(self, quantity: str, share: float) -> FloatArray:
        """The latency [s] that a ``share`` of the requests does not exceed.

        At most the makespan of a fixed number of requests.
        """
        seconds, makespan = percentile(self.estimate, quantity, share), self.promises.makespan
        if makespan is None or quantity == "time_per_output_token":
            return seconds
        return np.minimum(seconds, makespan)

    @property
    def held(self) -> ServingConfigurations:
        """The configurations with the concurrency that fits in memory, if requests wait."""
        return self.estimate.configurations

    @property
    def in_flight(self) -> FloatArray:
        """Requests of one replica in flight; of a fixed number of requests, with waiting ones."""
        if self.promises.offered is not None and self.promises.makespan is not None:
            replicas = self.num_gpus / self.configurations.replica_gpus
            return np.asarray(self.request_rate * self.request_latency / replicas)
        return self.estimate.served.in_flight

    @property
    def request_latency(self) -> FloatArray:
        """Seconds from arrival to the last token."""
        if self.estimate.served.traced is None:
            return super().request_latency
        return self.estimate.request_latency

    @property
    def queued_prompt(self) -> FloatArray:
        """Seconds of one prompt in the prefill queue."""
        return self.estimate.served.phases.queued

    @property
    def last_answer(self) -> FloatArray:
        """Seconds of an answer while the batch empties and no prompts arrive."""
        return emptying_answer(self.inputs, self.estimate.served)

    def token_time_at_rate(self, rate: float) -> FloatArray:
        """Seconds per output token at a request rate [1/s]."""
        replica_rate = rate * self.configurations.replica_gpus / self.num_gpus
        return token_time_at_rate(self.inputs, self.configurations, replica_rate)

    def at_rate(self, rate: float) -> Replicas:
        """The replicas at a total request rate [1/s], which all replicas share evenly."""
        c, estimate, inputs = self.held, self.estimate, self.inputs
        replicas = self.num_gpus / c.replica_gpus
        at_once = inputs.engine.scheduler.max_num_seqs * c.attention_data_parallel
        offered = self.offered(rate, replicas, np.minimum(c.concurrency, at_once))
        served = served_at_rate(inputs, c, estimate.memory, offered)
        if inputs.prefixes is not None:
            # Fewer are in it than at its capacity, so that more is kept, so that fewer are.
            for _ in range(ROUNDS):
                carried, running = served.request_rate * replicas, served.in_flight
                load = ReplicaLoad(replicas=replicas, rate=carried, running=running)
                inputs = replace(inputs, prefixes=prefixes_at(inputs, c, estimate.memory, load))
                served = served_at_rate(inputs, c, estimate.memory, offered)
        promises = self.promised_at(
            offered=offered,
            replicas=replicas,
            carried=served.request_rate,
            first=served.time_to_first_token,
            token=served.time_per_output_token,
        )
        estimate = replace(estimate, inputs=inputs, served=served)
        return replace(self, estimate=estimate, promises=promises)

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """The complexity of some plans; 0: the simplest."""
        num_gpus = self.at(self.num_gpus, rows)
        return replica_complexity(self.inputs, self.configurations.rows(rows), num_gpus)

    @property
    def memory(self) -> tuple[Need, Need]:
        """(Needed, usable) bytes of host memory per GPU, and of the fullest GPU."""
        memory, configurations = self.estimate.memory, self.estimate.configurations
        return needed_memory(
            self.inputs, memory, configurations, cache_of(memory, configurations.concurrency)
        )

    def fit_probability_at(self, rows: IndexArray) -> FloatArray:
        """The probability that the fullest GPU has enough memory, for plans at ``rows``."""
        memory, c = self.estimate.memory, self.estimate.configurations
        return fit_probability(self.inputs, memory, c, lambda values: self.at(values, rows))

    @property
    def draws(self) -> tuple[PowerDraw, ...]:
        """The electric power of all GPUs, by part; near the design power during prefill."""
        return (self.drawn(self.estimate.served.utilization),)

    @property
    def outlay(self) -> FloatArray | None:
        """USD for one contract term of all GPUs, or for buying them; None: no term."""
        return outlay(self.source.site, self.num_gpus)

    @property
    def prompt_price(self) -> FloatArray:
        """The price of the GPU time that computes prompts [USD/s].

        The price of all GPU time if nothing is generated.
        """
        if self.inputs.workload.embeds:
            return self.promises.price
        return self.promises.price * self.estimate.served.utilization

    @property
    def caches(self) -> PrefixCaches:
        """The prefix caches, at the answered rate."""
        replicas = self.num_gpus / self.held.replica_gpus
        load = ReplicaLoad(replicas=replicas, rate=self.request_rate, running=self.in_flight)
        return caches_at(self.inputs, self.held, self.estimate.memory, load)

    @property
    def cache_sizes(self) -> tuple[FloatArray, ...]:
        """Bytes of each prefix cache, with host memory and drives."""
        return cache_sizes(self.inputs, self.estimate.memory)

    @property
    def prefix_share(self) -> FloatArray:
        """The share of prefill time that attention to cached tokens takes."""
        return prefix_share(self.inputs, self.configurations)

    def columns(self) -> Columns:
        """The result columns: source, configuration, service levels at the load, memory."""
        if self.at_load is not self:
            return self.at_load.columns()
        c, shape, estimate = self.configurations, self.shape, self.estimate
        without = ("prefill_gpu", "prefill_replicas", *(PREFILL + name for name in OF_PREFILL))
        return {
            **self.named(),
            "replicas": counts(self.num_gpus / c.replica_gpus, shape),
            **parameter_columns(c, PARAMETERS),
            **repeated(dict.fromkeys((*without, "transfer_time_s")), shape),
            **self.promised(),
            "utilization": floats(estimate.served.utilization, shape),
            **image_columns(self.inputs, c, estimate.served.request_rate, shape),
            **prefix_cache_columns(self.inputs.prefixes, shape),
            **memory_columns(self.inputs, estimate.memory, c, shape),
            **self.preempted(estimate.memory, self.held),
        }
