"""What of a model is not predicted is said with the question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import Request
from planner.show.presenters.infeasible import omitted_lines
from planner.workloads.make_plan import make_plan

_TEXT = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 128256,
}
_SIGLIP = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
}


def _lines(model: str, **request: Any) -> list[str]:
    return omitted_lines(make_plan(Request(model=model, num_gpus=8, **request)))


@pytest.mark.parametrize("workload", ["train", "inference", "serve"])
def test_a_tower_of_unknown_sizes_is_said_to_be_left_out(workload: str) -> None:
    said = ["As a text model: the vision tower and image patches are not counted"]
    assert _lines("mistral-large-3-675b", workload=workload) == said
    assert _lines("qwen2.5-7b", workload=workload) == []


def test_a_tower_that_nothing_is_asked_of_is_said_to_be_left_out_or_kept() -> None:
    (left,) = _lines("qwen2.5-vl-7b")
    assert "vision tower (676.6 million parameters) is left out" in left
    assert _lines("qwen2.5-vl-7b", images_per_sample=1) == []
    (kept,) = _lines("qwen2.5-vl-7b", workload="serve")
    assert "vision tower (676.6 million parameters) is loaded" in kept


def test_the_tower_of_a_config_has_the_parameters_of_its_layers(tmp_path: Path) -> None:
    """SigLIP-So400m: 27 (4 x 1152^2 + 2 x 1152 x 4304) + 3 x 14^2 x 1152 = 411.7 million."""
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "idefics3", "text_config": _TEXT, "vision_config": _SIGLIP})
    )
    (line,) = _lines(str(path))
    assert "the vision tower (about 411.7 million parameters)" in line


@pytest.mark.parametrize("tower", [{}, {"hidden_size": 1152}, _SIGLIP | {"hidden_size": "wide"}])
def test_a_tower_of_other_words_has_no_size(tmp_path: Path, tower: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "idefics3", "text_config": _TEXT, "vision_config": tower})
    )
    (line,) = _lines(str(path))
    assert line == "As a text model: the vision tower and image patches are not counted"
