"""Models kept in a folder of own specs: what is written reads back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hugging_face_newest_configs import NEWEST_CONFIGS
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import SpecError
from planner.specs.catalogue import Catalogue, load_model
from planner.specs.hugging_face import read_config
from planner.specs.load import read_spec
from planner.specs.model import ModelSpec
from planner.specs.written import file_name, keep_model, model_text

SHIPPED = [
    "gpt2",
    "deepseek-v3",
    "deepseek-v4-pro",
    "qwen2.5-vl-7b",
    "nemotron-h-8b",
    "gpt-oss-20b",
]


def _config(folder: Path, name: str) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(NEWEST_CONFIGS[name][1]), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_reads_back_as_it_was(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(model_text(load_model(name)), encoding="utf-8")
    assert read_spec(ModelSpec, path) == load_model(name)


@pytest.mark.parametrize("name", NEWEST_CONFIGS)
def test_a_config_reads_back_as_it_was(name: str, tmp_path: Path) -> None:
    model = read_config(_config(tmp_path, name), "someone/Model")
    path = keep_model(model, "someone/Model", tmp_path / "own")
    assert path == tmp_path / "own" / "models" / "model.toml"
    assert read_spec(ModelSpec, path) == model


def test_a_model_is_kept_and_found_by_its_name(tmp_path: Path) -> None:
    _config(tmp_path, "lfm2")
    own = tmp_path / "own"
    told = CliRunner().invoke(
        app, ["specs", "add", "model", str(tmp_path), "--name", "My LFM2", "--specs", str(own)]
    )
    assert told.exit_code == 0
    assert "1,170,340,608 parameters" in told.output
    assert Catalogue(own).load_model("my-lfm2").name == "My LFM2"


def test_a_copy_of_a_known_model_is_found_by_its_repository(tmp_path: Path) -> None:
    repository = "unsloth/Qwen3-32B-bnb-4bit"
    CliRunner().invoke(app, ["specs", "add", "model", repository, "--specs", str(tmp_path)])
    kept = Catalogue(tmp_path).load_model(repository)
    assert kept.quantization == "w4a16"
    assert kept == replace(load_model(repository), aliases=(repository,))


def test_a_file_is_not_replaced_unless_one_says_so(tmp_path: Path) -> None:
    model = load_model("gpt2")
    keep_model(model, "gpt2", tmp_path)
    with pytest.raises(SpecError, match="there is such a file"):
        keep_model(model, "gpt2", tmp_path)
    keep_model(model, "gpt2", tmp_path, replaces=True)
    with pytest.raises(SpecError, match="no letters or digits"):
        keep_model(model, "…", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["gpu", "h100"], "Only models can be added"), (["model", "nobody"], "Unknown model")],
)
def test_what_cannot_be_added_is_refused(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    told = CliRunner().invoke(app, ["specs", "add", *arguments, "--specs", str(tmp_path)])
    assert told.exit_code != 0
    assert message in told.output + str(told.exception)


def test_file_names() -> None:
    assert file_name("moonshotai/Kimi-Linear-48B-A3B") == "kimi-linear-48b-a3b"
    assert file_name("My model (v2)") == "my-model-v2"
