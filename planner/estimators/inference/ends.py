"""Operators at the two ends of the model in inference."""

from __future__ import annotations

from collections.abc import Iterator

from planner.estimators.inference.kernels import SIXTEEN_BIT
from planner.estimators.inference.operators import LayerContext, StepOperator

_SAMPLING_BYTES = 12.0  # fp32 logits are read by softmax, top-k and sampling


def end_operators(layer: LayerContext) -> Iterator[StepOperator]:
    """Embedding, final norm, logits of the tokens to be sampled, sampling."""
    rank, h = layer.rank, layer.rank.hidden_size
    sampled = rank.sampled
    columns = rank.setting.model.vocab_size / rank.configurations.tensor_parallel
    quantized = rank.setting.engine.quantized_ends
    codes = None if quantized else SIXTEEN_BIT
    yield layer.elementwise("embedding", "embedding", num_bytes=4.0 * rank.tokens * h)
    yield layer.tensor_all_reduce("embedding")
    yield layer.elementwise("final_norm", "norm", num_bytes=8.0 * sampled * h)
    yield layer.linear(
        "logits", "logits", rows=sampled, columns=columns, depth=h, quantization=codes
    )
    gathered = 2.0 * sampled * rank.setting.model.vocab_size
    yield layer.communication(
        "logits_gather",
        "logits",
        "tensor_parallel",
        layer.collective("all_gather", gathered, rank.tensor_group),
    )
    yield layer.elementwise(
        "sampling",
        "logits",
        num_bytes=_SAMPLING_BYTES * sampled * rank.setting.model.vocab_size,
        kernels=3,
    )
