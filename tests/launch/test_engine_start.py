"""What the engine of a launch file has at its start, as its log prints it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from start_logs import start_logs

from planner.launch.read.launch_file import evaluate_launch, full_row
from planner.launch.read.read_launch import read_launch

LLAMA = "vllm serve meta-llama/Llama-3.1-8B-Instruct"
BESIDE = {"gpu": "h100", "num_gpus": 1, "input_tokens": 1024, "output_tokens": 1024}


def started(folder: Path, text: str, gpu: str = "h100") -> Mapping[str, Any]:
    """The result columns of what a file starts."""
    path = folder / "serve.sh"
    path.write_text(text)
    imported = read_launch(path, gpu=gpu)
    return full_row(evaluate_launch(imported.request(BESIDE | {"gpu": gpu}, None))[1])


@pytest.mark.parametrize(("version", "share"), [("0.11", 0.9), ("0.19", 0.95)])
def test_a_file_has_the_cache_that_the_log_of_its_version_has(
    tmp_path: Path, version: str, share: float
) -> None:
    """51.38 and 58.11 GiB of 8B on an H100: it samples all 1,024 requests that it may run."""
    (log,) = (
        row for row in start_logs() if row["case"] == "Llama 3.1 8B" and row["version"] == version
    )
    text = f"# vLLM {version}\n{LLAMA} --gpu-memory-utilization {share}\n"
    found = started(tmp_path, text)["kv_cache_size_gib"]
    assert found == pytest.approx(float(log["measured_kv_cache_gib"]), rel=0.01)


def test_what_a_gpu_has_of_its_own_is_not_counted_from_0_7_on(tmp_path: Path) -> None:
    """39,024 tokens of 8B on an RTX 3090 (github.com/Graph-COM/SubgraphRAG/issues/19)."""
    text = f"# vLLM 0.7.2\n{LLAMA} --max-model-len 8192 --max-num-batched-tokens 2048\n"
    found = started(tmp_path, text, gpu="rtx3090")
    assert found["kv_cache_tokens"] == pytest.approx(39_024, rel=0.03)


def test_fewer_requests_at_once_leave_more_cache(tmp_path: Path) -> None:
    """A step that samples 1,024 sequences keeps 38 bytes of each logit of 128,256."""
    few, usual = (
        started(tmp_path, f"# vLLM 0.11\n{LLAMA} --max-num-seqs {number}\n")["kv_cache_size_gib"]
        for number in (512, 1024)
    )
    assert few - usual == pytest.approx(512 * 128_256 * 38 / 2**30, rel=0.01)


@pytest.mark.parametrize(
    ("said", "share"),
    [
        ("", 0.92),
        ("# vLLM 0.33.0\n", 0.92),
        ("# vLLM 0.25.0\n", 0.92),
        ("# vLLM 0.21.0\n", 0.92),
        ("# vLLM 0.20.2\n", 0.9),
    ],
)
def test_the_share_of_memory_is_that_of_the_version(
    tmp_path: Path, said: str, share: float
) -> None:
    row = started(tmp_path, f"{said}{LLAMA}\n")
    held = row["kv_cache_size_gib"] + sum(
        row[f"memory_{part}_gib"] for part in ("weights", "activations", "reserved")
    )
    assert held == pytest.approx(share * 79.14, rel=1e-3)
