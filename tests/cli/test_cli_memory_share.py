"""The share of a GPU's memory that an engine is told: set, searched, in spaces, as an option."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

QUESTION = (
    "search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1",
    "--engine", "vllm", "--mode", "aggregated", "--set", "tp=1", "--set", "quantization=w16a16",
)  # fmt: skip
SHARES = (0.85, 0.9, 0.95)
# The pool of an 8B model in 16 bit on 79.1 GiB; tokens of 2 x 32 x 8 x 128 numbers of 2 bytes.
_TOKEN = 2 * 32 * 8 * 128 * 2


def rows_of(planner, *options: str) -> list[dict]:
    done = planner(*QUESTION, *options, "--all", "--json", "-", "--quiet")
    assert done.exit_code == 0, done.err
    rows: list[dict] = json.loads(done.out)["rows"]
    return rows


def is_larger_by_its_share(rows: list[dict]) -> bool:
    tokens = {row["gpu_memory_utilization"]: row["kv_cache_tokens"] for row in rows}
    assert tuple(sorted(tokens)) == SHARES
    between = (tokens[0.95] - tokens[0.85]) * _TOKEN / 2**30
    return bool(between == pytest.approx(0.1 * 79.1, rel=0.01))


def test_several_shares_are_searched_as_an_option(planner) -> None:
    shares = ",".join(map(str, SHARES))
    load = ("--set", "concurrency=16", "--set", "kv_cache=bf16", "--ttft", "1h")
    assert is_larger_by_its_share(rows_of(planner, *load, "--gpu-memory-utilization", shares))


def test_several_shares_are_searched_in_a_space(planner, tmp_path: Path) -> None:
    space = tmp_path / "mine.toml"
    space.write_text(
        'name = "mine"\ndescription = "mine"\nengine = "vllm"\n[parameters]\n'
        f"concurrency = [16, 64]\ngpu_memory_utilization = {list(SHARES)}\n"
    )
    assert is_larger_by_its_share(rows_of(planner, "--space", str(space)))
    done = planner(*QUESTION, "--space", str(space), "--full")
    assert re.search(r"gpu_memory_utilization=0\.(85|9|95)\b", done.out)


def test_what_is_no_parameter_is_refused_as_before(planner) -> None:
    done = planner(*QUESTION, "--gpu-memory-use", "0.9")
    assert (done.exit_code, "No such option" in done.err) == (2, True)
    done = planner(*QUESTION, "--gpu-memory-utilization")
    assert "--set gpu_memory_utilization=VALUE" in done.err
