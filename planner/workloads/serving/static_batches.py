"""Static batches as candidates: all requests start together and end together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray
from planner.base.enums import CacheType
from planner.base.records import record
from planner.base.units import GIB
from planner.configurations.configuration_tables import ServingConfigurations
from planner.configurations.enumerate import OpenMesh
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import prefix_share
from planner.estimators.inference.serving_estimate import broken_serving_rule
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    has_memory_to_start,
    serving_memory,
)
from planner.estimators.inference.static_batch import StaticBatch, static_batch
from planner.estimators.power_draw import PowerDraw
from planner.optimize.source import Columns, Need, Source
from planner.question.terms import terms_about
from planner.specs.operating_terms import OperatingTerms
from planner.workloads.complexity import batch_complexity
from planner.workloads.quantity import Quantity
from planner.workloads.serving.max_concurrency import max_concurrency
from planner.workloads.serving.results import (
    MILLION,
    PARAMETERS,
    ServingSource,
    TokenGeneration,
    fit_probability,
    memory_columns,
    needed_memory,
    parameter_columns,
    token_costs,
)
from planner.workloads.workload import (
    Evaluation,
    counts,
    evaluate_single,
    floats,
    repeated,
    term_columns,
)

_BLOCK_ROWS = 2**16


@record(kw_only=True)
class BatchSource(ServingSource):
    """Batches on one GPU with one engine."""

    inputs: ServingInputs
    mesh: OpenMesh[ServingConfigurations]
    site: OperatingTerms
    mode: str = ""

    block_rows = _BLOCK_ROWS
    published = "static_batch"

    def broken(self, configurations: ServingConfigurations) -> CodeArray:
        """The one-based number of the first rule that each configuration breaks; 0: none."""
        return broken_serving_rule(self.inputs, configurations)

    def judged(
        self, configurations: ServingConfigurations, broken: CodeArray | None = None
    ) -> Batches:
        """Predict time and memory of every configuration; ``broken``: codes of broken rules."""
        c = configurations
        codes = self.broken(c) if broken is None else broken
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            memory, static = serving_memory(self.inputs, c), static_batch(self.inputs, c)
        last = np.int8(len(self.rules))
        surely = has_memory_to_start(self.inputs, memory, c)
        for capacity, number, starts in (
            (memory.room, last, surely),
            (memory.host_room, last - 1, True),
        ):
            fits = capacity.holds_at_once(c.concurrency, c.attention_data_parallel) & starts
            codes = np.where((codes == 0) & ~fits, np.int8(number), codes)
        return Batches(source=self, configurations=c, rejected_by=codes, parts=memory, batch=static)


_Quantity = Quantity["Batches"]


@record(kw_only=True, repr=False)
class Batches(TokenGeneration):
    """Batches of ``concurrency`` requests a replica; what can be optimized, in SI units."""

    source: BatchSource
    configurations: ServingConfigurations
    rejected_by: CodeArray
    parts: ServingMemory
    batch: StaticBatch

    def complexity_at(self, rows: IndexArray) -> IndexArray:
        """The complexity of some plans; 0: the simplest."""
        latency = self.at(self.request_latency, rows)
        return batch_complexity(self.source.inputs, self.configurations.rows(rows), latency)

    @property
    def memory(self) -> tuple[Need, Need]:
        """Needed and usable bytes of full-length requests: host memory per GPU, and GPU memory."""
        c = self.configurations
        cache = self.parts.room.held(c.concurrency / c.attention_data_parallel)
        return needed_memory(self.source.inputs, self.parts, c, cache)

    fit_probability = _Quantity(
        lambda batches: fit_probability(
            batches.source.inputs, batches.parts, batches.configurations
        )
    )
    prefill_latency = _Quantity(lambda batches: batches.batch.time_to_first_token)
    decode_latency = _Quantity(lambda batches: batches.batch.time_per_output_token)
    request_latency = _Quantity(lambda batches: batches.batch.request_latency)
    num_gpus = _Quantity(lambda batches: batches.configurations.num_gpus)
    request_rate = _Quantity(
        lambda batches: (
            batches.configurations.data_parallel * batches.batch.batch / batches.request_latency
        )
    )
    cost_per_million_tokens = _Quantity(
        lambda batches: np.asarray(
            MILLION * batches.source.site.rate(batches.num_gpus) / batches.throughput
        )
    )
    memory_headroom = _Quantity(
        lambda batches: batches.source.inputs.machine.gpu.allocatable_memory - batches.parts.total
    )

    def addends(self, name: str) -> Mapping[str, FloatArray]:
        """The parts of a quantity by name; a request latency [s] is prefill plus decode latency."""
        if name != "request_latency":
            return super().addends(name)
        first = self.prefill_latency
        return {"prefill_latency": first, "decode_latency": self.request_latency - first}

    @property
    def draws(self) -> tuple[PowerDraw, ...]:
        """The electric power of all GPUs, by part; near the design power during prefill."""
        # Without a cache every token computes the whole sequence again.
        first = self.prefill_latency / self.request_latency
        no_cache = self.configurations.kv_cache == CacheType.NONE
        return (self.drawn(np.where(no_cache, 1.0, first)),)

    def columns(self) -> Columns:
        """The result columns: source, configuration, latencies, rates, costs and memory."""
        source, c, shape = self.source, self.configurations, self.shape
        inputs, price = self.source.inputs, self.source.site.rate(self.num_gpus)
        values = {
            **term_columns(
                (*terms_about("latency", "inference"), *terms_about("output_rate")), self
            ),
            "cost_per_million_tokens_usd": self.cost_per_million_tokens,
            **self.energy_columns,
            **token_costs(
                inputs,
                price=price,
                prompt_price=price * self.prefill_latency / self.request_latency,
                prefix_share=prefix_share(inputs, self.configurations),
                request_rate=self.request_rate,
            ),
            "memory_headroom_gib": self.memory_headroom / GIB,
            "fit_probability": self.fit_probability,
        }
        return {
            **repeated(source.named, shape),
            "num_gpus": counts(c.num_gpus, shape),
            "replicas": counts(c.data_parallel, shape),
            **parameter_columns(c, PARAMETERS),
            **{name: floats(value, shape) for name, value in values.items()},
            **memory_columns(source.inputs, self.parts, c, shape),
        }


def evaluate_batch_once(source: Source, _: int | None = None) -> Evaluation:
    """Evaluate the one configuration of a source, with the largest batch that fits."""
    evaluation = evaluate_single(source)
    largest = max_concurrency(source, evaluation.candidates.configurations)
    return replace(evaluation, more={"largest_batch": [largest]})
