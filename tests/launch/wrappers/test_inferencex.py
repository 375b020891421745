"""Scripts of InferenceX with the configs of their repository, and these alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch
from planner.launch.wrappers.read_recipes import entry_of

_CONFIG = """\
# Two models on one machine.
{name}-fp8-h200-vllm{kind}:
  image: vllm/vllm-openai:v0.21.0
  model: {model}
  runner: cluster:h200-nv
  framework: vllm
  scenarios:
    fixed-seq-len:
    - isl: 1024
      osl: 512
      search-space:
      - {{ tp: 4, ep: 4, dp-attn: true, conc-list: [8, 16], spec-decoding: mtp }}
      - {{ tp: 8, pp: 2, conc-start: 4, conc-end: 64 }}
"""
_SCRIPT = "check_env_vars MODEL TP CONC\nvllm serve $MODEL --tensor-parallel-size $TP\n"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Configs, and older ones of the same model in a folder below them."""
    configs = tmp_path / "configs"
    (configs / "deprecated").mkdir(parents=True)
    new = _CONFIG.format(name="q", kind="", model="Qwen/Qwen3-32B")
    other = _CONFIG.format(name="q", kind="-mtp", model="Qwen/Qwen3-30B-A3B").partition("\n")[2]
    (configs / "nvidia-master.yaml").write_text(new + other)
    old = _CONFIG.format(name="q", kind="", model="Qwen/Qwen3-8B")
    (configs / "deprecated" / "a-master.yaml").write_text(old)
    (tmp_path / "benchmarks").mkdir()
    return tmp_path


def test_a_script_is_run_as_the_entry_with_the_fewest_further_words(repository: Path) -> None:
    path = repository / "benchmarks" / "q_fp8_h200.sh"
    path.write_text(_SCRIPT)
    found = read_launch(path)

    assert {"model": "Qwen/Qwen3-32B", "tensor_parallel": 4}.items() <= found.values.items()
    assert found.notes[0].endswith("as q-fp8-h200-vllm of nvidia-master.yaml runs the script.")
    assert entry_of(path, "vllm serve $MODEL\n") is None
    assert entry_of(path.with_name("x_fp8_h200.sh"), _SCRIPT) is None


def test_a_script_whose_server_stands_elsewhere_is_its_entry(repository: Path) -> None:
    path = repository / "benchmarks" / "q_fp8_h200_vllm_mtp.sh"
    path.write_text("check_env_vars MODEL\nbash submit.sh\n")
    found = read_launch(path)

    told = {"model": "Qwen/Qwen3-30B-A3B", "attention_data_parallel": 4, "expert_parallel": 4}
    load = {"input_tokens": "1024", "output_tokens": "512", "concurrency": 16}
    assert {**told, **load, "num_gpus": 4}.items() <= found.values.items()
    assert (found.path.name, found.command.line) == ("nvidia-master.yaml", 24)
    assert "--speculative-config" in {line.option for line in found.lines_with_status(Status.OPEN)}


def test_points_of_a_search_space_are_things_of_their_own(repository: Path) -> None:
    found = read_launch(repository / "configs" / "nvidia-master.yaml", 2)

    told = {"model": "Qwen/Qwen3-32B", "tensor_parallel": 8, "pipeline_parallel": 2}
    assert {**told, "num_gpus": 16, "gpu": "h200-sxm-141gb"}.items() <= found.values.items()
    assert found.values["concurrency"] == 64
