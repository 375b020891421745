"""Linear attention and Mamba-2 in prefill and decode: operators, and the state of a sequence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import FloatArray
from planner.enums import AttentionKernels
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Rank
from planner.estimators.scans import scan_work
from planner.layers.linear_attention import scan_of
from planner.specs.model import AttentionSpec

_STATE_BYTES = 4.0


def state_bytes(rank: Rank, attention: AttentionSpec | None) -> FloatArray:
    """Bytes of the fixed-size state of one sequence in one layer of linear attention."""
    if attention is None or not attention.has_state:
        return np.zeros(())
    taps = attention.linear_conv_kernel_dim * attention.linear_mixed
    return np.asarray(
        (_STATE_BYTES * attention.linear_state + 2.0 * taps) / rank.configurations.tensor_parallel
    )


def linear_attention_operators(
    layer: LayerContext, attention: AttentionSpec
) -> Iterator[StepOperator]:
    """Projections, convolution, and the update of a fixed-size state per sequence."""
    rank, t = layer.rank, layer.rank.configurations.tensor_parallel
    mixed, values = attention.linear_mixed, attention.linear_values
    columns = attention.linear_projected / t
    yield layer.linear(
        "linear_qkvz", "qkv", rows=rank.tokens, columns=columns, depth=rank.hidden_size
    )
    moved = 4.0 * rank.tokens * mixed / t
    yield layer.elementwise("convolution", "attention", num_bytes=moved, kernels=2)
    yield _linear_scan(layer, attention)
    yield _state_update(layer, attention)
    normed = 6.0 * rank.tokens * values / t
    yield layer.elementwise("gated_norm", "attention", num_bytes=normed)
    yield layer.linear(
        "attention_output",
        "attention_output",
        rows=rank.tokens,
        columns=rank.hidden_size,
        depth=values / t,
    )


def _linear_scan(layer: LayerContext, attention: AttentionSpec) -> StepOperator:
    """The chunked scan over prompts, which leaves a state for each; written for no one GPU."""
    rank, batch, t = layer.rank, layer.rank.batch, layer.rank.configurations.tensor_parallel
    tokens = rank.prompt_tokens
    prompts = batch.prompts * rank.prompt_share
    flops, moved = scan_work(scan_of(attention), tokens, t)
    time = layer.kernels.prompt_kernel(
        flops=flops,
        num_bytes=moved + 2.0 * prompts * state_bytes(rank, attention),
        prompts=prompts,
        heads=attention.linear_num_value_heads / t,
        queries=tokens / np.maximum(prompts, 1e-9),
        head_dim=attention.linear_value_head_dim,
        kernels=AttentionKernels.PORTABLE,
    )
    return StepOperator(name="linear_scan", module="attention", time=time, flops=flops)


def _state_update(layer: LayerContext, attention: AttentionSpec) -> StepOperator:
    """One step of the recurrence for every sequence that decodes."""
    rank, batch = layer.rank, layer.rank.batch
    decoding = rank.decoding
    tokens = decoding * batch.tokens_per_sequence
    states = 2.0 * decoding * state_bytes(rank, attention)
    moved = states + 6.0 * tokens * attention.linear_mixed / rank.configurations.tensor_parallel
    return layer.elementwise("state_update", "attention", num_bytes=moved, kernels=2)
