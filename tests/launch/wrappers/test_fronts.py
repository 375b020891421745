"""Fronts of servers become the servers that they start."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import LaunchError
from planner.launch.read.read_launch import read_launch
from planner.launch.wrappers.read_programs import inner_commands, read_script


def _words(text: str) -> list[str | None]:
    (one,) = inner_commands(read_script(text, {}, "run.sh"))
    return [word.text for word in one.words]


def test_xinference_starts_the_engine_that_it_is_told() -> None:
    told = "xinference launch -en vLLM -n qwen2.5-instruct -s 72 -f gptq -q Int4 --n-gpu 2"

    model = "qwen2.5-72b-instruct-gptq-Int4"
    started = ["vllm", "serve", model, "--tensor-parallel-size", "2", "--max_model_len", "8192"]
    assert _words(f"{told} --max_model_len 8192") == started


def test_another_engine_of_xinference_stays_unknown() -> None:
    told = "xinference launch --model-engine transformers --model-name qwen3"

    assert _words(told) == told.split()


def test_what_ends_a_server_starts_none() -> None:
    text = "pkill -f sglang.launch_server\npgrep -f 'vllm serve'\nvllm serve m\n"
    found = [one.words[0].text for one in inner_commands(read_script(text, {}, "run.sh"))]

    assert found == ["vllm"]


def test_properties_of_djl_are_options_of_their_engine(tmp_path: Path) -> None:
    # awslabs and deepjavalibrary samples: serving.properties beside a model.
    path = tmp_path / "serving.properties"
    path.write_text(
        "# LMI\nengine=Python\noption.model_id=Qwen/Qwen3-32B\noption.rolling_batch=vllm\n"
        "option.tensor_parallel_degree=4\noption.max_rolling_batch_size=64\n"
        "option.max_model_len=16384\noption.enable_prefix_caching=false\n"
    )
    found = read_launch(path).values

    wanted = {"tensor_parallel": 4, "max_num_seqs": 64, "max_model_len": 16384, "num_gpus": 4}
    assert wanted.items() <= found.items()
    path.write_text("option.model_id=a/b\noption.rolling_batch=scheduler\n")
    with pytest.raises(LaunchError, match="starts nothing"):
        read_launch(path)
