"""Messages about an engine name the options of that engine, and never those of another."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.launch.option_table import OptionRole
from planner.launch.targets import readers

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
COMMANDS = {
    "vllm": f"vllm serve {MODEL} --max-model-len LONG",
    "sglang": f"python -m sglang.launch_server --model-path {MODEL} --context-length LONG",
    "tensorrt-llm": f"trtllm-serve {MODEL} --max_seq_len LONG",
    "tgi": f"text-generation-launcher --model-id {MODEL} --max-total-tokens LONG",
    "lmdeploy": f"lmdeploy serve api_server {MODEL} --session-len LONG",
    "llama-server": "llama-server -m Llama-3.1-8B-Instruct-F16.gguf -ngl 99 -c LONG",
}
LONGEST = {
    "vllm": "--max-model-len",
    "tgi": "--max-total-tokens",
    "llama-server": "--ctx-size",
}
"""Of those that do not start with a request that is too long."""
_LIMITS = (
    "max_model_len", "context_size", "max_num_seqs", "server_seqs", "concurrency",
    "max_num_batched_tokens", "server_step_tokens", "gpu_memory_utilization", "tensor_parallel",
)  # fmt: skip


@cache
def options_of(engine: str) -> frozenset[str]:
    """The options of an engine that limit its requests and its memory."""
    table = readers()[engine].table
    rows = (row for name in _LIMITS for row in table.rows_of(name, OptionRole.IS, OptionRole.READS))
    return frozenset(row.option for row in rows if row.option.startswith("--"))


def test_engines_have_options_of_their_own() -> None:
    for engine in COMMANDS:
        others = frozenset().union(*(options_of(one) for one in COMMANDS if one != engine))
        assert options_of(engine) - others, engine


@pytest.mark.few(1)
@pytest.mark.parametrize("gpu", ["rtx4090", "rtx3060-12gb", "h100"])
@pytest.mark.parametrize("longest", [4096, 100_000])
@pytest.mark.parametrize("engine", COMMANDS)
def test_no_message_has_an_option_of_another_engine(
    engine: str, longest: int, gpu: str, tmp_path: Path, planner: Any
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(COMMANDS[engine].replace("LONG", str(longest)) + "\n", encoding="utf-8")
    everything = ""
    for more in ((), ("--full",), ("--input-tokens", 200_000), ("--set", "tp=3")):
        ran = planner("estimate", "--from", path, "--gpu", gpu, "--gpus", 1, *more)
        everything += f"{ran.out}\n{ran.err}\n"
    named = {*re.findall(r"(?<![\w-])--[a-z][\w-]*", everything)}
    others = frozenset().union(*(options_of(one) for one in COMMANDS if one != engine))
    assert not named & (others - options_of(engine))
    assert "max_model_len" not in everything.replace("max_model_len =", "").replace(
        "max_model_len=", ""
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", LONGEST)
def test_a_server_that_does_not_start_is_told_its_own_option(
    engine: str, tmp_path: Path, planner: Any
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(COMMANDS[engine].replace("LONG", "100000") + "\n", encoding="utf-8")
    ran = planner("estimate", "--from", path, "--gpu", "rtx4090", "--gpus", 1)
    assert re.search(rf"the cache\s+holds.*{LONGEST[engine]} \d+", ran.out + ran.err, re.DOTALL)
