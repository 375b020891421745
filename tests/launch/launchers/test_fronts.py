"""Fronts of servers become the servers that they start."""

from __future__ import annotations

from planner.launch.launchers import inner_commands, read_script


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
