"""Saved activation bytes of a layer, and tensors that full recomputation saves.

References
----------
.. [1] AI-Hypercomputer/maxtext at e591f30, src/maxtext/layers/decoders.py, get_remat_policy: the
   names of what each policy saves; src/maxtext/layers/attentions.py, linears.py and moe.py: where
   these names stand.
.. [2] JAX, "Control autodiff's saved values with jax.checkpoint": what is not saved is computed
   again where the backward pass reads it, and only there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, Numeric, add
from planner.base.enums import AdapterTargets, ContextExchange
from planner.base.software_enums import LAYER_INPUT, MLPWI, MLPWO, AttentionKernel, KeptTensors
from planner.estimators.adapters import adapted_matrices, expert_matrices
from planner.estimators.training.bytes_per_element import WIDE_BYTES, is_narrow, widen
from planner.estimators.training.compilation import keeps_eager_copies, saved_activation_factor
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.recomputation import Recomputation
from planner.formulas.memory import attention_score_bytes, dropout_mask_bytes, saved_tensor_bytes
from planner.layers.model import Layer, layer_of
from planner.layers.operators import (
    AttentionCore,
    Element,
    Experts,
    LayerOperator,
    MatrixProduct,
    MatrixSplit,
    RankSpread,
    SavedTensor,
    Scan,
)
from planner.specs.model import LayerGroup

_SUM_BYTES = 4.0  # Of the softmax, which is saved in addition to the values that it weights.


def skipped_share(op: LayerOperator, recomputation: Recomputation) -> Numeric:
    """Return the share of an operator's forward that full recomputation does not repeat.

    What is kept is not made again, nor, where a framework repeats only what is read, what nothing
    reads [2]_. The outputs of experts are read by the gradients of their weights in the sum.
    """
    if isinstance(op, Experts):
        inside = (op.matrices - 1) / op.matrices
        return inside * recomputation.keeps(MLPWI) + (1 - inside) * recomputation.keeps(MLPWO)
    if op.unread and recomputation.reads_without_overlap:
        return 1.0
    return np.where(recomputation.keeps(op.makes), 1.0, 0.0) if op.makes else 0.0


def kept_tensor_bytes(share: MicroBatchShare, group: LayerGroup, codes: CodeArray) -> FloatArray:
    """Return bytes per layer and micro-batch of the tensors named in ``codes``."""
    if not np.any(codes):
        return np.zeros(())
    parts = [
        np.where(KeptTensors.has(codes, name), size, 0.0)
        for name, size in _sizes(share, layer_of(share.inputs.model, group))
    ]
    return np.asarray(add(parts) * saved_activation_factor(share))


def offloaded_bytes(share: MicroBatchShare, group: LayerGroup) -> FloatArray:
    """Return activation bytes per layer and micro-batch that are offloaded to the host."""
    codes = share.recomputation.offloaded
    if not np.any(codes):
        return np.zeros(())
    layer_input = share.number_bytes * share.local_tokens * share.inputs.model.stream_width
    moved = np.where(KeptTensors.has(codes, LAYER_INPUT), layer_input, 0.0)
    return np.asarray(share.recomputation.full * (moved + kept_tensor_bytes(share, group, codes)))


def _sizes(share: MicroBatchShare, layer: Layer) -> Iterator[tuple[str, Numeric]]:
    """Yield the name of each operator's output tensor and its bytes per micro-batch."""
    for op in layer.operators:
        if isinstance(op, Experts):
            sent = share.number_bytes * share.expert_pairs(op.per_token)
            yield MLPWI, sent * (op.matrices - 1) * op.width
            yield MLPWO, sent * share.expert_tensor_parallel * op.depth
        elif op.makes and type(op) in _MADE:
            yield op.makes, _MADE[type(op)](share, op)


def _of_product(share: MicroBatchShare, op: MatrixProduct) -> Numeric:
    """Return the bytes of the output of a matrix product on one GPU, per micro-batch."""
    if op.split is MatrixSplit.COLUMNS:
        return share.number_bytes * share.tokens * op.columns.on_rank(share.tensor_parallel)
    rows = (
        share.local_tokens
        if op.split is MatrixSplit.ROWS or op.rows is RankSpread.TOKENS
        else share.tokens
    )
    return share.number_bytes * rows * op.columns.total


def _of_core(share: MicroBatchShare, op: AttentionCore) -> Numeric:
    heads = op.heads / share.tensor_parallel
    return share.tokens * heads * (share.number_bytes * op.v_dim + _SUM_BYTES * share.fused)


_MADE: dict[type[LayerOperator], Callable[..., Numeric]] = {
    AttentionCore: _of_core,
    MatrixProduct: _of_product,
    Scan: lambda share, op: share.number_bytes * share.tokens * op.values / share.tensor_parallel,
}
"""Bytes of what an operator of each kind makes."""


def layer_bytes(
    share: MicroBatchShare, group: LayerGroup, unrecomputed: FloatArray | None = None
) -> FloatArray:
    """Return saved activation bytes per layer and micro-batch, the mean over all layers.

    Full recomputation saves the layer's input and named tensors. Recomputation of modules saves
    their inputs. Recomputation of a share of a layer also rebuilds tensors that only eager kernels
    save. ``unrecomputed``: `all_bytes` of the layer, if computed before.
    """
    recomputation = share.recomputation
    profile = share.inputs.framework
    repeated = profile.memory.selective_dropped
    if repeated is None:
        repeated = profile.execution.selective_share
    all_saved = all_bytes(share, group) if unrecomputed is None else unrecomputed
    layer_input = layer_input_bytes(share)
    saved = all_saved - _remade_bytes(share, group)
    if repeated and np.any(recomputation.by_share):
        eager_bytes = _eager_copies(share, _saved_tensors(share, group))
        rest = (1 - repeated) * (saved - eager_bytes) + repeated * layer_input
        if (grouped := profile.execution.selective_grouped) is not None:
            inside, brought = expert_bytes(share, group)
            rest = rest + (repeated - grouped) * inside + repeated * brought
        saved = np.where(recomputation.by_share, rest, saved)
    tensors = kept_tensor_bytes(share, group, recomputation.saved | recomputation.offloaded)
    repeated_whole = recomputation.full * (layer_input + tensors)
    return np.where(
        recomputation.any_full, repeated_whole + (1 - recomputation.full) * all_saved, saved
    )


def expert_bytes(share: MicroBatchShare, group: LayerGroup) -> tuple[FloatArray, FloatArray]:
    """Return saved bytes inside a layer's experts, and of what an exchange brings from ranks."""
    tensors = [t for t in _saved_tensors(share, group) if t.spread is RankSpread.EXPERTS]
    if not tensors:
        return np.zeros(()), np.zeros(())
    inputs = [t for t in tensors if t.element is Element.FEED_FORWARD_INPUT]
    brought = np.where(share.expert_parallel > 1, _allocated_bytes(share, inputs), 0.0)
    return _allocated_bytes(share, tensors) - brought, brought


def layer_input_bytes(share: MicroBatchShare) -> FloatArray:
    """Bytes of the residual stream that enters a layer."""
    return share.number_bytes * share.local_tokens * share.inputs.model.stream_width


def mask_bytes(share: MicroBatchShare) -> FloatArray:
    """Bytes of the mask over all pairs of tokens that all layers share, 16 bits each.

    It is one for each sequence (huggingface/transformers 4.49, modeling_llama.py,
    _prepare_4d_causal_attention_mask_with_cache_position).
    """
    pairs = share.sequences * np.square(np.asarray(share.sequence_length, np.float64))
    is_masked = share.flash_attention & (share.attention_kernel == AttentionKernel.MASKED)
    return np.where(is_masked, share.number_bytes * pairs, 0.0)


def all_bytes(share: MicroBatchShare, group: LayerGroup) -> FloatArray:
    """Bytes of everything that a layer keeps for its backward pass."""
    return _allocated_bytes(share, _saved_tensors(share, group)) + _adapter_bytes(share, group)


def rebuilt_bytes(share: MicroBatchShare, group: LayerGroup) -> FloatArray:
    """Return bytes that recomputation of single blocks rebuilds at once, of the largest block."""
    recomputation, peak = share.recomputation, np.zeros(())
    if (grouped := share.execution.selective_grouped) and recomputation.by_share.any():
        peak = np.where(recomputation.by_share, grouped * expert_bytes(share, group)[0], 0.0)
    for module in ("attention", "mlp", "moe", "shared_experts"):
        if module in recomputation.some:
            tensors = [
                tensor for tensor in _saved_tensors(share, group) if module in tensor.remade_by
            ]
            inside = _allocated_bytes(share, tensors)
            peak = np.maximum(peak, np.where(recomputation.repeats((module,)), inside, 0.0))
    return peak


def ring_bytes(share: MicroBatchShare, group: LayerGroup) -> FloatArray:
    """Return peak bytes around the attention core of PyTorch's context parallelism; else 0.

    By default the keys and values of all ranks are gathered at once, in either pass, from a copy
    of a rank's own. In the backward pass gradients are summed in 32 bits: those of the queries with
    the sum that follows, those of keys and values with a copy that is sent and one that is
    received, in addition to those that the kernel returns [1]_ [2]_. Of a recomputed layer only the
    attention block is there then.

    References
    ----------
    .. [1] pytorch/pytorch at 0123248, torch/distributed/tensor/experimental/_attention.py:
       _AllGatherRotater, _templated_ring_attention_backward, _ContextParallelOptions.
    .. [2] huggingface/accelerate 1.15.0: cp_comm_strategy is allgather.
    """
    ring = (share.context_parallel > 1) & (share.cp_comm_type == ContextExchange.P2P)
    op = _layer(share, group).core
    if op is None or not share.inputs.framework.memory.gathers_ring or not np.any(ring):
        return np.zeros(())
    queries = share.tokens * op.heads / share.tensor_parallel * op.qk_dim
    local = share.tokens * op.key_value_columns.on_rank(share.tensor_parallel)
    gathered = share.number_bytes * (share.context_parallel + 1) * local
    sums = WIDE_BYTES * (2 * queries + 3 * local)
    returned = share.number_bytes * (queries / 2 + local)
    tensors = [t for t in _saved_tensors(share, group) if "attention" in t.remade_by]
    rebuilt = np.where(share.recomputation.any_full, _allocated_bytes(share, tensors), 0.0)
    return np.where(ring, gathered + sums + returned + rebuilt, 0.0)


def _saved_tensors(share: MicroBatchShare, group: LayerGroup) -> tuple[SavedTensor, ...]:
    """Return the tensors that a layer saves for backward, except those that kernels recompute."""
    tensors = _layer(share, group).saved_tensors
    if not (remade := set(share.inputs.framework.memory.remade)):
        return tensors
    return tuple(tensor for tensor in tensors if remade.isdisjoint(tensor.remade_by))


def _remade_bytes(share: MicroBatchShare, group: LayerGroup) -> FloatArray:
    """Return activation bytes per layer that selective recomputation of modules does not save."""
    recomputation = share.recomputation
    by_modules: dict[tuple[str, ...], list[SavedTensor]] = {}
    for tensor in _saved_tensors(share, group):
        modules = tuple(name for name in tensor.remade_by if name in recomputation.some)
        if modules and not (modules == ("core_attn",) and np.all(share.flash_attention)):
            by_modules.setdefault(modules, []).append(tensor)
    return add(
        recomputation.repeats(modules) * _allocated_bytes(share, tensors)
        for modules, tensors in by_modules.items()
    )


def _allocated_bytes(share: MicroBatchShare, tensors: Iterable[SavedTensor]) -> FloatArray:
    """Bytes of saved tensors, as the framework's allocator counts them."""
    all_tensors = tuple(tensors)
    fused = _bytes(share, (tensor for tensor in all_tensors if not tensor.eager))
    return fused * saved_activation_factor(share) + _eager_copies(share, all_tensors)


def _eager_copies(share: MicroBatchShare, tensors: Iterable[SavedTensor]) -> FloatArray:
    """Return bytes that only eager (unfused) kernels save and that the profile leaves out."""
    has_them = keeps_eager_copies(share)
    if not np.any(has_them):
        return np.zeros(())
    return np.where(has_them, _bytes(share, (tensor for tensor in tensors if tensor.eager)), 0.0)


def _bytes(share: MicroBatchShare, tensors: Iterable[SavedTensor]) -> FloatArray:
    """Sum the bytes of saved tensors on one GPU, per micro-batch."""
    split: list[Numeric] = []
    unsplit: list[Numeric] = []
    for tensor in tensors:
        element = _ELEMENTS[tensor.element](share)
        if tensor.spread is RankSpread.TENSOR:
            split.append(tensor.columns.on_rank(share.tensor_parallel) * element)
        else:
            if tensor.spread is RankSpread.EXPERTS:
                # Expert tensor parallelism leaves inputs and outputs of experts unsharded.
                is_inside = "moe_act" in tensor.remade_by
                is_inside = is_inside or tensor.element is Element.ACTIVATION_INPUT
                copies = 1.0 if is_inside else share.expert_tensor_parallel
                element = element * (share.expert_load * copies)
            unsplit.append(tensor.columns.total * element)
    split_bytes = saved_tensor_bytes(tokens=share.tokens, bytes_per_token=add(split))
    unsplit_bytes = saved_tensor_bytes(tokens=share.local_tokens, bytes_per_token=add(unsplit))
    return split_bytes + unsplit_bytes


def _adapter_bytes(share: MicroBatchShare, group: LayerGroup) -> FloatArray:
    """Return activation bytes per layer and micro-batch that LoRA adapters save."""
    memory = share.inputs.framework.memory
    if not (memory.adapter_input and share.inputs.workload.is_frozen):
        return np.zeros(())
    matrices = adapted_matrices(share.inputs, group)
    depths = [matrix.local(share.tensor_parallel)[0] for matrix in matrices]
    inputs = add(memory.adapter_input * share.tokens * np.asarray(depth) for depth in depths)
    if op := _layer(share, group).experts:
        sent = share.expert_pairs(op.per_token) * share.expert_tensor_parallel
        of_experts = (
            matrix.local(share.expert_tensor_parallel)[0]
            for matrix in expert_matrices(share.inputs, group)
        )
        inputs = add((inputs, *(memory.adapter_input * sent * depth for depth in of_experts)))
    return inputs * saved_activation_factor(share)


def _layer(share: MicroBatchShare, group: LayerGroup) -> Layer:
    return layer_of(share.inputs.model, group)


def _attention_input(share: MicroBatchShare) -> Numeric:
    """Return bytes per element of a linear layer's saved input; 0 with virtual tokens."""
    if share.inputs.workload.has_virtual_tokens:
        return 0.0
    narrows = share.inputs.framework.memory.fp8_inputs
    return share.linear_input_bytes if narrows else share.number_bytes


def _read_by_matrix(share: MicroBatchShare, name: str) -> Numeric:
    """Return bytes per element of a matrix product's saved input, at its stored precision."""
    workload = share.inputs.workload
    default = _attention_input(share)
    if workload.is_frozen and workload.lora_targets is not AdapterTargets.ALL_LINEAR:
        default = 0.0  # frozen matrices without adapter save nothing
    return share.input_bytes(name, default) if np.any(default) else default


def _score(share: MicroBatchShare) -> Numeric:
    """Return bytes per query and head of saved attention scores; 0 with fused attention."""
    workload = share.inputs.workload
    scores = attention_score_bytes(
        num_keys=share.sequence_length, dropout=workload.dropout, element_bytes=share.number_bytes
    )
    return np.where(share.flash_attention, 0.0, scores)


_ELEMENTS: dict[Element, Callable[[MicroBatchShare], Numeric]] = {
    Element.RESIDUAL: lambda share: share.input_bytes("norm", share.number_bytes),
    Element.SIXTEEN_BIT: lambda share: share.number_bytes,
    Element.FP32: lambda share: 4.0,
    Element.ATTENTION_INPUT: _attention_input,
    Element.FEED_FORWARD_INPUT: lambda share: _read_by_matrix(share, "fc1"),
    Element.DOWN_INPUT: lambda share: _read_by_matrix(share, "fc2"),
    Element.ACTIVATION_INPUT: lambda share: share.input_bytes(
        "activation",
        np.where(is_narrow(share.precision), 1.0, share.number_bytes)
        if share.inputs.framework.memory.fp8_activation_inputs
        else share.number_bytes,
    ),
    Element.EXPERT_OUTPUT: lambda share: (
        widen(share.inputs.framework.memory.expert_output, share.precision)
        if share.inputs.framework.memory.expert_output
        else 0.0
    ),
    Element.DROPOUT_MASK: lambda share: dropout_mask_bytes(dropout=share.inputs.workload.dropout),
    Element.SCORE: _score,
    Element.STATISTIC: lambda share: np.where(share.flash_attention, 4.0, 0.0),
}
"""Bytes per number of each kind, in a share's software and precision."""
