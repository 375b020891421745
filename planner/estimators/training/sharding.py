"""Layers of pipeline stages, parameters on their GPUs, and groups that shard and exchange them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric, add
from planner.base.enums import AdapterKind, ZeroStage
from planner.base.records import record
from planner.base.software_enums import ExpertCompute
from planner.base.units import ceil_div
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.configurations.training_rules import END_CHUNKS
from planner.estimators.adapters import layer_adapter_parameters, layer_expert_parameters
from planner.estimators.machine import CommunicationGroup
from planner.estimators.training.bytes_per_element import GradientBytes, compute_bytes, widen
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.formulas.memory import quantized_bytes, sharded_bytes
from planner.layers.model import (
    Layer,
    count_parameters,
    embedding_of,
    layer_kinds,
    layer_of,
    logits_of,
    logits_per_token,
    prediction_of,
    tower_parameters,
    trained_shares,
)
from planner.layers.operators import Experts, MatrixProduct
from planner.specs.model import LayerGroup, ModelSpec
from planner.specs.training_workload import TrainingWorkload, layers_of_chunks


@record(kw_only=True)
class StageLayers:
    """Layers of the stages among which the slowest and the fullest are.

    ``counts`` has shape ``(stages, groups, ...)`` and ``ranks``, the place of each stage in
    the pipeline, ``(stages, ...)``: the first stage, inner ones, the last. Inner ones are
    left out that an earlier inner stage, with more micro-batches in flight, equals or
    exceeds in the layers of every group.
    """

    counts: FloatArray
    ranks: FloatArray


def stage_layers(
    model: ModelSpec,
    pipeline_parallel: FloatArray,
    virtual_pipeline: FloatArray,
    layout: str = "",
    *,
    every_stage: bool = False,
) -> StageLayers:
    """Count layers per group on the candidate pipeline stages, for each (pipeline, virtual) pair.

    ``every_stage``: all stages of the pipeline, not those alone that may be the slowest or fullest.

    Layers are dealt to the p v chunks as an explicit ``layout`` says, or `chunk_sizes`. Counts are
    zero where there are more chunks than can be: one for each layer and, in an interleaved
    schedule, two that hold the embedding or the logits alone.
    """
    p, v = np.broadcast_arrays(pipeline_parallel, virtual_pipeline)
    # A complex number is a pair that numpy sorts.
    each = p.ravel() + 1j * v.ravel()
    pairs = sorted(set(each.tolist()), key=lambda pair: (pair.real, pair.imag))
    inverse = np.searchsorted(np.array(pairs), each)
    weights = _logits_weight(model)
    chunk_layers = layers_of_chunks(layout) if layout else ()
    candidates = [
        _candidates(model.layer_groups, weights, pair.real, pair.imag, chunk_layers, every_stage)
        for pair in pairs
    ]
    max_stages = max(len(ranks) for _, ranks in candidates)
    padded = [[_pad_stages(array, max_stages) for array in pair] for pair in candidates]
    counts, ranks = (
        np.stack(arrays, axis=-1)[..., inverse] for arrays in zip(*padded, strict=True)
    )
    return StageLayers(
        counts=counts.reshape(*counts.shape[:2], *p.shape),
        ranks=ranks.reshape(len(ranks), *p.shape),
    )


def _pad_stages(stages: FloatArray, length: int) -> FloatArray:
    """The last stage repeated."""
    if len(stages) == length:
        return stages
    return np.concatenate([stages, np.repeat(stages[-1:], length - len(stages), axis=0)])


@lru_cache(maxsize=4096)
def _candidates(
    groups: tuple[LayerGroup, ...],
    weights: tuple[int, int],
    p: float,
    v: float,
    chunk_layers: tuple[int, ...] = (),
    every_stage: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Return layer counts and ranks of candidate stages; ``chunk_layers``: an explicit layout."""
    kinds = layer_kinds(groups)
    chunks = int(p * v)
    is_explicit = len(chunk_layers) == chunks and sum(chunk_layers) == len(kinds)
    too_many = chunks > len(kinds) + (END_CHUNKS if v > 1 else 0)
    if chunks != p * v or (too_many and not is_explicit):
        return np.zeros((3, len(groups))), np.zeros(3)
    sizes = chunk_sizes(len(kinds), chunks, *weights, interleaved=v > 1)
    if is_explicit:
        sizes = np.array(chunk_layers)
    stages = _per_chunk(groups, sizes).reshape(int(v), int(p), len(groups)).sum(axis=0)
    ranks = [*range(len(stages))] if every_stage else [0, *_inner_ranks(stages), len(stages) - 1]
    return stages[ranks], np.array(ranks, dtype=np.float64)


def _per_chunk(groups: tuple[LayerGroup, ...], sizes: NDArray[np.int64]) -> FloatArray:
    """Count the layers of each group on each chunk; ``sizes``: layers per chunk."""
    kinds, ends = layer_kinds(groups), np.cumsum(sizes)
    before = np.zeros((len(kinds) + 1, len(groups)))
    np.cumsum(np.eye(len(groups))[kinds], axis=0, out=before[1:])
    return np.asarray(before[ends] - before[ends - sizes])


def chunk_layers(
    model: ModelSpec, pipeline_parallel: int, virtual_pipeline: int, layout: str = ""
) -> FloatArray:
    """Count layers of each group on each chunk of the pipeline: shape ``(chunks, groups)``."""
    sizes = chunk_split(model, pipeline_parallel, virtual_pipeline, layout)
    return _per_chunk(model.layer_groups, np.array(sizes))


def _inner_ranks(stages: FloatArray) -> list[int]:
    """Return inner stages, except those with no more layers of any group than an earlier stage."""
    ranks: list[int] = []
    for rank in range(1, len(stages) - 1):
        if not any(np.all(stages[earlier] >= stages[rank]) for earlier in ranks):
            ranks.append(rank)
    return ranks or [0]


def chunk_split(
    model: ModelSpec, pipeline_parallel: int, virtual_pipeline: int, layout: str = ""
) -> list[int]:
    """Return layers per pipeline chunk in model order; chunk c is on pipeline stage c mod p.

    An explicit ``layout`` says them itself. Layers of modules of multi-token prediction are the
    last of the last chunk.
    """
    if (
        layout
        and len(chunk_layers := layers_of_chunks(layout)) == pipeline_parallel * virtual_pipeline
    ):
        return list(chunk_layers)
    sizes = chunk_sizes(
        model.num_hidden_layers,
        pipeline_parallel * virtual_pipeline,
        *_logits_weight(model),
        interleaved=virtual_pipeline > 1,
    )
    return [int(size) for size in sizes]


def chunk_sizes(
    num_layers: int,
    num_chunks: int,
    logits_in_layers: int,
    most_for_logits: int = 0,
    interleaved: bool = False,
) -> NDArray[np.int64]:
    """Return layers per chunk; if uneven, the last, then the first, then inner chunks get one less.

    The last chunk goes without ``logits_in_layers`` for its logits, the first without one for its
    embedding, as Megatron-Core splits pipelines that account for embedding and loss. In an
    ``interleaved`` schedule these two alone lack layers, down to none, if that is enough: where
    more than two are missing, the last goes without up to ``most_for_logits`` (explicit layouts
    of Megatron-Bridge).
    """
    max_layers = ceil_div(num_layers, num_chunks)
    missing = max_layers * num_chunks - num_layers
    sizes = np.full(num_chunks, max_layers)
    if interleaved:
        worth = max(logits_in_layers, most_for_logits if missing > END_CHUNKS else 0)
        at_end = min(missing, worth, max_layers)
        if missing - at_end <= 1:
            sizes[-1] -= at_end
            sizes[0] -= missing - at_end
            return sizes
    at_end = min(missing, logits_in_layers, max_layers - 1)
    sizes[-1] -= at_end
    elsewhere = [0, *range(num_chunks - 2, 0, -1)]
    sizes[elsewhere[: missing - at_end]] -= 1
    return sizes


def logits_in_layers(model: ModelSpec) -> int:
    """Cost of all logits in units of layers, rounded up."""
    counts = count_parameters(model)
    in_layers = counts.attention + counts.feed_forward + counts.active_experts
    return ceil_div(logits_per_token(model) * model.num_hidden_layers, in_layers)


def _logits_weight(model: ModelSpec) -> tuple[int, int]:
    """Return how many layers fewer the last chunk gets for its logits: usually, and at most.

    One, as Megatron-Core's splits that account for the loss; where there are logits of later
    tokens, too, pipelines are laid out by hand: what they are worth.
    """
    worth = logits_in_layers(model)
    return (worth if model.mtp_num_layers else 1), worth


_END_BYTES = 2.0


@record(kw_only=True)
class StageParameters:
    """Parameters on one GPU: those replicated on data-parallel ranks, and routed experts.

    ``dense`` and ``experts`` have shape ``(stages, ...)``, the candidates of `StageLayers`.
    ``layer_dense`` and ``layer_experts`` hold one layer of each group, ``end`` the embedding or
    logits matrix. ``is_first`` and ``is_last`` tell where embedding and logits stand. ZeRO shards
    over ``dense_group`` and ``expert_group``; ranks of ``dense_replicas`` and ``expert_replicas``
    hold the same shard. ``adapters`` are what is trained of it, all but a frozen vision tower or
    adapters alone, saved modules counted as so many adapter parameters as their states take
    (`saved_share`).
    """

    layers: StageLayers
    is_first: BoolArray
    is_last: BoolArray
    dense: FloatArray
    experts: FloatArray
    layer_dense: tuple[FloatArray, ...]
    layer_experts: tuple[FloatArray, ...]
    end: FloatArray
    dense_group: CommunicationGroup
    expert_group: CommunicationGroup
    dense_replicas: CommunicationGroup
    expert_replicas: CommunicationGroup
    adapters: StageParameters | None = None

    @property
    def trained(self) -> StageParameters:
        """Parameters with gradients: the adapters, or all without adapters."""
        return self.adapters or self

    @property
    def untrained(self) -> StageParameters:
        """Parameters without gradients, where the trained ones are a part of the model."""
        dense, experts = self.dense - self.trained.dense, self.experts - self.trained.experts
        return replace(self, dense=dense, experts=experts)

    @property
    def in_one_layer(self) -> list[FloatArray]:
        """Parameters of one layer of each group."""
        pairs = zip(self.layer_dense, self.layer_experts, strict=True)
        return [dense + experts for dense, experts in pairs]

    @property
    def dense_in_layers(self) -> FloatArray:
        """``dense`` without embedding and logits."""
        return _on_stages(self.layers, self.layer_dense)


def stage_parameters(
    model: ModelSpec,
    c: TrainingConfigurations,
    inputs: TrainingInputs | None = None,
    *,
    every_stage: bool = False,
) -> StageParameters:
    """Count parameters per stage on one GPU before ZeRO, with LoRA or other trained adapters."""
    text = _unsharded_parameters(
        model, c, inputs.workload.pipeline_layout if inputs else "", every_stage
    )
    parameters = text if inputs is None else _with_tower(inputs, text)
    if inputs is None or not (inputs.workload.is_frozen or inputs.workload.trains_part):
        return parameters
    parameters = replace(parameters, adapters=None)
    layers = _trained_stage_layers(inputs, parameters.layers)
    if inputs.workload.trains_part:
        trained = replace(
            parameters,
            layers=layers,
            dense=_on_stages(layers, parameters.layer_dense),
            experts=_on_stages(layers, parameters.layer_experts),
            end=np.zeros_like(parameters.end),
        )
        return replace(parameters, adapters=trained)
    dense = tuple(
        layer_adapter_parameters(inputs, group, c.tensor_parallel) for group in model.layer_groups
    )
    experts = tuple(
        layer_expert_parameters(inputs, group, c.expert_parallel, c.expert_tensor_parallel)
        for group in model.layer_groups
    )
    saved = saved_share(inputs) * parameters.end
    prompt = np.zeros(())
    if inputs.workload.adapter is AdapterKind.PROMPT:  # embeddings of virtual tokens
        numbers = float(inputs.workload.virtual_tokens * inputs.model.hidden_size)
        prompt = np.where(parameters.is_first, numbers, 0.0)
    adapters = replace(
        parameters,
        layers=layers,
        dense=_on_stages(layers, dense) + _saved_ends(model, parameters, saved) + prompt,
        experts=np.zeros_like(parameters.experts) + _on_stages(layers, experts),
        layer_dense=dense,
        layer_experts=experts,
        end=saved,
    )
    return replace(parameters, adapters=adapters)


def _trained_stage_layers(inputs: TrainingInputs, held: StageLayers) -> StageLayers:
    """Return the layers of each stage that are trained or have adapters."""
    if not inputs.workload.trained_layers:
        return held
    shares = trained_shares(inputs.model, inputs.workload.trained_layers)
    return replace(held, counts=held.counts * shares.reshape(-1, *[1] * (held.counts.ndim - 2)))


def _with_tower(inputs: TrainingInputs, text: StageParameters) -> StageParameters:
    """Add the vision tower to the parameters of the first stage; unchanged without a tower."""
    tower, work = inputs.model.vision_tower, inputs.workload
    if tower is None or not work.has_tower:
        return text
    num_parameters = np.where(text.is_first, float(tower_parameters(tower)), 0.0)
    with_tower = replace(text, dense=text.dense + num_parameters)
    return replace(with_tower, adapters=text) if work.freezes_tower else with_tower


def sharded(
    c: TrainingConfigurations,
    sharded_from: ZeroStage,
    held: Iterable[tuple[FloatArray, Numeric, CommunicationGroup]],
) -> FloatArray:
    """Return bytes on one GPU after ZeRO sharding; ``held``: (parameters, bytes each, ZeRO group).

    ``sharded_from``: the ZeRO stage that shards them.
    """
    return add(
        sharded_bytes(
            parameters=count,
            bytes_per_parameter=width,
            group_size=group.size,
            zero_stage=c.zero_stage,
            sharded_from=sharded_from,
        )
        for count, width, group in held
    )


def saved_share(inputs: TrainingInputs) -> float:
    """Return bytes of states per embedding/logits parameter over those per adapter parameter.

    PEFT copies saved modules as they are, in 16 bits, and their gradients and moments are as
    wide; adapters may be in 32 bits. 0 where neither end is trained.
    """
    if not inputs.workload.saves_ends:
        return 0.0
    width = inputs.framework.states.weight
    return min(_END_BYTES / width, 1.0) if width else 1.0


def _saved_ends(model: ModelSpec, parameters: StageParameters, matrix: FloatArray) -> FloatArray:
    """Count trained embedding and logits parameters per stage; tied matrices on one stage once."""
    if not np.any(matrix):
        return np.zeros(())
    first = np.where(parameters.is_first, matrix, 0.0)
    if model.num_labels:
        return first
    is_tied = parameters.is_first & model.tie_word_embeddings
    return first + np.where(parameters.is_last & ~is_tied, matrix, 0.0)


def _unsharded_parameters(
    model: ModelSpec, c: TrainingConfigurations, layout: str, every_stage: bool
) -> StageParameters:
    """Count the parameters of each stage on one GPU before ZeRO shards them; adds ZeRO groups."""
    # The axis of stages comes before the axes of the configurations, which must all exist.
    axes = (1,) * len(c.shape)
    p, v = (np.multiply(x, np.ones(axes)) for x in (c.pipeline_parallel, c.virtual_pipeline))
    layers = stage_layers(model, p, v, layout, every_stage=every_stage)
    is_first, is_last = layers.ranks == 0, layers.ranks == p - 1
    parts = [layer_of(model, group) for group in model.layer_groups]
    dense = tuple(_dense_share(layer, c.tensor_parallel) for layer in parts)
    experts = tuple(
        np.asarray(sum(op.parameters for op in layer.of(Experts)) / c.expert_ranks)
        for layer in parts
    )
    ends = _end_parameters(model, c.tensor_parallel, is_first, is_last)
    ranks = c.tensor_parallel * c.context_parallel * c.data_parallel
    dense_group, expert_group = (
        CommunicationGroup(size=ranks / stride / c.data_parallel_replicas, stride=stride)
        for stride in (c.tensor_parallel, c.expert_ranks)
    )
    # A GPU of DualPipe has a stage of each direction (arXiv:2412.19437, table 2).
    copies = np.where(c.from_both_ends, 2.0, 1.0)
    return StageParameters(
        layers=layers,
        is_first=is_first,
        is_last=is_last,
        dense=copies * (_on_stages(layers, dense) + ends),
        experts=copies * _on_stages(layers, experts),
        layer_dense=dense,
        layer_experts=experts,
        end=model.vocab_size * model.hidden_size / c.tensor_parallel,
        dense_group=dense_group,
        expert_group=expert_group,
        dense_replicas=_replicas(dense_group, c),
        expert_replicas=_replicas(expert_group, c),
    )


def _replicas(shards: CommunicationGroup, c: TrainingConfigurations) -> CommunicationGroup:
    """Ranks that hold the same shard in each copy."""
    return CommunicationGroup(size=c.data_parallel_replicas, stride=shards.size * shards.stride)


def _dense_share(layer: Layer, tensor_parallel: FloatArray) -> FloatArray:
    """Count parameters of a layer on one tensor-parallel rank, except those of routed experts."""
    dense = [op for op in layer.operators if not isinstance(op, Experts)]
    sharded = sum(op.parameters for op in dense if op.sharded)
    unsharded = sum(op.parameters for op in dense if not op.sharded)
    # Key-value parameters that a rank copies if there are fewer KV heads than ranks.
    copied = [
        op.depth * (op.columns.on_rank(tensor_parallel) - op.columns.total / tensor_parallel)
        for op in layer.of(MatrixProduct)
        if op.columns.copied
    ]
    return add((sharded / tensor_parallel, unsharded, *copied))


def _on_stages(layers: StageLayers, per_layer: tuple[FloatArray, ...]) -> FloatArray:
    return add(layers.counts[:, index] * parameters for index, parameters in enumerate(per_layer))


def _end_parameters(
    model: ModelSpec, tensor_parallel: FloatArray, is_first: BoolArray, is_last: BoolArray
) -> FloatArray:
    """Count embedding (first stage) and logits (last stage) parameters on one rank per stage.

    Multi-token prediction embeds tokens on the last stage, too.
    """
    modules = model.mtp_num_layers
    matrix = model.vocab_size * model.hidden_size / tensor_parallel
    copied = model.ties_head or modules > 0
    copy = np.where(is_first, 0.0, matrix) if copied else 0.0
    first, last, projected = (
        _dense_share(end, tensor_parallel)
        for end in (embedding_of(model), logits_of(model), prediction_of(model))
    )
    of_last = last + copy + modules * projected
    return np.where(is_first, first, 0.0) + np.where(is_last, of_last, 0.0)


END_BYTES = 2.0
"""Bytes per parameter of embedding and logits, which nothing quantizes."""


def end_bytes(precision: CodeArray) -> Numeric:
    """Bytes per frozen parameter of embedding and logits."""
    return widen(END_BYTES, precision)


def layer_weight_bytes(workload: TrainingWorkload, precision: CodeArray) -> FloatArray:
    """Return bytes per frozen layer parameter: quantized size in QLoRA, else compute precision."""
    if workload.adapter is AdapterKind.QLORA:
        return np.asarray(
            quantized_bytes(
                bits=workload.quantization_bits, double_quantization=workload.double_quantization
            )
        )
    return compute_bytes(precision)


def expert_weight_bytes(inputs: TrainingInputs, c: TrainingConfigurations) -> FloatArray:
    """Return bytes per frozen parameter of routed experts.

    Transformers from 5 on keeps the experts of a layer in one tensor, which bitsandbytes does not
    quantize (bitsandbytes-foundation/bitsandbytes issue 1849); a loop over experts is that of
    earlier releases.
    """
    of_layer = layer_weight_bytes(inputs.workload, c.precision)
    if inputs.framework.quantized_experts:
        return of_layer
    loops = c.expert_compute == ExpertCompute.LOOP
    return np.where(loops, of_layer, compute_bytes(c.precision))


def gathered_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations
) -> tuple[FloatArray, FloatArray]:
    """Return bytes per parameter that ZeRO-3 all-gathers: of layers, and of embedding/logits.

    Experts are nearly all of a layer that has them.
    """
    on_wire = np.asarray(widen(inputs.framework.states.weight_on_wire, c.precision))
    if not inputs.workload.is_frozen:
        return on_wire, on_wire
    of_layer = (
        expert_weight_bytes(inputs, c)
        if inputs.model.num_experts
        else layer_weight_bytes(inputs.workload, c.precision)
    )
    return of_layer, np.asarray(end_bytes(c.precision))


def frozen_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of frozen base-model weights on one GPU of a stage, after ZeRO sharding."""
    of_layer, of_end = layer_weight_bytes(inputs.workload, c.precision), end_bytes(c.precision)
    in_layers = parameters.dense_in_layers[stage]
    ends = parameters.dense[stage] - in_layers
    shards = (
        (in_layers, of_layer, parameters.dense_group),
        (ends, of_end, parameters.dense_group),
        (parameters.experts[stage], expert_weight_bytes(inputs, c), parameters.expert_group),
    )
    return sharded(c, ZeroStage(inputs.framework.states.weights_sharded_from), shards)


def stage_gathered_bytes(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters, stage: int
) -> FloatArray:
    """Return bytes of all weights of a stage on one GPU when ZeRO-3 has gathered them."""
    of_layer, of_end = gathered_bytes(inputs, c)
    total = parameters.dense[stage] + parameters.experts[stage]
    if not inputs.workload.is_frozen:
        return np.asarray(total * of_end)
    in_layers = parameters.dense_in_layers[stage] + parameters.experts[stage]
    return np.asarray(in_layers * of_layer + (total - in_layers) * of_end)


@record(kw_only=True)
class DataParallelTime:
    """Seconds of communication, before overlap.

    ``layer_forward`` and ``layer_backward``: per group, one layer and micro-batch of ZeRO-2 and
    ZeRO-3. ``step``: of the stage where it lasts longest, at the end of a step.
    """

    layer_forward: tuple[FloatArray, ...]
    layer_backward: tuple[FloatArray, ...]
    end_forward: FloatArray
    end_backward: FloatArray
    step: FloatArray


def data_parallel_time(
    inputs: TrainingInputs, c: TrainingConfigurations, parameters: StageParameters
) -> DataParallelTime:
    """Return seconds of data-parallel (ZeRO) collectives per layer and per step, before overlap."""
    states = inputs.framework.states
    gradients = GradientBytes.of(inputs.framework, c.precision, c.main_grads_precision)
    exchange = _Exchange(inputs=inputs, parameters=parameters)
    of_units = replace(exchange, most_nics=inputs.framework.overlap.gather_nics)
    zero = c.zero_stage
    forward, backward = [], []
    of_layer, of_end = gathered_bytes(inputs, c)
    for (dense, experts), trained, width in zip(
        _units(parameters),
        _units(parameters.trained),
        [*(of_layer for _ in parameters.layer_dense), of_end],
        strict=True,
    ):
        gather = scatter = np.zeros(())
        if np.any(zero >= ZeroStage.GRADIENTS):
            gather = of_units.in_copy("all_gather", width, dense, experts)
            scatter = of_units.scattered_gradients(gradients.on_wire, *trained)
        forward.append(np.where(zero >= states.weights_sharded_from, gather, 0.0))
        backward.append(
            np.where(zero == ZeroStage.WEIGHTS, gather, 0.0)
            + np.where(zero >= ZeroStage.GRADIENTS, scatter, 0.0)
        )
    inputs.machine.close("weight_gather")
    on_wire = widen(states.weight_on_wire, c.precision)
    on_stages = _step_exchange(inputs, exchange, gradients, zero, on_wire)
    inputs.machine.close("data_parallel")
    return DataParallelTime(
        layer_forward=tuple(forward[:-1]),
        layer_backward=tuple(backward[:-1]),
        end_forward=forward[-1],
        end_backward=backward[-1],
        step=on_stages.max(axis=0) if on_stages.ndim > zero.ndim else on_stages,
    )


def _units(parameters: StageParameters) -> list[tuple[FloatArray, FloatArray]]:
    """Dense and expert parameters of what ZeRO gathers at once: a layer of each group, an end."""
    layers = zip(parameters.layer_dense, parameters.layer_experts, strict=True)
    return [*layers, (parameters.end, np.zeros(()))]


@record(kw_only=True)
class _Exchange:
    """Collectives over the groups of a setting's parameters.

    ``most_nics``: network interfaces by which a ring leaves a node, 0 for all.
    """

    inputs: TrainingInputs
    parameters: StageParameters
    most_nics: int = 0

    def in_copy(
        self, kind: str, bytes_per_parameter: Numeric, dense: FloatArray, experts: FloatArray
    ) -> FloatArray:
        """Return seconds of a collective over the ranks that shard one model copy."""
        groups = self.parameters.dense_group, self.parameters.expert_group
        return self._over(groups, kind, bytes_per_parameter * dense, bytes_per_parameter * experts)

    def scattered_gradients(
        self, bytes_per_parameter: Numeric, dense: FloatArray, experts: FloatArray
    ) -> FloatArray:
        """Return seconds to reduce-scatter gradients, then all-reduce shards over replicas."""
        within = self.in_copy("reduce_scatter", bytes_per_parameter, dense, experts)
        p = self.parameters
        if np.all(p.dense_replicas.size == 1):
            return within
        shards = (
            bytes_per_parameter * dense / p.dense_group.size,
            bytes_per_parameter * experts / p.expert_group.size,
        )
        return within + self._over((p.dense_replicas, p.expert_replicas), "all_reduce", *shards)

    def _over(
        self,
        groups: tuple[CommunicationGroup, CommunicationGroup],
        kind: str,
        dense: FloatArray,
        experts: FloatArray,
    ) -> FloatArray:
        """Return seconds of a collective over dense bytes, then over expert bytes, per stage."""
        if not np.any(dense):
            return np.zeros(())
        machine, nics = self.inputs.machine, self.most_nics
        dense_time = machine.collective(kind, dense, groups[0], most_nics=nics)
        if self.inputs.model.num_experts == 0:
            return dense_time
        expert_time = machine.collective(kind, experts, groups[1], most_nics=nics)
        return dense_time + np.where(experts > 0, expert_time, 0.0)


def _step_exchange(
    inputs: TrainingInputs,
    exchange: _Exchange,
    gradients: GradientBytes,
    zero: CodeArray,
    weight_on_wire: Numeric,
) -> FloatArray:
    """Return seconds per step and stage of the gradient all-reduce, or of ZeRO scatter and gather.

    ZeRO-1 scatters gradients and gathers weights, ZeRO-2 gathers. Some frameworks all-reduce
    gradients under ZeRO-1 too. Where weights are sharded between steps, the forward pass gathers
    them instead.
    """
    states, trained = inputs.framework.states, exchange.parameters.trained
    dense, experts = trained.dense, trained.experts
    reduce = scatter = gather = np.zeros(())
    scatters = (np.asarray(gradients.scattered) > 0) & (zero == ZeroStage.OPTIMIZER)
    if not np.all(scatters | (zero > ZeroStage.OPTIMIZER)):
        reduce = exchange.in_copy("all_reduce", gradients.on_wire, dense, experts)
    if np.any(scatters):
        scatter = exchange.scattered_gradients(gradients.on_wire, dense, experts)
    if not np.all((zero == ZeroStage.NONE) | (zero == ZeroStage.WEIGHTS)):
        gather = exchange.in_copy("all_gather", weight_on_wire, dense, experts)
    summed = np.where(gradients.scattered, scatter, reduce)
    sharded = np.where(zero == ZeroStage.OPTIMIZER, summed + gather, 0.0)
    if states.weights_sharded_from > ZeroStage.GRADIENTS:
        sharded = np.where(zero == ZeroStage.GRADIENTS, gather, sharded)
    return np.where(zero == ZeroStage.NONE, reduce, sharded)
