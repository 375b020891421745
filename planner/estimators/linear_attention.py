"""Linear attention and Mamba-2 in training: operators, and bytes kept for the backward pass."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.arrays import FloatArray, Numeric, add
from planner.enums import AttentionKernels, AttentionKind
from planner.estimators.machine import Group
from planner.estimators.operators import Operator, elementwise, linear
from planner.estimators.share import Share
from planner.formulas.activations import linear_input_bytes
from planner.formulas.linear_attention import chunked_scan_bytes, chunked_scan_flops
from planner.specs.model import AttentionSpec

# The backward pass makes the states again, then as many products for each gradient.
_BACKWARD = 2.5


def linear_attention_operators(share: Share, attention: AttentionSpec) -> Iterator[Operator]:
    """Projection, convolution, scan, gated norm and output projection of one layer."""
    t, n = share.tensor_parallel, share.tokens
    mixed, values = attention.linear_mixed / t, attention.linear_values / t
    columns = attention.linear_projected / t
    yield linear(share, "linear_qkvz", "qkv", rows=n, columns=columns, depth=share.hidden_size)
    yield elementwise(
        share, "convolution", "attention", elements=n * mixed, forward_bytes=4, backward_bytes=8
    )
    yield _scan(share, attention)
    yield elementwise(
        share, "gated_norm", "attention", elements=n * values, forward_bytes=6, backward_bytes=10
    )
    yield linear(
        share,
        "attention_output",
        "attention_output",
        rows=n,
        columns=share.hidden_size,
        depth=values,
    )


def _scan(share: Share, attention: AttentionSpec) -> Operator:
    """The chunked scan over the sequence, in kernels that are not written for one GPU."""
    flops, moved = scan_work(attention, share.tokens, share.tensor_parallel)
    forward = share.setting.machine.attention_time(
        flops,
        moved,
        share.sequences,
        attention.linear_num_value_heads / share.tensor_parallel,
        share.setting.workload.sequence_length,
        attention.linear_value_head_dim,
        kernels=AttentionKernels.PORTABLE,
    )
    return Operator(
        name="linear_scan",
        module="attention",
        forward=forward,
        backward=_BACKWARD * forward,
        flops=flops,
    )


def scan_work(
    attention: AttentionSpec, tokens: FloatArray, tensor_parallel: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """FLOPs and bytes of the chunked scan over so many tokens on one tensor-parallel rank."""
    delta_rule = attention.kind is AttentionKind.LINEAR
    heads = attention.linear_num_value_heads / tensor_parallel
    values, state = (
        attention.linear_values / tensor_parallel,
        attention.linear_state / tensor_parallel,
    )
    flops = chunked_scan_flops(
        tokens=tokens,
        key_width=attention.linear_keys / tensor_parallel,
        value_width=values,
        expanded_key_width=heads * attention.linear_key_head_dim,
        state=state,
        delta_rule=delta_rule,
    )
    moved = chunked_scan_bytes(
        tokens=tokens,
        mixed_width=attention.linear_mixed / tensor_parallel,
        value_width=values,
        state=state,
        delta_rule=delta_rule,
    )
    return flops, moved


def linear_attention_exchange(share: Share, attention: AttentionSpec) -> Operator:
    """Context parallelism trades tokens for heads before the scan, and back after it."""
    t, c = share.tensor_parallel, share.context_parallel
    width = (attention.linear_projected + attention.linear_values) / t
    time = share.setting.machine.collective(
        "all_to_all", 2.0 * share.tokens * width, Group(size=c, stride=t)
    )
    return Operator(
        name="attention_context_parallel",
        module="attention",
        part="context_parallel",
        forward=time,
        backward=time,
        flops=np.zeros(()),
    )


def linear_attention_bytes(
    share: Share, attention: AttentionSpec, element_bytes: Numeric
) -> FloatArray:
    """Inputs of both projections, of the convolution, of the scan and of the gated norm."""
    projected = linear_input_bytes(
        tokens=share.tokens,
        width=share.hidden_size,
        split=share.split,
        element_bytes=element_bytes,
    )
    width = attention.linear_projected + attention.linear_mixed + 2 * attention.linear_values
    inner = linear_input_bytes(
        tokens=share.tokens, width=width, split=share.tensor_parallel, element_bytes=2.0
    )
    return add((projected, inner))
