"""The context shared by all serving configurations, and the batch of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import cached_property

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric
from planner.base.enums import CacheType, Quantization
from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.kernels import Kernels
from planner.estimators.machine import CommunicationGroup, Machine
from planner.estimators.operators import Operator
from planner.formulas.routing import experts_touched, lru_characteristic_draws, zipf_shares
from planner.layers.operators import heads_on_rank
from planner.specs.engine import EngineExecution, EngineProfile
from planner.specs.model import ModelSpec
from planner.specs.quantization import CACHE_BYTES, FORMATS, SIXTEEN_BIT_BYTES, Checkpoint
from planner.specs.serving_workload import ServingWorkload

_CACHE_BYTES = np.array([CACHE_BYTES[code] for code in CacheType])


@record(kw_only=True)
class WeightFormats:
    """Bytes per weight by code of `planner.base.enums.Quantization`, as a checkpoint stores them.

    ``stored``: by part, the code in which checkpoints of each code store it; ``whole_layers``:
    share of the layers that stay in 16 bit with all their matrices.
    """

    weight: FloatArray
    stored: dict[str, CodeArray]
    whole_layers: FloatArray

    def bytes_of(self, part: str, code: CodeArray) -> FloatArray:
        """Return bytes per weight of a part of the layers, averaged over layers."""
        bytes_per_weight = self.weight[self.stored[part][code] if part in self.stored else code]
        unquantized_share = self.whole_layers[code]
        return np.asarray(
            unquantized_share * SIXTEEN_BIT_BYTES + (1 - unquantized_share) * bytes_per_weight
        )


@record(kw_only=True)
class PrefixHits:
    """Prefix-cache hits of each configuration, in arrays that broadcast to their shape.

    Hit rates are shares of the tokens by cache. ``cache_residence``: seconds for which a GPU keeps
    unused tokens. ``cache_load_time``: seconds per request to load tokens from host and drives.
    """

    gpu_cache_hit_rate: FloatArray
    host_cache_hit_rate: FloatArray
    disk_cache_hit_rate: FloatArray
    cache_residence: FloatArray
    cache_load_time: FloatArray

    def mapped(self, change: Callable[[FloatArray], FloatArray]) -> PrefixHits:
        """A copy with every array changed by a function."""
        return PrefixHits(
            **{field.name: change(getattr(self, field.name)) for field in fields(self)}
        )

    @cached_property
    def hit_rate(self) -> FloatArray:
        """The share that is not computed again."""
        slower = self.host_cache_hit_rate + self.disk_cache_hit_rate
        return np.asarray(self.gpu_cache_hit_rate + slower)

    def scaled(self, hit_rate: FloatArray) -> PrefixHits:
        """A copy with this total hit rate, split over the caches in proportion."""
        part = hit_rate / np.maximum(self.hit_rate, 1e-12)
        hits = self.mapped(lambda values: np.asarray(values * part))
        return replace(hits, cache_residence=self.cache_residence)


@record(kw_only=True)
class ServingInputs:
    """Everything that is the same for all configurations of a search.

    ``sure_share``: the share of the usable memory that the bytes needed to start may take.
    ``draft``: the model that drafts tokens. ``compared``: fields of the workload that other
    settings have other values of. ``engine_version``: the release of the engine, empty
    if not specified; it sets how certain predictions are, not the predictions.
    ``engine_max_num_seqs``: the concurrency at which the engine starts with its own sequence limit;
    at any other concurrency the limit is set to that. None: at any. ``prefixes``: prefix-cache
    hits of each configuration, in place of the hit rate of the workload. ``slowdown``: time of an
    engine step over that of a set-up tuned as vendors' benchmarks.
    """

    machine: Machine
    model: ModelSpec
    engine: EngineProfile
    workload: ServingWorkload
    sure_share: float = 1.0
    draft: ModelSpec | None = None
    compared: tuple[str, ...] = ()
    engine_version: str = ""
    engine_max_num_seqs: int | None = None
    prefixes: PrefixHits | None = None
    slowdown: float = 1.0

    @property
    def named(self) -> Mapping[str, int]:
        """Labels among compared settings, such as the number of drafted tokens."""
        return {name: getattr(self.workload, name) for name in self.compared}

    @cached_property
    def kernels(self) -> Kernels:
        """Kernels of the engine on the machine."""
        biased = any(block.num_experts and block.bias for block in self.model.feed_forwards)
        return Kernels(machine=self.machine, engine=self.engine, biased_experts=biased)

    @cached_property
    def weight_formats(self) -> WeightFormats:
        """Number formats of the model's weights in the engine, by checkpoints if any.

        Those of the first published checkpoint per format that the engine serves on the GPU.
        """
        weight = np.array([FORMATS[code].weight for code in Quantization])
        whole_layers = np.zeros(len(weight))
        codes: dict[str, CodeArray] = {}
        checkpoints: dict[Quantization, Checkpoint] = {}
        for checkpoint in self.model.checkpoints:
            if checkpoint.is_served(self.engine.name, self.machine.gpu.vendor):
                code = Quantization[checkpoint.quantization.upper()]
                checkpoints.setdefault(code, checkpoint)
        for code, checkpoint in checkpoints.items():
            bare = 0.5 if weight[code] < 1.0 else float(np.floor(weight[code]))
            scales = weight[code] - bare
            if checkpoint.group_size is not None:
                of_group = checkpoint.scale_bytes + checkpoint.zero_point_bytes
                scales = of_group / checkpoint.group_size
            stored = bare if checkpoint.weight_bits is None else checkpoint.weight_bits / 8
            weight[code] = stored + scales
            layers = checkpoint.sixteen_bit_layers / self.model.num_hidden_layers
            whole_layers[code] = min(layers, 1.0)
            for parts, wider in (
                (checkpoint.eight_bit, Quantization.FP8),
                (checkpoint.sixteen_bit, Quantization.W16A16),
            ):
                for part in parts:
                    codes.setdefault(part, np.arange(len(weight), dtype=np.int8))[code] = wider
        return WeightFormats(weight=weight, stored=codes, whole_layers=whole_layers)

    @property
    def profile(self) -> EngineProfile:
        """The profile of the software: the engine."""
        return self.engine

    @property
    def usable_memory(self) -> float:
        """Bytes of a GPU that the engine may use by default."""
        return self.machine.gpu.allocatable_memory * self.engine.memory.gpu_memory_utilization

    @property
    def max_loras(self) -> int:
        """Maximum LoRA adapters in a step, which have memory reserved; 0 without LoRA."""
        work = self.workload
        slots = work.max_loras or self.engine.memory.adapter_slots
        if work.num_adapters is not None and work.max_loras is None:
            slots = min(work.num_adapters, self.engine.scheduler.max_num_seqs)
        return slots if work.lora_rank else 0

    @cached_property
    def adapter_draws(self) -> float:
        """Number of requests that use ``max_loras`` LoRA adapters; infinite without a limit."""
        work = self.workload
        if work.num_adapters is None or not self.max_loras:
            return np.inf
        return lru_characteristic_draws(shares=self.adapter_shares, slots=self.max_loras)

    @property
    def adapter_shares(self) -> FloatArray:
        """Shares of the requests of each adapter, the most popular first."""
        work = self.workload
        return zipf_shares(number=work.num_adapters or 1, exponent=work.adapter_skew)

    @property
    def adapter_hits(self) -> float:
        """Share of the requests whose adapter is in a slot already."""
        shares = self.adapter_shares
        return float(shares @ -np.expm1(-shares * self.adapter_draws))


@record(kw_only=True)
class Batch:
    """One step of one replica, or of one of its micro-batches in a pipeline.

    ``decoding`` sequences each take ``tokens_per_sequence`` tokens (more than one when drafts
    are verified) over ``context`` cached tokens. ``prefill_tokens`` prompt tokens belong to
    ``prompts`` sequences; each attends to ``prefill_keys`` keys on average. ``prefill_cached`` of
    these per sequence are read from the cache.
    """

    decoding: FloatArray
    context: FloatArray
    tokens_per_sequence: FloatArray
    prefill_tokens: FloatArray
    prompts: FloatArray
    prefill_keys: FloatArray
    prefill_cached: FloatArray

    @classmethod
    def of_decode(
        cls, sequences: FloatArray, context: FloatArray, tokens_per_sequence: float = 1.0
    ) -> Batch:
        """Return a batch of ``sequences`` that each decode their next token, without prompts."""
        zero = np.zeros(())
        return cls(
            decoding=sequences,
            context=context,
            tokens_per_sequence=np.asarray(tokens_per_sequence),
            prefill_tokens=zero,
            prompts=zero,
            prefill_keys=zero,
            prefill_cached=zero,
        )

    @cached_property
    def tokens(self) -> FloatArray:
        """Tokens whose linear layers the replica computes."""
        return self.decoding * self.tokens_per_sequence + self.prefill_tokens


@record(kw_only=True)
class BatchShare:
    """The share of a batch on one GPU, with the kernels that serve it."""

    inputs: ServingInputs
    configurations: ServingConfigurations
    batch: Batch

    @property
    def machine(self) -> Machine:
        """The GPU in its cluster."""
        return self.inputs.machine

    @property
    def kernels(self) -> Kernels:
        """Kernels of the engine."""
        return self.inputs.kernels

    @property
    def execution(self) -> EngineExecution:
        """Times and passes of the engine."""
        return self.inputs.engine.execution

    @property
    def tensor_parallel(self) -> FloatArray:
        """Ranks that split the matrices."""
        return self.configurations.tensor_parallel

    @cached_property
    def hidden_size(self) -> int:
        """Width of the residual stream."""
        return self.inputs.model.hidden_size

    @cached_property
    def decode_share(self) -> FloatArray:
        """Share of the decoding sequences whose attention the busiest rank takes part in."""
        return self._busiest_share(self.batch.decoding)

    @cached_property
    def prompt_share(self) -> FloatArray:
        """Share of the prompts on the busiest rank, at least one prompt."""
        return self._busiest_share(self.batch.prompts)

    def _busiest_share(self, sequences: FloatArray) -> FloatArray:
        even = 1.0 / self.configurations.attention_data_parallel
        return np.maximum(even, 1.0 / np.maximum(sequences, 1.0))

    @cached_property
    def prompt_tokens(self) -> FloatArray:
        """Prompt tokens in this GPU's attention and dense matrices."""
        split = self.prompt_share / self.configurations.context_parallel
        return self.batch.prefill_tokens * split

    @cached_property
    def decoding(self) -> FloatArray:
        """Decoding sequences in this rank's attention."""
        return self.batch.decoding * self.decode_share

    @cached_property
    def tokens(self) -> FloatArray:
        """Tokens in this rank's attention and dense matrices."""
        return self.decoding * self.batch.tokens_per_sequence + self.prompt_tokens

    @cached_property
    def sampled(self) -> FloatArray:
        """Tokens that this rank samples."""
        drafted = self.decoding * self.batch.tokens_per_sequence
        return drafted + self.batch.prompts * self.prompt_share

    @cached_property
    def distinct_adapters(self) -> FloatArray:
        """Number of different LoRA adapters of a step's requests on this rank."""
        requests = self.decoding + self.batch.prompts * self.prompt_share
        slots = self.inputs.max_loras
        return experts_touched(
            num_experts=slots, num_experts_per_tok=1, tokens=requests, dispersion=0
        )

    @cached_property
    def cache_bytes(self) -> FloatArray:
        """Bytes per cached element."""
        return np.asarray(_CACHE_BYTES[self.configurations.kv_cache])

    @cached_property
    def tensor_group(self) -> CommunicationGroup:
        """Ranks that split the matrices."""
        return CommunicationGroup(size=self.tensor_parallel, stride=1)

    @cached_property
    def stage_group(self) -> CommunicationGroup:
        """Group of all ranks of a pipeline stage, which hold the experts."""
        return CommunicationGroup(size=self.configurations.stage_gpus, stride=1)

    def key_value_heads(self, num_key_value_heads: int) -> FloatArray:
        """Key-value heads on this GPU; fewer heads than ranks are replicated."""
        return np.asarray(heads_on_rank(num_key_value_heads, self.tensor_parallel))

    def stored_code(self, part: str) -> CodeArray | None:
        """Return the codes in which checkpoints store ``part``; None: all as the other matrices."""
        stored = self.inputs.weight_formats.stored.get(part)
        return None if stored is None else stored[self.configurations.quantization]

    def linear(
        self,
        name: str,
        module: str,
        *,
        rows: Numeric,
        columns: Numeric,
        depth: Numeric,
        quantization: CodeArray | None = None,
        stored: float | None = None,
    ) -> Operator:
        """Return a matrix product with its time; ``quantization``: types other than the default.

        ``stored``: bytes that a weight takes, where they are not those of its type; tables of
        measured products know none of these.
        """
        matrices = self._matrices if quantization is None else self.kernels.matrices(quantization)
        if stored is not None:
            matrices = {**matrices, "weight": np.asarray(stored), "tabulated": np.zeros(())}
        time = self.kernels.linear(rows, columns, depth, matrices)
        return Operator(
            name=name,
            module=module,
            forward=np.where(np.asarray(rows) > 0, time, 0.0),
            flops=np.asarray(2.0 * rows * np.asarray(columns) * depth),
        )

    def elementwise_time(self, num_bytes: Numeric, kernels: int = 1) -> FloatArray:
        """Return seconds of memory-bound kernels that move ``num_bytes`` in total."""
        time = self.kernels.elementwise(num_bytes, kernels)
        return np.where(np.asarray(num_bytes) > 0, time, 0.0)

    def elementwise(
        self, name: str, module: str, *, num_bytes: Numeric, kernels: int = 1
    ) -> Operator:
        """Return memory-bound kernels that move ``num_bytes`` in total."""
        return Operator(name=name, module=module, forward=self.elementwise_time(num_bytes, kernels))

    def tensor_all_reduce(self, module: str) -> Operator:
        """Return the sum over the ranks that split a block's matrices."""
        return Operator(
            name=f"{module}_all_reduce",
            module=module,
            part="tensor_parallel",
            forward=self._block_all_reduce,
        )

    @cached_property
    def _matrices(self) -> Mapping[str, FloatArray]:
        return self.kernels.matrices(self.configurations.quantization)

    @cached_property
    def _block_all_reduce(self) -> FloatArray:
        num_bytes = 2.0 * self.tokens * self.hidden_size
        return self.kernels.all_reduce(num_bytes, self.tensor_group)
