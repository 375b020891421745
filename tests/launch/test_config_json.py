"""``config.json`` of models as Transformers would read it."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from planner.launch.model_shape import config_json, family_of
from planner.specs.catalogue import load_model
from planner.specs.hugging_face import read_config
from planner.specs.serving_workload import with_mtp

_SPECS = Path(__file__).parents[2] / "planner" / "model_specs"
_NAMES = [path.stem for path in sorted(_SPECS.glob("*.toml"))]


@pytest.mark.slow
def test_every_config_reads_back_to_its_model(tmp_path: Path) -> None:
    families: Counter[str] = Counter()
    for name in _NAMES:
        model = load_model(name)
        config = config_json(model)
        if config is None:
            continue
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        read = read_config(path, model.name)
        assert read.layer_groups == model.layer_groups, name
        assert read.vocab_size == model.vocab_size, name
        families[config["model_type"]] += 1
    assert families["llama"] > 100
    assert families["gpt2"] > 50
    assert len(families) >= 11


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("llama-65b", "llama"),
        ("mistral-7b", "mistral"),
        ("mixtral-8x7b", "mixtral"),
        ("deepseek-v3", "deepseek_v3"),
        ("qwen3-30b-a3b", "qwen3_moe"),
        ("gpt-3-175b", "gpt2"),
        ("bloom-176b", "bloom"),
        ("nemotron-h-8b", None),
        ("gemma-3-27b", None),
    ],
)
def test_family(name: str, family: str | None) -> None:
    assert family_of(load_model(name)) == family


def test_trained_modules_of_multi_token_prediction_are_no_layers() -> None:
    model = load_model("deepseek-v3")
    config = config_json(with_mtp(model, 1))
    assert config is not None
    assert config["num_hidden_layers"] == 61
    assert config["num_nextn_predict_layers"] == 1
