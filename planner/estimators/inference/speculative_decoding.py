"""Speculative decoding: memory of the draft model or draft head, and its time in each step.

The draft is split over the GPUs of tensor parallelism where these divide its heads, else every GPU
holds it unsharded. Pipeline stages and attention ranks hold it unsharded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.enums import Quantization
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import Batch, ServingInputs
from planner.estimators.inference.engine_step import step_time
from planner.estimators.inference.weights import weight_bytes
from planner.layers.model import layer_of
from planner.layers.operators import MatrixProduct
from planner.specs.quantization import SIXTEEN_BIT_BYTES
from planner.specs.serving_workload import DraftMethod


def drafter(
    inputs: ServingInputs, c: ServingConfigurations
) -> tuple[ServingInputs, ServingConfigurations] | None:
    """Return inputs and configurations of the draft model; None without a draft model."""
    if inputs.draft is None:
        return None
    work = replace(
        inputs.workload,
        draft_tokens=0,
        draft_steps=None,
        draft_method=DraftMethod.UNSPECIFIED,
        acceptance_rate=0.0,
        draft_cost=0.0,
    )
    draft = replace(inputs, model=inputs.draft, workload=work, draft=None)
    fits = np.ones((), dtype=np.bool_)
    for attention in draft.model.attentions:
        for heads in attention.split_heads:
            share = heads / c.tensor_parallel
            fits = fits & ((share == np.floor(share)) | (1 / share == np.floor(1 / share)))
    ones = np.ones_like(c.tensor_parallel)
    by_word = {code.word: code for code in Quantization}
    dense = by_word[draft.model.quantization or Quantization.W16A16.word]
    experts = by_word[draft.model.expert_quantization or dense.word]
    codes = np.zeros_like(c.quantization)
    types = (codes + np.int8(dense), codes + np.int8(experts))
    if inputs.workload.draft_method is DraftMethod.MTP:  # a part of the checkpoint
        types = (c.quantization, c.expert_quantization)
    split = np.where(fits, c.tensor_parallel, 1.0)
    return draft, replace(
        c,
        num_gpus=split * c.attention_data_parallel,
        tensor_parallel=split,
        pipeline_parallel=ones,
        expert_parallel=ones,
        quantization=types[0],
        expert_quantization=types[1],
        weight_offload=np.zeros(()),
        kv_offload=np.zeros(()),
    )


def draft_weights(inputs: ServingInputs, c: ServingConfigurations) -> FloatArray:
    """Return bytes of the draft model's weights on one GPU.

    Modules and heads share the ends of the model, but for logits of their own, and project several
    states to one; the queries, keys and values of EAGLE-3 are those of two.
    """
    drafting = drafter(inputs, c)
    if drafting is None:
        return np.zeros(())
    draft, split = drafting
    weights = weight_bytes(draft, split)
    method = inputs.workload.draft_method
    if not method.states:
        return weights.total
    hidden = draft.model.hidden_size
    projected = method.states * hidden**2
    if method is DraftMethod.EAGLE3:
        layer = layer_of(draft.model, draft.model.layer_groups[0])
        read = [op for op in layer.of(MatrixProduct) if op.reads == "residual"]
        projected += sum(op.depth * op.columns.total for op in read)
        projected += draft.model.vocab_size * hidden
    projections = SIXTEEN_BIT_BYTES * projected / split.tensor_parallel
    return np.asarray(weights.attention + weights.feed_forward + weights.experts + projections)


def drafting_time(inputs: ServingInputs, c: ServingConfigurations, batch: Batch) -> FloatArray:
    """Return seconds per decode step to draft the tokens that the step verifies.

    Each token is drafted in a step of its own; a tree takes as many steps as it is deep.
    """
    drafting, work = drafter(inputs, c), inputs.workload
    if drafting is None or not work.draft_tokens:
        return np.zeros(())
    steps = work.drafted_in_a_row
    draft_batch = Batch.of_decode(batch.decoding, batch.context, work.draft_tokens / steps)
    step = step_time(*drafting, draft_batch, decoding=True)
    # A prediction module or head usually runs in the model's step, with one host overhead.
    joined = work.draft_method.states and not inputs.engine.execution.separate_drafts
    shared = inputs.slowdown * step.overhead if joined else 0.0
    return np.asarray(steps * (step.total - shared))


def drafted_prompt_time(
    inputs: ServingInputs, c: ServingConfigurations, batch: Batch
) -> FloatArray:
    """Return seconds per step in which the draft model computes prompts."""
    drafting = drafter(inputs, c)
    if drafting is None:
        return np.zeros(())
    prefill_only = replace(batch, decoding=np.zeros(()))
    return step_time(*drafting, prefill_only, decoding=False).total
