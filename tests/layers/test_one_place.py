"""What kind of attention or feed-forward a layer has is asked in one place: its description."""

from __future__ import annotations

import ast
from pathlib import Path

from rows import each

from planner.estimators.layer_operators import TIMED
from planner.layers.operators import LayerOperator

ESTIMATORS = Path(__file__).parents[2] / "planner" / "estimators"
KINDS = {"AttentionKind", "AttentionSpec", "FeedForwardSpec", "PositionEmbedding"}
FIELDS = {
    *("has_state", "qk_rope_head_dim", "attn_output_gate", "moe_latent_size", "expert_inputs"),
    *("shared_intermediate_size", "shared_width", "moe_intermediate_size", "parallel_residual"),
    *("kv_lora_rank", "q_lora_rank", "linear_projected", "linear_mixed", "gated"),
}


def _asked(path: Path) -> set[str]:
    """Kinds that a file imports, and fields of specs that it reads."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found |= KINDS & {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            found |= FIELDS & {node.attr}
    return found


@each("path", sorted(ESTIMATORS.rglob("*.py")))
def test_estimators_ask_descriptions_and_not_specs(path: Path) -> None:
    assert _asked(path) == set()


def _all_kinds(kind: type[LayerOperator]) -> set[type[LayerOperator]]:
    return {kind}.union(*(_all_kinds(each) for each in kind.__subclasses__()))


def test_every_kind_of_operator_has_its_times() -> None:
    assert set(TIMED) == _all_kinds(LayerOperator) - {LayerOperator}
