"""A change of the requests at once is a change of what the engine is told to run at most."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planner as package
from planner.estimators.inference.serving_memory import serving_memory
from planner.workloads.serving.question import with_max_num_seqs, with_sequence_limit

SHORT = ("--gpu", "a100-sxm-80gb", "--input-tokens", 128, "--output-tokens", 256)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("vllm serve Qwen/Qwen3-0.6B --max-model-len 4096", "--max-num-seqs"),
        (
            "python3 -m sglang.launch_server --model-path Qwen/Qwen3-0.6B --context-length 4096",
            "--max-running-requests",
        ),
        ("trtllm-serve Qwen/Qwen3-0.6B --max_seq_len 4096", "--max_batch_size"),
    ],
)
def test_more_sequences_than_by_default_are_written_and_read_back(
    planner: Any, tmp_path: Any, command: str, option: str
) -> None:
    """An A100 has room for more of so short requests than the 256 that engines take there."""
    file, before, after = (tmp_path / name for name in ("run.sh", "before.json", "after.json"))
    file.write_text(f"{command}\n")
    done = planner("estimate", "--from", file, *SHORT, "--write", "--json", before)
    assert done.exit_code == 0, done.err
    old, new = json.loads(before.read_text())["launch_file"]["change"]["concurrency"]
    assert (old, new > 256) == (256, True)
    assert f" {option} {new}" in file.read_text()
    planner("estimate", "--from", file, *SHORT, "--json", after)
    (again,), (row,) = (json.loads(path.read_text())["rows"] for path in (after, before))
    assert again["concurrency"] == new
    assert again["output_tokens_per_s"] > 1.1 * row["output_tokens_per_s"]


def test_a_number_that_the_file_gives_is_a_load_and_not_raised(planner: Any, tmp_path: Any) -> None:
    file, result = tmp_path / "run.sh", tmp_path / "result.json"
    file.write_text("vllm serve Qwen/Qwen3-0.6B --max-model-len 4096 --max-num-seqs 16\n")
    planner("estimate", "--from", file, *SHORT, "--json", result)
    change = json.loads(result.read_text())["launch_file"]["change"] or {}
    assert change.get("concurrency", [16, 16])[1] <= 16


def test_an_engine_is_told_as_many_sequences_as_there_are_requests() -> None:
    """Room for the cache: at the number it is told now as now, at others as if told that."""
    source = package.estimate(
        workload="serve", model="llama-3.1-8b", gpu="h100", num_gpus=1, engine="vllm",
        max_num_seqs=1024, settings={"concurrency": 300},
    ).source  # fmt: skip
    setting, one = source.inputs, source.mesh.table()
    told = with_max_num_seqs(setting, 1024, 300)

    def room(of: Any, *numbers: int) -> Any:
        rows = one.rows(np.zeros(len(numbers), dtype=np.intp))
        c = replace(rows, concurrency=np.array(numbers, dtype=float))
        return serving_memory(of, c).room.size

    alone = [
        room(replace(setting, engine=with_sequence_limit(setting.engine, seqs)), number)
        for number, seqs in ((300, 1024), (261, 261), (64, 64))
    ]
    assert room(told, 300, 261, 64) == pytest.approx(np.concatenate(alone))
    assert alone[0] < alone[1] <= alone[2]
