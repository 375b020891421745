"""Trainings of mlx_lm.lora are read with its own defaults, on a chip of Apple."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

_YAML = """\
model: mlx-community/Qwen3-4B-Instruct-2507-4bit
train: true
num_layers: -1
batch_size: 1
iters: 600
max_seq_length: 4096
grad_checkpoint: true
lora_parameters:
  keys: ["self_attn.q_proj", "self_attn.v_proj"]
  rank: 16
"""


def _read(folder: Path, text: str, name: str = "run.sh") -> ImportedLaunch:
    path = folder / name
    path.write_text(text)
    return read_launch(path)


@pytest.mark.parametrize(
    "program", ["mlx_lm.lora", "python -m mlx_lm.lora", "python -m mlx_lm lora"]
)
def test_what_is_not_said_is_as_mlx_lm_has_it(tmp_path: Path, program: str) -> None:
    found = _read(tmp_path, f"{program} --model Qwen/Qwen3-8B --train --data d --num-layers 8")

    # CONFIG_DEFAULTS of mlx_lm/lora.py: 4 x 2,048 tokens, 1,000 steps, rank 8
    told = {name: str(found.values[name]) for name in ("micro_batch_size", "lora_rank", "adapter")}
    assert told == {"micro_batch_size": "4", "lora_rank": "8", "adapter": "lora"}
    assert found.values["total_tokens"] == 1000 * 4 * 2048
    assert (found.values["framework"], found.values["num_gpus"]) == ("MLX", 1)
    assert str(found.values["gpu"]).startswith("apple-")
    assert "gpu" in found.defaults
    assert int(str(found.values["trained_layers"])) == 8
    assert not found.lines_with_status(Status.UNKNOWN)


@pytest.mark.parametrize("option", ["--config", "-c"])
def test_a_document_of_it_is_read_and_options_go_before_it(tmp_path: Path, option: str) -> None:
    found = _read(tmp_path, _YAML, "lora.yaml")
    over = _read(tmp_path, f"mlx_lm.lora {option} lora.yaml --iters 50")

    names = ("adapter", "lora_targets", "lora_rank", "sequence_length", "recompute")
    told = ["qlora", "query_value", 16, 4096, "full"]
    assert [found.values[name] for name in names] == told
    assert found.values["total_tokens"] == 600 * 4096
    assert over.values["total_tokens"] == 50 * 4096
    assert not found.lines_with_status(Status.UNKNOWN)
    assert "trained_layers" not in found.values  # num_layers: -1


@pytest.mark.parametrize(("key", "layers"), [("lora_layers: 12", 12), ("seed: 0", 16)])
def test_the_last_layers_are_trained(tmp_path: Path, key: str, layers: int) -> None:
    found = _read(tmp_path, _YAML.replace("num_layers: -1", key), "lora.yaml")
    assert int(str(found.values["trained_layers"])) == layers
    assert ("trained_layers" in found.defaults) == (layers == 16)


def test_dora_is_not_predicted(tmp_path: Path) -> None:
    with pytest.raises(PlannerError, match="fine_tune_type dora is not predicted"):
        _read(tmp_path, _YAML + "fine_tune_type: dora\n", "lora.yaml")
