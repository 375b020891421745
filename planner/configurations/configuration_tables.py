"""Configurations of training and serving as structs of arrays, in short words, and their rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import Field, replace
from functools import cache, cached_property, reduce
from typing import ClassVar, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import (
    BoolArray,
    CodeArray,
    FloatArray,
    IndexArray,
    Item,
    Numeric,
    Values,
    first_true_by_shape,
    lowest_code,
)
from planner.base.csv_cells import Row, number_of_row
from planner.base.enums import AttentionKind, PipelineSchedule, Quantization
from planner.base.records import record
from planner.base.software_enums import AttentionKernel
from planner.question.terms import columns_about, glossary, parameter_defaults, terms_of
from planner.specs.model import ModelSpec

NOWHERE: BoolArray = np.zeros((), dtype=np.bool_)
"""False for every configuration."""

_BYTE = 128  # Codes that a signed byte tells apart.


class ConfigurationTable:
    """A frozen dataclass of arrays that broadcast to one ``shape``.

    A flat table holds equal-length vectors; an open mesh holds one axis per group of
    parameters, so that a formula costs only the axes it depends on. Quantities are float64,
    codes int8 (of many sets int16), flags bool; the table of terms under ``workload`` has the type
    and all other properties of a parameter.
    """

    __slots__ = ("_shape",)  # not in ``vars``, which has only the parameters

    workload: ClassVar[str]
    _shape: tuple[int, ...]
    __dataclass_fields__: ClassVar[dict[str, Field[object]]]

    @classmethod
    def of(cls, **values: object) -> Self:
        """Build configurations from numbers, lists or arrays, cast to the types of the parameters.

        Parameters that are not set have the default of the table of terms.
        """
        parameters = {**cls.default_codes(), **values}
        return cls(**{name: cls.cast(name, value) for name, value in parameters.items()})

    @classmethod
    @cache
    def default_codes(cls) -> dict[str, float]:
        """The default of each parameter that has one, by name: a code, flag or number."""
        defaults = parameter_defaults(cls.workload)
        return {
            name: glossary()[name].encode(defaults[name])
            for name in cls.names()
            if name in defaults
        }

    @classmethod
    def cast(cls, name: str, value: object) -> Values:
        """Convert ``value`` to an array of the type of the parameter ``name``."""
        term = glossary()[name]
        if term.codes is not None:
            return np.asarray(value, dtype=np.int8 if len(term.codes) <= _BYTE else np.int16)
        return np.asarray(value, dtype=np.bool_ if term.type == "flag" else np.float64)

    @classmethod
    @cache
    def names(cls) -> tuple[str, ...]:
        """The names of all parameters, in order."""
        return tuple(
            name
            for name, field in cls.__dataclass_fields__.items()
            if not str(field.type).startswith("ClassVar")
        )

    def __getstate__(self) -> dict[str, object]:
        return vars(self)

    @property
    def shape(self) -> tuple[int, ...]:
        """The common shape of all parameter arrays, cached."""
        try:
            return self._shape
        except AttributeError:
            shapes = {np.shape(getattr(self, name)) for name in self.names()}
            object.__setattr__(self, "_shape", np.broadcast_shapes(*shapes))
            return self._shape

    @property
    def size(self) -> int:
        """Number of configurations."""
        return math.prod(self.shape)

    def rows(self, indices: IndexArray) -> Self:
        """The configurations at these flat indices, as a flat table."""
        pick = RowPicker(indices, self.shape)
        return type(self)(**{name: pick(getattr(self, name)) for name in self.names()})

    @classmethod
    def stacked(cls, tables: Sequence[Self]) -> Self:
        """Concatenate flat tables into one."""
        if len(tables) == 1:
            return tables[0]
        return cls(
            **{
                name: np.concatenate([np.broadcast_to(getattr(t, name), t.shape) for t in tables])
                for name in cls.names()
            }
        )

    def narrow_axes(self, axis_indices: Sequence[IndexArray]) -> Self:
        """The mesh with only these indices of each axis."""
        shape, is_empty = self.shape, not all(indices.size for indices in axis_indices)

        def narrow(values: Values) -> Values:
            """The entries of a broadcastable array at the chosen indices of each axis."""
            padded = np.reshape(values, (1,) * (len(shape) - np.ndim(values)) + np.shape(values))
            if padded.size == 1 and not is_empty:
                return padded
            for axis, indices in enumerate(axis_indices):
                if padded.shape[axis] > 1 or not indices.size:
                    padded = np.take(padded, indices, axis=axis)
            return padded

        return type(self)(**{name: narrow(getattr(self, name)) for name in self.names()})

    def chosen(self, mask: BoolArray | IndexArray) -> Self:
        """The rows of a flat table where ``mask`` is True, or at these indices."""
        shape = self.shape
        return type(self)(
            **{name: np.broadcast_to(getattr(self, name), shape)[mask] for name in self.names()}
        )


def format_value(name: str, value: float) -> str | float:
    """The readable value of the parameter ``name``: a word, a bool or a number."""
    return glossary()[name].decode(value)


class RowPicker:
    """Picks the entries of arrays that broadcast to one ``shape``, at some flat indices."""

    def __init__(self, indices: IndexArray, shape: tuple[int, ...]) -> None:
        """Store the flat indices of the rows to pick."""
        self._indices, self._shape = indices, shape
        self._index_by_shape: dict[tuple[int, ...], IndexArray] = {shape: indices}

    def __call__(self, values: NDArray[Item]) -> NDArray[Item]:
        """The entries of an array, one for each row."""
        if values.size == 1:
            return np.repeat(values, len(self._indices))
        index = self._index_by_shape.get(values.shape)
        if index is None:
            index = self._index_by_shape[values.shape] = self._index_of(values.shape)
        return values.reshape(-1).take(index)

    @cached_property
    def _positions(self) -> tuple[IndexArray, ...]:
        """The index along each axis, of each row."""
        return np.unravel_index(self._indices, self._shape)

    def _index_of(self, shape: tuple[int, ...]) -> IndexArray:
        """The flat index of each row in arrays of a ``shape``."""
        index: IndexArray | None = None
        positions = self._positions[len(self._shape) - len(shape) :]
        for length, position in zip(shape, positions, strict=True):
            if length > 1:
                index = position if index is None else index * length + position
        return self._indices if index is None else index


Judged = TypeVar("Judged", contravariant=True)
Context = TypeVar("Context", contravariant=True)


class _HasParallelism(Protocol):
    """Configurations of training or of serving."""

    @property
    def data_parallel(self) -> FloatArray: ...

    @property
    def tensor_parallel(self) -> FloatArray: ...


class _HasModel(Protocol):
    """The context of either."""

    @property
    def model(self) -> ModelSpec: ...


@record(kw_only=True)
class Reason:
    """The reason that rejects a configuration, as a name and as a sentence."""

    name: str
    description: str


@record(kw_only=True)
class Rule(Reason, Generic[Judged, Context]):
    """``violated`` is true where a configuration breaks the rule, in a context."""

    violated: Callable[[Judged, Context], BoolArray]


def is_indivisible(total: FloatArray | float, part: FloatArray | float) -> BoolArray:
    """True where ``part`` does not divide ``total``."""
    quotient = np.asarray(total) / part
    return np.asarray(quotient != np.floor(quotient))


def has_left_over_gpus(c: _HasParallelism, _: object) -> BoolArray:
    """True where the GPUs are not a whole number of model copies."""
    return np.asarray((c.data_parallel < 1) | is_indivisible(c.data_parallel, np.ones(())))


def is_any_indivisible(numbers: Iterable[float], divisor: Numeric) -> BoolArray:
    """True where ``divisor`` does not divide one of the numbers."""
    return reduce(np.logical_or, (is_indivisible(n, divisor) for n in numbers), NOWHERE)


def has_uneven_widths(c: _HasParallelism, context: _HasModel) -> BoolArray:
    """True where tensor parallelism does not divide a feed-forward width of the model."""
    widths = (mlp.shared_width for mlp in context.model.feed_forwards)
    return is_any_indivisible(widths, c.tensor_parallel)


def has_uneven_heads(
    c: _HasParallelism, context: _HasModel, *, copies_states: bool = False
) -> BoolArray:
    """True where tensor parallelism does not divide the heads, or the KV heads nor their copies.

    ``copies_states``: ranks may hold copies of the key heads of linear attention as well.
    """
    t, violated = c.tensor_parallel, NOWHERE
    for attention in context.model.attentions:
        heads, shared = attention.split_heads
        violated = violated | is_indivisible(heads, t)
        if attention.kind is not AttentionKind.LATENT:
            is_copied = copies_states or not attention.has_state
            uneven_copies = is_indivisible(1.0, shared / t) if is_copied else True
            violated = violated | (is_indivisible(shared, t) & uneven_copies)
    return violated


def first_broken(
    rules: Sequence[Rule[Judged, Context]], configurations: Judged, context: Context
) -> CodeArray:
    """The one-based number of the first rule that each configuration breaks; 0: none."""
    return lowest_code(broken_by_shape(rules, configurations, context))


def broken_by_shape(
    rules: Sequence[Rule[Judged, Context]], configurations: Judged, context: Context
) -> list[CodeArray]:
    """`first_broken` of the rules whose results have the same shape, in one array each."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return first_true_by_shape(rule.violated(configurations, context) for rule in rules)


def prediction_rule(name: str, description: str) -> Rule[object, object]:
    """A rule that no configuration violates before its prediction, such as out of memory."""
    return Rule(name=name, description=description, violated=lambda *_: NOWHERE)


OUT_OF_HOST_MEMORY = prediction_rule(
    "out_of_host_memory", "what is offloaded or loads whole needs more than the host memory"
)


@record(kw_only=True)
class TrainingConfigurations(ConfigurationTable):
    """Layouts of a training step; every field broadcasts to ``shape``."""

    workload = "train"

    num_gpus: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    pipeline_parallel: FloatArray
    virtual_pipeline: FloatArray
    layer_split: BoolArray
    expert_parallel: FloatArray
    micro_batch_size: FloatArray
    global_batch_size: FloatArray
    zero_stage: CodeArray
    data_parallel_replicas: FloatArray
    recompute: CodeArray
    recompute_num_layers: FloatArray
    recompute_modules: CodeArray
    saved_tensors: CodeArray
    offloaded_tensors: CodeArray
    offload: CodeArray
    precision: CodeArray
    sequence_parallel: BoolArray
    flash_attention: BoolArray
    attention_kernel: CodeArray
    expert_compute: CodeArray
    torch_compile: CodeArray
    loss_kernel: CodeArray
    loss_chunks: FloatArray
    fp8_attention: BoolArray
    fp8_recipe: CodeArray
    optimizer: CodeArray
    optimizer_state_precision: CodeArray
    main_params_precision: CodeArray
    main_grads_precision: CodeArray
    optimizer_in_backward: BoolArray
    paged_optimizer: BoolArray
    reduce_bucket_size: FloatArray
    sub_group_size: FloatArray
    stage3_max_live_parameters: FloatArray
    zero3_init: BoolArray
    eval_batch_size: FloatArray
    norm_input_bits: FloatArray
    fc1_input_bits: FloatArray
    activation_input_bits: FloatArray
    fc2_input_bits: FloatArray
    expert_tensor_parallel: FloatArray
    overlap_expert_parallel: BoolArray
    token_dispatcher: CodeArray
    expert_capacity_factor: FloatArray
    expert_imbalance: FloatArray
    cp_comm_type: CodeArray
    tp_comm_overlap: BoolArray
    pipeline_schedule: CodeArray

    @property
    def data_parallel(self) -> FloatArray:
        """GPUs over tensor, context and pipeline parallelism; a fraction if they do not fit."""
        return self.num_gpus / (
            self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        )

    @property
    def num_micro_batches(self) -> FloatArray:
        """Micro-batches of a step (gradient accumulation steps)."""
        return self.global_batch_size / (self.data_parallel * self.micro_batch_size)

    @property
    def fused_attention(self) -> BoolArray:
        """True where one kernel computes attention."""
        return np.asarray(self.flash_attention & (self.attention_kernel != AttentionKernel.EAGER))

    @property
    def has_custom_optimizer(self) -> bool:
        """True if a configuration sets the optimizer, or a number format of its states."""
        optimizer_codes = (
            self.optimizer,
            self.optimizer_state_precision,
            self.main_params_precision,
        )
        return any(code.any() for code in (*optimizer_codes, self.main_grads_precision))

    @property
    def expert_ranks(self) -> FloatArray:
        """The number of GPUs that share one copy of the routed experts."""
        return self.expert_parallel * self.expert_tensor_parallel

    @property
    def expert_load(self) -> FloatArray:
        """Tokens of the fullest expert-parallel rank, divided by the mean; dropped tokens excluded.

        At most the number of expert-parallel ranks, if one rank gets all tokens.
        """
        limit = np.where(self.expert_capacity_factor > 0, self.expert_capacity_factor, np.inf)
        return np.minimum(np.minimum(self.expert_imbalance, self.expert_parallel), limit)

    @property
    def from_both_ends(self) -> BoolArray:
        """True where micro-batches enter the pipeline at both ends (DualPipe)."""
        return np.asarray(self.pipeline_schedule == PipelineSchedule.DUALPIPE)

    @cached_property
    def any_offload(self) -> bool:
        """True if a configuration offloads anything to host memory."""
        return bool(self.offload.any() or self.offloaded_tensors.any())


NAMES = TrainingConfigurations.names()
cast = TrainingConfigurations.cast


_PARAMETERS = terms_of("train", "parameter")
_BATCHES = ("micro_batch_size", "global_batch_size")
DEGREES = tuple(
    name
    for name, term in terms_of("train", "parameter", "derived").items()
    if term.short and term.type == "count" and name not in _BATCHES
)
"""Tensor, context, pipeline, virtual pipeline, expert and data parallel."""

IMPLIED_BY_OTHERS = {"pipeline_schedule": ("one_forward_one_backward", "interleaved")}
"""Values that other parameters imply, by parameter."""

SHOWN_COLUMNS = columns_about("training_summary")


def format_layout(row: Row) -> str:
    """A training row as text, ``tp4 pp4 vp20 dp128 mbs4 zero1, recompute full``.

    Parameters that rows of older versions lack count as defaults.
    """
    terms = terms_of("train", "parameter", "derived")
    parts = [
        f"{terms[name].short}{row[name]}"
        for name in DEGREES
        if row.get(name) and number_of_row(row, name) > 1
    ]
    parts.append(f"{terms['micro_batch_size'].short}{row['micro_batch_size']}")
    parts += [f"zero{row['zero_stage']}"] if row["zero_stage"] else []
    others = [
        f"{name} {row[name]}"
        for name, term in _PARAMETERS.items()
        if not term.short and not term.option and term.type != "flag"
        if row.get(name, term.default_value)
        not in (term.default_value, *IMPLIED_BY_OTHERS.get(name, ()))
    ]
    return ", ".join([" ".join(parts), *others])


ATTENTION_WEIGHTS, FFN_WEIGHTS = ("attention", "embedding", "logits"), ("feed_forward", "experts")


@record(kw_only=True)
class ServingConfigurations(ConfigurationTable):
    """Ways to serve a model; every field broadcasts to ``shape``.

    A replica has tensor_parallel x context_parallel x attention_data_parallel x
    pipeline_parallel GPUs and holds ``concurrency`` requests; ``max_num_batched_tokens`` bounds the
    tokens of a step of one attention rank. The context-parallel GPUs of a rank split the tokens of
    its prompts; each of them holds its caches and decodes all of its requests.
    Experts are split over expert_parallel ranks, and each expert over the remaining ranks of the
    stage. ``weight_offload``, ``kv_offload``: shares in host memory.
    ``gpu_memory_utilization``: the engine's option for its share of a GPU's memory, see
    `planner.specs.engine.MemoryShare`; 0: the default of the engine.
    """

    workload = "serve"
    weight_parts: ClassVar[tuple[str, ...]] = (*ATTENTION_WEIGHTS, *FFN_WEIGHTS)
    """The parts of the weights that the GPUs hold."""

    num_gpus: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    pipeline_parallel: FloatArray
    attention_data_parallel: FloatArray
    expert_parallel: FloatArray
    concurrency: FloatArray
    max_num_batched_tokens: FloatArray
    quantization: CodeArray
    expert_quantization: CodeArray
    kv_cache: CodeArray
    weight_offload: FloatArray
    kv_offload: FloatArray
    gpu_memory_utilization: FloatArray

    @property
    def stage_gpus(self) -> FloatArray:
        """GPUs of one pipeline stage of a replica."""
        return self.tensor_parallel * self.context_parallel * self.attention_data_parallel

    @property
    def replica_gpus(self) -> FloatArray:
        """GPUs of one replica."""
        return self.stage_gpus * self.pipeline_parallel

    @property
    def replica_step_tokens(self) -> FloatArray:
        """Most tokens of a step of all attention ranks of a replica."""
        return self.max_num_batched_tokens * self.attention_data_parallel

    @property
    def data_parallel(self) -> FloatArray:
        """Replicas; a fraction if they do not fill the GPUs."""
        return self.num_gpus / self.replica_gpus

    @property
    def expert_tensor_parallel(self) -> FloatArray:
        """Ranks that split one expert."""
        return self.stage_gpus / self.expert_parallel


SERVING_NAMES = ServingConfigurations.names()


class _SeparateFfn:
    """A worker with ``expert_parallel`` GPUs for the FFN in addition to those for attention."""

    stage_gpus: FloatArray
    expert_parallel: FloatArray

    @property
    def replica_gpus(self) -> FloatArray:
        """GPUs of a worker, for attention and for the FFN."""
        return self.stage_gpus + self.expert_parallel


@record(kw_only=True)
class AttentionFfnConfigurations(_SeparateFfn, ServingConfigurations):
    """Decode workers with attention and FFN on separate GPUs.

    tensor_parallel x attention_data_parallel GPUs have attention, norms, routers, both ends and the
    caches; the ``expert_parallel`` others have the experts and dense feed-forward blocks.
    """

    weight_parts = ATTENTION_WEIGHTS

    @property
    def attention(self) -> ServingConfigurations:
        """The GPUs for attention, as a worker of its own without experts."""
        ones = np.ones_like(self.expert_parallel)
        no_experts = np.full_like(self.expert_quantization, Quantization.W16A16)
        return replace(
            ServingConfigurations(**vars(self)),
            num_gpus=self.stage_gpus,
            expert_parallel=ones,
            expert_quantization=no_experts,
        )

    def ffn(self, split: int) -> ServingConfigurations:
        """The GPUs for the FFN, as a worker of its own; at most ``split`` of them share an expert.

        Each has a share of all tokens, and whole dense blocks.
        """
        gpus, ones = self.expert_parallel, np.ones_like(self.expert_parallel)
        shared_by = np.gcd(gpus.astype(np.intp), split)
        tokens = self.max_num_batched_tokens * self.attention_data_parallel / gpus
        return replace(
            _FfnConfigurations(**vars(self)),
            num_gpus=gpus,
            tensor_parallel=ones,
            attention_data_parallel=gpus,
            expert_parallel=gpus / shared_by,
            max_num_batched_tokens=tokens,
        )


@record(kw_only=True)
class _FfnConfigurations(ServingConfigurations):
    """GPUs with the feed-forward blocks alone."""

    weight_parts = FFN_WEIGHTS


@record(kw_only=True)
class PoolConfigurations(ServingConfigurations):
    """Pools of prefill and decode workers; names without a prefix are the decode workers'.

    ``num_gpus`` counts the GPUs of all ``replicas`` (decode workers) and ``prefill_replicas``.
    """

    decode_kind: ClassVar[type[ServingConfigurations]] = ServingConfigurations

    replicas: FloatArray
    prefill_replicas: FloatArray
    prefill_tensor_parallel: FloatArray
    prefill_context_parallel: FloatArray
    prefill_pipeline_parallel: FloatArray
    prefill_attention_data_parallel: FloatArray
    prefill_expert_parallel: FloatArray
    prefill_max_num_batched_tokens: FloatArray
    prefill_quantization: CodeArray
    prefill_expert_quantization: CodeArray
    prefill_kv_cache: CodeArray
    prefill_weight_offload: FloatArray
    prefill_kv_offload: FloatArray
    prefill_gpu_memory_utilization: FloatArray

    @classmethod
    def combine_workers(
        cls,
        prefill: ServingConfigurations,
        decode: ServingConfigurations,
        prefill_replicas: FloatArray,
        replicas: FloatArray,
    ) -> PoolConfigurations:
        """Build pool configurations from workers and the numbers of workers of each kind."""
        gpus = prefill.replica_gpus * prefill_replicas + decode.replica_gpus * replicas
        decode_parameters = {name: getattr(decode, name) for name in SERVING_NAMES}
        kind = AttentionFfnPools if isinstance(decode, AttentionFfnConfigurations) else cls
        return kind(
            **{**decode_parameters, "num_gpus": gpus},
            replicas=replicas,
            prefill_replicas=prefill_replicas,
            **{PREFILL + name: getattr(prefill, name) for name in OF_PREFILL},
        )

    @property
    def decode(self) -> ServingConfigurations:
        """One decode worker."""
        values = {name: getattr(self, name) for name in SERVING_NAMES}
        return self.decode_kind(**{**values, "num_gpus": self.replica_gpus})

    @property
    def prefill(self) -> ServingConfigurations:
        """The configuration of one prefill worker; its concurrency is set to 1."""
        values = {name: getattr(self, PREFILL + name) for name in OF_PREFILL}
        ones = np.ones_like(self.prefill_tensor_parallel)
        single_worker = ServingConfigurations(num_gpus=ones, concurrency=ones, **values)
        return replace(single_worker, num_gpus=single_worker.replica_gpus)


@record(kw_only=True)
class AttentionFfnPools(_SeparateFfn, PoolConfigurations):
    """Pools whose decode workers have attention and FFN on separate GPUs."""

    decode_kind = AttentionFfnConfigurations


PREFILL = "prefill_"
OF_PREFILL = tuple(name for name in SERVING_NAMES if name not in ("num_gpus", "concurrency"))
