"""What of a model is not predicted is said with the question."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner import Request
from planner.plan import make_plan
from planner.report.overview import omitted_lines

_TEXT = {
    "model_type": "gemma3_text",
    "hidden_size": 5376,
    "intermediate_size": 21504,
    "num_attention_heads": 32,
    "num_hidden_layers": 62,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "vocab_size": 262208,
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
def test_a_model_that_sees_is_predicted_as_a_text_model_and_that_is_said(workload: str) -> None:
    said = ["As a text model: the vision tower and the patches of images are not counted"]
    assert _lines("qwen2.5-vl-7b", workload=workload) == said
    assert _lines("qwen2.5-7b", workload=workload) == []


def test_the_tower_of_a_config_has_the_parameters_of_its_layers(tmp_path: Path) -> None:
    """SigLIP-So400m: 27 (4 x 1152^2 + 2 x 1152 x 4304) + 3 x 14^2 x 1152 = 411.7 million."""
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "gemma3", "text_config": _TEXT, "vision_config": _SIGLIP})
    )
    (line,) = _lines(str(path))
    assert "the vision tower (about 411.7 million parameters)" in line


@pytest.mark.parametrize("tower", [{}, {"hidden_size": 1152}, _SIGLIP | {"hidden_size": "wide"}])
def test_a_tower_of_other_words_has_no_size(tmp_path: Path, tower: dict[str, Any]) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({"model_type": "gemma3", "text_config": _TEXT, "vision_config": tower})
    )
    (line,) = _lines(str(path))
    assert line == "As a text model: the vision tower and the patches of images are not counted"
