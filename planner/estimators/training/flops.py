"""FLOPs of training for MFU and HFU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, Numeric, add
from planner.base.enums import AdapterKind
from planner.base.training_aliases import ExpertAdapters
from planner.errors import PlannerError
from planner.estimators.adapters import layer_adapter_parameters, layer_expert_parameters
from planner.estimators.training.micro_batch_share import TrainingInputs, trained_length
from planner.estimators.training.recomputation import Recomputation
from planner.estimators.training.saved_activations import skipped_share
from planner.formulas.attention import attention_core_flops, recurrence_flops
from planner.layers.model import (
    Layer,
    count_parameters,
    layer_of,
    logits_per_token,
    tower_layer,
    tower_parameters,
    trained_shares,
)
from planner.layers.operators import (
    AttentionCore,
    Experts,
    LayerOperator,
    MatrixProduct,
    ParameterPart,
    Scan,
)
from planner.specs.gpu import AttentionEfficiency, GemmEfficiency, is_assumed
from planner.specs.image_processing import tiles_of
from planner.specs.model import LayerGroup, ModelSpec


def matmul_parameters(model: ModelSpec) -> int:
    """Count parameters that one token is multiplied with; shared logits count at every use.

    Looked-up embeddings are not.
    """
    shared = model.mtp_num_layers * model.vocab_size * model.hidden_size
    return count_parameters(model).active + shared


def attention_flops_per_token(model: ModelSpec, sequence_length: int) -> float:
    """Return forward FLOPs per token of attention scores and values of all layers.

    Linear attention and Mamba-2 are counted as the recurrence that they compute.
    """
    return sum(
        group.num_hidden_layers * _core_flops_per_token(layer_of(model, group), sequence_length)
        for group in model.layer_groups
    )


def _core_flops_per_token(layer: Layer, sequence_length: int) -> float:
    return sum(_core_flops(op, sequence_length) for op in layer.operators)


def _core_flops(op: LayerOperator, sequence_length: int) -> float:
    """Return forward FLOPs per token of an attention core or a scan; 0 for other operators."""
    if isinstance(op, Scan):
        return float(recurrence_flops(tokens=1.0, state=op.state, delta_rule=op.delta_rule))
    if not isinstance(op, AttentionCore):
        return 0.0
    seen: float = min(op.most_keys or sequence_length, sequence_length)
    seen = seen + float(op.compressed_keys(sequence_length)) if op.compress_ratio else seen
    return float(
        attention_core_flops(
            num_queries=1.0,
            keys_per_query=seen,
            num_heads=op.heads,
            qk_head_dim=op.qk_dim,
            v_head_dim=op.v_dim,
        )
    )


def forward_flops_per_token(model: ModelSpec, sequence_length: int) -> float:
    """FLOPs of one forward pass of the text model, attention without the causal mask."""
    return 2.0 * matmul_parameters(model) + attention_flops_per_token(model, sequence_length)


HEAD = "embedding_and_logits"


def forward_flops_by_part(model: ModelSpec, sequence_length: int) -> dict[str, float]:
    """Return forward FLOPs per token by part: attention, feed forward, logits and the rest."""
    counted = count_parameters(model)
    flops = {
        "attention": 2.0 * counted.attention + attention_flops_per_token(model, sequence_length),
        "feed_forward": 2.0 * (counted.feed_forward + counted.active_experts + counted.router),
        HEAD: 2.0 * logits_per_token(model),
    }
    rest = forward_flops_per_token(model, sequence_length) - sum(flops.values())
    return {**flops, "others": rest}


def model_flops_per_token(
    model: ModelSpec, sequence_length: int, inputs: TrainingInputs | None = None
) -> float:
    """Return model FLOPs per token, forward and backward: ``6 N + 12 L a d s`` [1]_.

    N are the active parameters in matrix multiplications; attention is counted without the causal
    mask, as PaLM, Megatron-LM and torchtitan do. Frozen weights have no gradient: ``4 N``, and 6
    per parameter of the adapters of a setting. Passes without gradients that the objective needs,
    such as those of a reference model, are ``2 N`` each: none of it is done twice.

    References
    ----------
    .. [1] A. Chowdhery et al., "PaLM," 2022, arXiv:2204.02311, appendix B.
    """
    forward = forward_flops_per_token(model, sequence_length)
    if inputs is None:
        return 3.0 * forward
    in_tower = tower_flops_per_token(inputs)
    of_policy, of_reference = inputs.workload.forward_passes
    passes = 3.0 + of_policy + of_reference
    work = inputs.workload
    frozen = 1.0 - trained_shares(model, work.trained_layers)
    if not work.is_frozen:
        ends = 2.0 * logits_per_token(model) * work.trains_part
        before = 2.0 * _layer_flops_per_token(model, sequence_length, lambda _: 1.0, frozen)
        return passes * forward - ends - float(before) + in_tower
    spared = 2.0 * matmul_parameters(model)
    before = _layer_flops_per_token(model, sequence_length, _with_data_gradient, frozen)
    spared += float(before)
    logits = model.head_columns * model.hidden_size if inputs.workload.saves_ends else 0
    adapters = (6.0 + 2.0 * of_policy) * (_in_adapters(inputs) + _met_on_experts(inputs))
    return passes * forward - spared + adapters + 2.0 * logits + in_tower


def tower_flops_per_token(inputs: TrainingInputs) -> float:
    """Return vision-tower FLOPs per trained token; only forward if the tower is frozen.

    Layers process patches, and each patch attends to those of its image or window. The projector
    processes the tokens that are made of the patches.
    """
    tower, work = inputs.model.vision_tower, inputs.workload
    if tower is None or not work.images_per_sample:
        return 0.0
    each = work.tokens_per_image or tower.tokens_per_image
    patches = each * tower.patches_per_token
    seen = round(patches / tiles_of(tower, each))
    encoder = tower_parameters(tower) - tower.projector_parameters
    scores = sum(
        group.num_hidden_layers * _core_flops_per_token(tower_layer(tower, group), seen)
        for group in tower.layer_groups
    )
    forward = patches * (2.0 * encoder + scores) + each * 2.0 * tower.projector_parameters
    of_policy, of_reference = work.forward_passes
    passes = (1.0 if work.freezes_tower else 3.0) + of_policy + of_reference
    return passes * work.images_per_sample * forward / trained_length(work)


def adapter_parameter_count(inputs: TrainingInputs) -> int:
    """Count trained parameters: LoRA or other adapters, and saved embedding and logits.

    Of adapters that the experts of a rank share it is those of one rank.
    """
    on_experts = sum(
        number * int(layer_expert_parameters(inputs, group, 1.0, 1.0))
        for number, group in _adapted_layers(inputs)
    )
    return _in_adapters(inputs) + on_experts + saved_parameter_count(inputs)


def saved_parameter_count(inputs: TrainingInputs) -> int:
    """Count embedding and logits parameters that are trained together with adapters."""
    model = inputs.model
    if not inputs.workload.saves_ends:
        return 0
    logits = 0 if model.ties_head else model.head_columns
    return (model.vocab_size + logits) * model.hidden_size


def _met_on_experts(inputs: TrainingInputs) -> float:
    """Count LoRA parameters that one token meets in the routed experts it visits."""
    shared = inputs.workload.expert_adapters is ExpertAdapters.SHARED
    total = 0.0
    for number, group in _adapted_layers(inputs):
        if op := layer_of(inputs.model, group).experts:
            sets = 1 if shared else op.num_experts
            of_layer = float(layer_expert_parameters(inputs, group, 1.0, 1.0)) / sets
            total += number * op.per_token * of_layer
    return total


def _in_adapters(inputs: TrainingInputs) -> int:
    """Count LoRA (adapter) parameters outside routed experts."""
    workload = inputs.workload
    if workload.adapter is AdapterKind.PROMPT:
        return workload.virtual_tokens * inputs.model.hidden_size
    return sum(
        number * int(layer_adapter_parameters(inputs, group, 1.0))
        for number, group in _adapted_layers(inputs)
    )


def _adapted_layers(inputs: TrainingInputs) -> Iterator[tuple[int, LayerGroup]]:
    """Yield how many layers of each group have adapters."""
    shares = trained_shares(inputs.model, inputs.workload.trained_layers)
    for group, share in zip(inputs.model.layer_groups, shares, strict=True):
        yield round(share * group.num_hidden_layers), group


def recomputed_flops_per_token(
    model: ModelSpec,
    sequence_length: int,
    recomputation: Recomputation,
    flash_attention: BoolArray,
    selective_share: float = 0.0,
    selective_grouped: float | None = None,
) -> FloatArray:
    """Return FLOPs per token that full or selective recomputation repeats.

    ``selective_share`` of the matrices is repeated where a framework has no modules but shares,
    ``selective_grouped`` of those of experts, if that is another; a fused attention core is no
    module of its own.
    """
    attention = attention_flops_per_token(model, sequence_length)
    matrices = 2.0 * (matmul_parameters(model) - logits_per_token(model))
    partly = add(repeated_modules_flops(model, sequence_length, recomputation, flash_attention))
    if selective_share:
        more = 0.0 if selective_grouped is None else selective_grouped - selective_share
        of_experts = _layer_flops_per_token(
            model, sequence_length, lambda op: more * isinstance(op, Experts)
        )
        shares = selective_share * matrices + of_experts
        partly = partly + np.where(recomputation.by_share, shares, 0.0)
    spared_ones: Numeric = 0.0
    if recomputation.spares:
        spared_ones = _layer_flops_per_token(
            model, sequence_length, lambda op: skipped_share(op, recomputation)
        )
    full_flops = matrices + attention - spared_ones
    return np.where(recomputation.any_full, recomputation.full * full_flops, partly)


def repeated_modules_flops(
    model: ModelSpec, sequence_length: int, recomputation: Recomputation, flash_attention: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Return FLOPs per token of selective recomputation: (of attention, of other modules)."""
    parts = {"core_attn": np.where(flash_attention, 0.0, 1.0)}

    def repeated(op: LayerOperator, *, in_attention: bool) -> Numeric:
        is_core = isinstance(op, AttentionCore)
        if (is_core or op.holder is ParameterPart.ATTENTION) is not in_attention:
            return 0.0
        return recomputation.share_of(op.repeated_by, parts if is_core else {})

    of_attention, of_others = (
        _layer_flops_per_token(model, sequence_length, partial(repeated, in_attention=which))
        for which in (True, False)
    )
    return of_attention, of_others


def _layer_flops_per_token(
    model: ModelSpec,
    sequence_length: int,
    share: Callable[[LayerOperator], Numeric],
    of_groups: Iterable[float] = repeat(1.0),
) -> FloatArray:
    """Return forward FLOPs per token of all layers, each operator times its ``share``.

    ``of_groups``: the part of the layers of each group that counts.
    """
    terms: list[Numeric] = [0.0]
    for group, part in zip(model.layer_groups, of_groups, strict=False):
        for op in layer_of(model, group).operators:
            parameters = op.met if isinstance(op, MatrixProduct | Experts) else 0
            flops = _core_flops(op, sequence_length) or 2.0 * parameters
            if flops:
                terms.append(part * group.num_hidden_layers * flops * share(op))
    return add(terms)


def _with_data_gradient(op: LayerOperator) -> float:
    """Return FLOPs of the backward pass over those of the forward pass, without weights' ones."""
    return 1.0 if isinstance(op, MatrixProduct | Experts) else 2.0


_PASSES = 3  # forward, and twice as much backward
_CAUSAL = 0.5


def max_utilization(inputs: TrainingInputs) -> float:
    r"""Return an upper bound of the MFU: large products and attention without any gap.

    .. math:: MFU_{max} = \frac{F}{(F - A) / e + c A / e_a}

    e and e_a are the shares of the peak that products and attention reach, 1 if not published. MFU
    counts F FLOPs per token. A of these are attention, and causal kernels compute the share c = 1/2
    of A. The 2,343 published runs of the validation stay below; the nearest reaches 0.93 of it, on
    B200.
    """
    length = inputs.workload.sequence_length
    counted = float(np.ravel(np.asarray(model_flops_per_token(inputs.model, length, inputs)))[0])
    attention = min(_PASSES * attention_flops_per_token(inputs.model, length), counted)
    efficiency = inputs.machine.gpu.efficiency
    products = _reached(inputs, "gemm", efficiency.gemm)
    cores = _reached(inputs, "attention", efficiency.attention)
    return counted / ((counted - attention) / products + _CAUSAL * attention / cores)


def _reached(
    inputs: TrainingInputs,
    part: str,
    rows: Mapping[str, GemmEfficiency] | Mapping[str, AttentionEfficiency],
) -> float:
    """Return the highest published share of peak FLOP/s of a kernel kind; 1 if none is known."""
    try:
        provenance = inputs.machine.catalogue.load_gpu(inputs.machine.gpu.name).provenance
    except PlannerError:
        provenance = {}
    fractions = [
        float(row.compute_fraction)
        for key, row in rows.items()
        if not is_assumed(provenance, f"{part}.{key}.compute_fraction")
    ]
    return max(fractions, default=1.0)
