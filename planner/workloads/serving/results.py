"""Predicted service levels of a deployment, in every mode."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, Numeric, add
from planner.base.csv_cells import Value
from planner.base.records import record
from planner.base.units import GIB, HOUR, KILOWATT, KILOWATT_HOUR
from planner.confidence.evidence import OPEN, load_codes, serving_groups
from planner.confidence.intervals import Confidence
from planner.configurations.configuration_tables import SERVING_NAMES, ServingConfigurations
from planner.configurations.serving_rules import SERVING_REJECTING, SERVING_RULES
from planner.estimators.inference.batch_share import PrefixHits, ServingInputs
from planner.estimators.inference.continuous_batching import cached_tokens
from planner.estimators.inference.prefix_hits import PrefixCaches
from planner.estimators.inference.queueing_delay import OfferedLoad
from planner.estimators.inference.serving_memory import (
    SERVING_MEMORY_PARTS,
    ServingMemory,
    longest_request,
    needed_to_start,
    preempted_share,
    sequence_bytes,
)
from planner.estimators.power_draw import PowerDraw, power_draw
from planner.estimators.towers import encoder_inputs, encoder_time
from planner.formulas.cost import cost_per_million
from planner.formulas.draining import longest_answer_ratio
from planner.formulas.power import board_share, carbon
from planner.optimize.source import Candidates, Column, Columns, Need, Source
from planner.question.names import KV_CACHE_SIZE, KV_CACHE_TOKENS, MAX_CONCURRENCY, MOST_SEQUENCES
from planner.question.terms import (
    glossary,
    is_answer_column,
    parse_percentile,
    terms_about,
    terms_of,
)
from planner.specs.operating_terms import OperatingTerms
from planner.specs.power import PowerProfile
from planner.workloads.prediction_confidence import (
    serving_confidence,
    serving_memory_errors,
    with_energy,
)
from planner.workloads.workload import (
    Quantity,
    counts,
    floats,
    format_parameter_column,
    repeated,
    term_columns,
)

MILLION = 1e6
AGGREGATED, DISAGGREGATED, ATTENTION_FFN = "aggregated", "disaggregated", "attention-ffn"
MODES = (AGGREGATED, DISAGGREGATED, ATTENTION_FFN)
POOLED = (DISAGGREGATED, ATTENTION_FFN)
"""Modes with separate workers for prompts."""
PARAMETERS = tuple(name for name in SERVING_NAMES if name != "num_gpus")
PERCENTILES = {
    name: quantity_share
    for name in terms_of("serve", "limit")
    if (quantity_share := parse_percentile(name)) is not None
}
"""Limits on what a share of the requests does not exceed: the quantity and the share."""


@record(kw_only=True)
class ServiceLevels:
    """Arrays that broadcast to the configurations' shape, in SI units.

    ``request_rate`` is that of all replicas; ``memory_headroom`` that of the fullest GPU;
    ``price`` that of all GPUs in USD/s, NaN if unknown. ``capacity``: the requests per second that
    all replicas carry at most, where the others are promised at the rate of a stated load.
    ``offered``: what piles up before one replica, or all pools, at a stated load. ``makespan``:
    seconds until the last of a number of requests is answered.
    """

    num_gpus: FloatArray
    request_rate: FloatArray
    time_to_first_token: FloatArray
    time_per_output_token: FloatArray
    memory_headroom: FloatArray
    price: FloatArray
    capacity: FloatArray | None = None
    offered: OfferedLoad | None = None
    makespan: FloatArray | None = None


@record(kw_only=True)
class ServingSource(Source):
    """Replicas, pools or batches on one engine; ``inputs`` is the decode workers'."""

    inputs: ServingInputs
    counts: tuple[int, ...]
    site: OperatingTerms

    rules = SERVING_REJECTING
    num_rules = len(SERVING_RULES)
    published: ClassVar[str]
    """The mode of published runs of this kind."""

    @property
    def question_columns(self) -> Mapping[str, Value]:
        """The tokens of a request, and the price of a GPU."""
        work = self.inputs.workload
        lengths = {"input_tokens": work.input_tokens, "output_tokens": work.output_tokens}
        slowdown = {"slowdown": self.inputs.slowdown}
        return {**lengths, **slowdown, **self.site.columns, **self.site.grounds}

    def evidence_groups(self, configurations: ServingConfigurations) -> IndexArray:
        """The group of evidence of each configuration: layout, weights and load."""
        return serving_groups(configurations, self.load_of(configurations.concurrency))

    def load_of(self, concurrency: Numeric) -> int | IndexArray:
        """The place in `planner.confidence.evidence.LOADS` for requests of a replica at once."""
        return OPEN if self.serves_rate else load_codes(concurrency)

    @property
    def serves_rate(self) -> bool:
        """Whether requests arrive at a rate."""
        return self.inputs.workload.request_rate is not None

    def _confidence(self, num_gpus: float, group: int) -> Confidence | None:
        """The 90 % intervals of predictions on ``num_gpus`` GPUs, power and energy included."""
        machine, power = self.inputs.machine, self.site.power
        confidence = serving_confidence(
            self.inputs, self.published, group, spans_nodes=self.spans_nodes
        )
        if power is None:
            return confidence
        return with_energy(confidence, machine, self.site, num_gpus, power.decode)

    @property
    def spans_nodes(self) -> bool:
        """True if tensor parallelism crosses nodes (or scale-up domains) in all configurations."""
        cluster = self.inputs.machine.cluster
        domain = max(cluster.gpus_per_node, cluster.scale_up.domain_size)
        return self.mesh is not None and bool(min(self.mesh.values("tensor_parallel")) > domain)


_TokenQuantity = Quantity["TokenGeneration"]


class TokenGeneration(Candidates):
    """Candidates that generate tokens, in streams or batches, with their electricity."""

    source: ServingSource
    configurations: ServingConfigurations

    @property
    def inputs(self) -> ServingInputs:
        """The machine, model, engine and requests."""
        return self.source.inputs

    @property
    @abstractmethod
    def draws(self) -> tuple[PowerDraw, ...]:
        """The electric power of each kind of worker by part."""

    def drawn(self, busy: FloatArray) -> PowerDraw:
        """The power of all GPUs; ``busy``: share of time in prefill, near the design power."""

        def boards(profile: PowerProfile) -> FloatArray:
            active, waiting = profile.prefill.value, profile.decode.value
            return board_share(active=active, waiting=waiting, time_share=busy)

        return power_draw(
            self.inputs.machine, self.source.site.power, self.value("num_gpus"), boards
        )

    @property
    @abstractmethod
    def request_rate(self) -> FloatArray:
        """Requests per second."""

    throughput = _TokenQuantity(
        lambda plans: plans.request_rate * (plans.inputs.workload.output_tokens or np.nan)
    )
    throughput_per_gpu = _TokenQuantity(
        lambda plans: np.asarray(plans.throughput / plans.value("num_gpus"))
    )
    power = _TokenQuantity(lambda plans: np.asarray(add(draw.total for draw in plans.draws)))
    energy_per_million_tokens = _TokenQuantity(
        lambda plans: np.asarray(MILLION * plans.power / plans.priced_tokens)
    )

    @property
    def priced_tokens(self) -> FloatArray:
        """Tokens per second for costs, energy and carbon per token: generated tokens, or prompt
        tokens if nothing is generated."""
        work = self.inputs.workload
        return self.request_rate * (work.output_tokens or work.input_tokens)

    @property
    def prompt_throughput_per_gpu(self) -> FloatArray:
        """Tokens of prompts per second and GPU."""
        tokens = self.request_rate * self.inputs.workload.input_tokens
        return np.asarray(tokens / self.value("num_gpus"))

    @property
    def tokens_per_s(self) -> FloatArray:
        """Tokens of prompts and answers per second."""
        work = self.inputs.workload
        return self.request_rate * (work.input_tokens + work.output_tokens)

    @property
    def carbon_per_million_tokens(self) -> FloatArray:
        """Kilograms of CO2 equivalent for a million generated tokens."""
        energy = self.energy_per_million_tokens
        return carbon(energy=energy, carbon_intensity=self.source.site.carbon_intensity)

    @property
    def energy_columns(self) -> dict[str, FloatArray]:
        """Columns of power, and of energy and carbon per million generated tokens.

        Carbon only if the region is specified.
        """
        columns = {
            "power_kw": self.power / KILOWATT,
            "energy_per_million_tokens_kwh": self.energy_per_million_tokens / KILOWATT_HOUR,
        }
        if self.source.site.is_placed:
            columns["carbon_per_million_tokens_kg"] = self.carbon_per_million_tokens
        return columns


_DeploymentQuantity = Quantity["Deployments"]


@record(kw_only=True, repr=False)
class Deployments(TokenGeneration):
    """Deployments of one mode; what can be optimized or limited, in SI units."""

    source: ServingSource
    configurations: ServingConfigurations
    rejected_by: CodeArray
    promises: ServiceLevels

    @cached_property
    def at_load(self) -> Self:
        """The deployments at the request rate of the workload, with their capacity.

        Unchanged if no rate is specified, or the rate is applied already. Above the capacity, all
        ``concurrency`` is in use.
        """
        rate = self.inputs.workload.request_rate
        if rate is None or self.promises.capacity is not None:
            return self
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return self.at_rate(rate)

    @property
    @abstractmethod
    def held(self) -> ServingConfigurations:
        """The configurations with the concurrency that fits in memory, if requests wait."""

    @property
    def waits(self) -> bool:
        """True if some requests wait because not all fit in memory at once."""
        return bool(np.any(self.configurations.concurrency > self.held.concurrency))

    @abstractmethod
    def at_rate(self, rate: float) -> Self:
        """The deployments at a request rate [1/s]."""

    @property
    def capacity(self) -> FloatArray:
        """The highest request rate that the deployment can serve [1/s]."""
        capacity = self.promises.capacity
        return self.promises.request_rate if capacity is None else capacity

    capacity_requests_per_s = capacity

    def promised_at(
        self,
        *,
        offered: OfferedLoad,
        replicas: FloatArray,
        carried: FloatArray,
        first: FloatArray,
        token: FloatArray,
    ) -> ServiceLevels:
        """The service levels of ``replicas`` replicas that each get the load ``offered``.

        ``carried``: request rate of one replica [1/s]; ``first``: mean time to first token [s];
        ``token``: mean time per output token [s]. For a fixed number of requests the rate is
        averaged until the last answer.
        """
        work = self.inputs.workload
        number, makespan = work.num_requests, None
        if number is not None:
            last = first + np.maximum(offered.last_wait - offered.mean_wait, 0.0)
            answer = max(work.output_tokens - 1, 0) * token
            longest = offered.answer * longest_answer_ratio(work.output_variation)
            last = last + np.where(np.asarray(offered.answer) > 0, longest, answer)
            carried = offered.until_the_end(carried, last)
            makespan = number / (carried * replicas)
        return replace(
            self.promises,
            request_rate=carried * replicas,
            time_to_first_token=first,
            time_per_output_token=token,
            capacity=self.capacity,
            offered=offered,
            makespan=makespan,
        )

    def offered(self, rate: float, replicas: FloatArray, places: FloatArray) -> OfferedLoad:
        """The load of one replica with ``places`` batch slots, if replicas share ``rate`` [1/s]."""
        number = self.inputs.workload.num_requests
        return OfferedLoad(
            rate=rate / replicas,
            number=np.inf if number is None else number / replicas,
            capacity=self.capacity / replicas,
            places=places,
            prompt=self.queued_prompt,
            answer=self.last_answer,
        )

    @property
    @abstractmethod
    def queued_prompt(self) -> FloatArray:
        """Seconds of one prompt ahead in the prefill queue, for requests that have a batch slot."""

    @property
    @abstractmethod
    def last_answer(self) -> FloatArray:
        """Seconds of an answer while a full replica empties; 0 if further requests fill it."""

    @property
    def output_tokens(self) -> float:
        """Mean tokens of an answer."""
        return float(self.inputs.workload.output_tokens)

    @property
    def exceeds_capacity(self) -> bool:
        """True if the load exceeds the capacity of the first deployment."""
        offered = self.at_load.promises.offered
        return offered is not None and bool(np.ravel(offered.is_beyond)[0])

    @property
    @abstractmethod
    def in_flight(self) -> FloatArray:
        """Requests in flight in one replica or decode worker."""

    requests_in_flight = _DeploymentQuantity(lambda plans: plans.in_flight)
    num_gpus = _DeploymentQuantity(lambda plans: plans.promises.num_gpus)
    max_gpus = _DeploymentQuantity(lambda plans: plans.promises.num_gpus)
    request_rate = _DeploymentQuantity(lambda plans: plans.promises.request_rate)
    time_to_first_token = _DeploymentQuantity(lambda plans: plans.promises.time_to_first_token)
    time_per_output_token = _DeploymentQuantity(lambda plans: plans.promises.time_per_output_token)
    memory_headroom = _DeploymentQuantity(lambda plans: plans.promises.memory_headroom)
    fit_probability = _DeploymentQuantity(
        lambda plans: plans.fit_probability_at(np.arange(math.prod(plans.shape))).reshape(
            plans.shape
        )
    )
    cost_per_hour = _DeploymentQuantity(lambda plans: plans.promises.price)
    capacity_per_gpu = _DeploymentQuantity(lambda plans: plans.capacity / plans.num_gpus)
    cost_per_million_tokens = _DeploymentQuantity(
        lambda plans: np.asarray(MILLION * plans.cost_per_hour / plans.priced_tokens)
    )

    @abstractmethod
    def fit_probability_at(self, rows: IndexArray) -> FloatArray:
        """The probability of `fit_probability` of the rows at flat indices."""

    @property
    def request_latency(self) -> FloatArray:
        """Seconds from arrival to the last token."""
        further_tokens = max(self.inputs.workload.output_tokens - 1, 0)
        return self.time_to_first_token + further_tokens * self.time_per_output_token

    @abstractmethod
    def percentile(self, quantity: str, share: float) -> FloatArray:
        """The percentile of a time of ``PERCENTILES`` [s] at a ``share`` of the requests."""

    def addends(self, name: str) -> Mapping[str, FloatArray]:
        """The parts of a quantity whose errors differ, by name, in SI units.

        A request latency has two: the time to the first token, and the time of further tokens. A
        percentile has the errors of its mean; a request rate has the errors of the capacity.
        """
        if name == "request_rate":
            return {name: self.capacity}
        quantity = PERCENTILES.get(name, (name,))[0]
        if quantity != "request_latency":
            return {quantity: self.value(name)}
        first = self.time_to_first_token
        with np.errstate(invalid="ignore"):
            others = self.value(name) - first
        return {"time_to_first_token": first, "time_per_output_token": others}

    @property
    def interactivity(self) -> FloatArray:
        """Generated tokens per second of one user, at the specified load if there is one."""
        rate = self.inputs.workload.request_rate
        if rate is None or self.promises.capacity is not None:
            return 1.0 / self.time_per_output_token
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return 1.0 / self.token_time_at_rate(rate)

    @abstractmethod
    def token_time_at_rate(self, rate: float) -> FloatArray:
        """Seconds per output token at a request rate [1/s] below the capacity."""

    @property
    @abstractmethod
    def outlay(self) -> FloatArray | None:
        """USD for one contract term of all GPUs, or for buying them; None: no term."""

    @property
    @abstractmethod
    def prompt_price(self) -> FloatArray:
        """The part of ``cost_per_hour`` for computing prompts [USD/s]; answers pay the rest."""

    @property
    @abstractmethod
    def caches(self) -> PrefixCaches:
        """The caches of prefixes."""

    @property
    @abstractmethod
    def cache_sizes(self) -> tuple[FloatArray, ...]:
        """Bytes of each prefix cache, with host memory and drives."""

    @property
    @abstractmethod
    def prefix_share(self) -> FloatArray:
        """The share of prefill time that attention to cached tokens takes."""

    @property
    def _of_load(self) -> dict[str, FloatArray]:
        """Columns at the specified load: capacity, makespan [s], last time to first token [s]."""
        columns: dict[str, FloatArray] = {}
        if self.promises.capacity is not None:
            columns = term_columns(terms_about("capacity"), self)
        promises = self.promises
        if promises.makespan is not None:
            columns["makespan_s"] = promises.makespan
            if promises.offered is not None:
                further_wait = promises.offered.last_wait - promises.offered.mean_wait
                columns["last_time_to_first_token_s"] = promises.time_to_first_token + further_wait
        return columns

    def named(self) -> Columns:
        """The columns that identify the source of a row."""
        return repeated(self.source.named, self.shape)

    def preempted(self, memory: ServingMemory, held: ServingConfigurations) -> Columns:
        """The column of the share of running requests preempted for lack of memory."""
        share = preempted_share(self.inputs, held, memory, self.in_flight)
        return {"preempted_share": floats(share, self.shape)}

    def promised(self) -> Columns:
        """Columns of numbers of GPUs, latencies, rates, costs, power and fit probability."""
        shape = self.shape
        values = {
            **term_columns(terms_about("service_level"), self),
            **self._of_load,
            **term_columns(terms_about("output_rate"), self),
            "tokens_per_s_per_gpu": self.tokens_per_s / self.num_gpus,
            "cost_per_million_tokens_usd": self.cost_per_million_tokens,
            **token_costs(
                self.inputs,
                price=self.cost_per_hour,
                prompt_price=self.prompt_price,
                prefix_share=self.prefix_share,
                request_rate=self.request_rate,
            ),
            "cost_per_hour_usd": self.cost_per_hour * HOUR,
            **({} if (paid := self.outlay) is None else {"outlay_usd": paid}),
            **self.energy_columns,
            "memory_headroom_gib": self.memory_headroom / GIB,
            **{f"{name}_s": self.value(name) for name in PERCENTILES},
            "fit_probability": self.fit_probability,
        }
        if self.inputs.workload.embeds:
            values |= {name: np.full(shape, np.nan) for name in values if is_answer_column(name)}
        table = {name: floats(value, shape) for name, value in values.items()}
        return {"num_gpus": counts(self.num_gpus, shape), **table}


def _percentile(quantity: str, share: float) -> property:
    """A property with the percentile of a time [s] at a share of the requests."""
    return property(lambda candidates: candidates.percentile(quantity, share))


for _name, _of in PERCENTILES.items():
    setattr(Deployments, _name, _percentile(*_of))


def token_costs(
    inputs: ServingInputs,
    *,
    price: FloatArray,
    prompt_price: FloatArray,
    prefix_share: FloatArray,
    request_rate: FloatArray,
) -> Mapping[str, FloatArray]:
    """Columns of USD per million input, cached input and output tokens, which add up to ``price``.

    New input tokens pay ``prompt_price`` [USD/s] without the ``prefix_share`` that attention to
    cached tokens adds; cached input tokens pay that share; output tokens pay the rest. A kind
    without tokens has no column.
    """
    work, cached = inputs.workload, cached_tokens(inputs)
    kinds = {
        "input": (prompt_price * (1 - prefix_share), work.input_tokens - cached),
        "cached_input": (prompt_price * prefix_share, cached),
        "output": (price - prompt_price, np.asarray(work.output_tokens)),
    }
    return {
        f"cost_per_million_{kind}_tokens_usd": cost_per_million(
            cost_rate=cost, token_rate=request_rate * tokens
        )
        for kind, (cost, tokens) in kinds.items()
        if np.any(tokens)
    }


def parameter_columns(c: ServingConfigurations, names: Iterable[str]) -> Columns:
    """Parameters of workers in words."""
    return {name: format_parameter_column(name, getattr(c, name), c.shape) for name in names}


def image_columns(
    inputs: ServingInputs, c: ServingConfigurations, rate: FloatArray, shape: tuple[int, ...]
) -> Columns:
    """Columns of the time for images and sound of prompts; empty without them.

    ``rate``: requests per second of a worker.
    """
    if not encoder_inputs(inputs):
        return {}
    time = encoder_time(inputs, c)
    share = np.minimum(rate * time / c.pipeline_parallel, 1.0)
    return {"encoder_time_s": floats(time, shape), "encoder_share": floats(share, shape)}


def memory_columns(
    inputs: ServingInputs, memory: ServingMemory, c: ServingConfigurations, shape: tuple[int, ...]
) -> Columns:
    """Columns of the fullest GPU's memory by part [GiB], and of KV cache sizes as engines print."""
    size, longest = np.maximum(memory.room.size, 0.0), longest_request(inputs)
    with np.errstate(divide="ignore", invalid="ignore"):
        bytes_per_sequence = sequence_bytes(inputs, c, longest)
        # Engines print whole tokens, and how many of the longest requests they hold.
        tokens = np.where(
            bytes_per_sequence > 0, np.floor(size / bytes_per_sequence * longest), np.nan
        )
        at_once = tokens / longest
    parts = {
        f"memory_{part}_gib": floats(getattr(memory, part) / GIB, shape)
        for part in SERVING_MEMORY_PARTS
    }
    cache: dict[str, Column] = {
        MOST_SEQUENCES: counts(memory.most_sequences, shape),
        KV_CACHE_SIZE: floats(size / GIB, shape),
        KV_CACHE_TOKENS: floats(tokens, shape),
        MAX_CONCURRENCY: floats(at_once, shape),
    }
    return {
        "peak_memory_gib": floats(memory.total / GIB, shape),
        **parts,
        "host_memory_gib": floats(memory.host / GIB, shape),
        **{glossary()[name].column: column for name, column in cache.items()},
    }


def prefix_cache_columns(prefixes: PrefixHits | None, shape: tuple[int, ...]) -> Columns:
    """Columns of prefix-cache hits and lifetimes; empty if ``prefixes`` is None."""
    if prefixes is None:
        return {}
    columns = term_columns(terms_about("prefix_cache"), prefixes)
    return {name: floats(value, shape) for name, value in columns.items()}


def needed_memory(
    inputs: ServingInputs, memory: ServingMemory, c: ServingConfigurations, cache: FloatArray
) -> tuple[Need, Need]:
    """(Needed, usable) bytes of host memory per GPU, and of GPU memory with a KV ``cache``.

    The memory that the engine needs to start is divided by ``inputs.sure_share``.
    """
    start = needed_to_start(inputs, memory, c) / inputs.sure_share
    needed = np.maximum(memory.non_cache_bytes + cache, start)
    return (memory.host, inputs.machine.host_memory), (needed, memory.usable)


def fit_probability(
    inputs: ServingInputs,
    memory: ServingMemory,
    c: ServingConfigurations,
    pick: Callable[[FloatArray], FloatArray] = np.asarray,
) -> FloatArray:
    """The probability that the fullest GPU has the memory that it needs to start.

    ``pick`` returns the rows of an array that the probability is for; all by default.
    """
    errors, needed = serving_memory_errors(inputs), needed_to_start(inputs, memory, c)
    return errors.fit_probability(predicted=pick(needed), usable=pick(memory.usable))


def cache_of(memory: ServingMemory, concurrency: FloatArray) -> FloatArray:
    """KV cache bytes of ``concurrency`` requests of mean length on a GPU, at least the longest."""
    capacity = memory.room
    return np.maximum(capacity.shared + capacity.sequence * concurrency, capacity.longest)


def as_candidates(candidates: Candidates) -> TokenGeneration:
    """The candidates, checked to be of serving or inference.

    Raises TypeError if the candidates generate no tokens.
    """
    if not isinstance(candidates, TokenGeneration):
        raise TypeError(f"{candidates!r} does not serve.")
    return candidates


def rounded_up(needed: FloatArray) -> FloatArray:
    """The number of replicas rounded up to a whole number, at least 1."""
    return np.maximum(np.ceil(needed * (1 - 1e-12)), 1.0)
