"""What the estimator of training does not model yet."""

from __future__ import annotations

from planner.enums import AttentionKind
from planner.specs.model import AttentionSpec, ModelSpec


def unsupported_in_training(model: ModelSpec) -> str:
    """Why training of ``model`` is not estimated; empty where it is."""
    if any(_is_new(group.attention) for group in model.layer_groups):
        return "linear or sparse attention is not modelled yet"
    return ""


def _is_new(attention: AttentionSpec) -> bool:
    is_linear = attention.kind is AttentionKind.LINEAR
    return is_linear or attention.index_topk > 0 or attention.attn_output_gate
