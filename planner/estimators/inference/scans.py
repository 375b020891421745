"""Linear attention and Mamba-2 in prefill and decode, and the state of a sequence."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import AttentionKernels
from planner.estimators.inference.operators import LayerContext, StepOperator
from planner.estimators.inference.setting import Rank
from planner.estimators.scans import scan_work
from planner.layers.model import Layer
from planner.layers.operators import Scan

_STATE_BYTES = 4.0


def state_bytes(rank: Rank, op: Scan | None) -> FloatArray:
    """Bytes of the fixed-size state of one sequence in one layer of linear attention."""
    if op is None:
        return np.zeros(())
    held = _STATE_BYTES * op.state + 2.0 * op.taps * op.mixed
    return np.asarray(held / rank.configurations.tensor_parallel)


def scan(context: LayerContext, op: Scan, layer: Layer) -> Iterator[StepOperator]:
    """The chunked scan over prompts, and one step of the recurrence for what decodes."""
    yield _over_prompts(context, op)
    yield _state_update(context, op)


def _over_prompts(context: LayerContext, op: Scan) -> StepOperator:
    """It leaves a state for each prompt; written for no one GPU."""
    rank, batch, t = context.rank, context.rank.batch, context.rank.configurations.tensor_parallel
    tokens = rank.prompt_tokens
    prompts = batch.prompts * rank.prompt_share
    flops, moved = scan_work(op, tokens, t)
    time = context.kernels.prompt_kernel(
        flops=flops,
        num_bytes=moved + 2.0 * prompts * state_bytes(rank, op),
        prompts=prompts,
        heads=op.heads / t,
        queries=tokens / np.maximum(prompts, 1e-9),
        head_dim=op.value_dim,
        kernels=AttentionKernels.PORTABLE,
    )
    return StepOperator(name=op.name, module=op.module, time=time, flops=flops)


def _state_update(context: LayerContext, op: Scan) -> StepOperator:
    """Every sequence that decodes reads and writes its state."""
    rank = context.rank
    tokens = rank.decoding * rank.batch.tokens_per_sequence
    states = 2.0 * rank.decoding * state_bytes(rank, op)
    moved = states + 6.0 * tokens * op.mixed / rank.configurations.tensor_parallel
    return context.elementwise("state_update", op.module, num_bytes=moved, kernels=2)
