"""Runs whose columns contradict the model or the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.confidence.profile_rules import engine_rule
from planner.validation.accuracy import kind_of, why_impossible
from planner.validation.run_tables import read_runs
from planner.validation.spec_library import Library

LIBRARY = Library()
SERVED = {
    "framework": "sglang", "model": "deepseek-v3", "gpu": "b200-sxm-180gb", "mode": "agg",
    "tensor_parallel": "8", "weight_precision": "fp8", "input_tokens": "1024",
    "output_tokens": "1024", "concurrency": "16", "measured_time_per_output_token_s": "0.01",
}  # fmt: skip
TRAINED = {
    "framework": "Megatron-LM", "model": "llama-2-70b", "gpu": "a100-sxm-80gb", "num_gpus": "64",
    "workload": "pretrain", "sequence_length": "4096", "tensor_parallel": "8",
    "pipeline_parallel": "8", "precision": "bf16", "measured_step_time_s": "9",
}  # fmt: skip


def reason(tmp_path: Path, row: dict[str, str], **more: str) -> str:
    cells = row | more
    path = tmp_path / "runs.csv"
    path.write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n", encoding="utf-8")
    runs = read_runs(path)
    (run,), kind = runs.rows, kind_of(runs)
    (why,) = why_impossible(kind, [run], [kind.case_of(run, LIBRARY)])
    return why


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ""),
        ({"tensor_parallel": "16"}, "tensor_parallel 16 leaves a node of 8"),
        ({"tensor_parallel": "16", "num_gpus": "16"}, ""),
        ({"gpu": "gb200-nvl72", "tensor_parallel": "16"}, ""),
        ({"tensor_parallel": "3"}, "must divide the heads"),
        ({"tensor_parallel": "1"}, "weights of 6"),
        ({"tensor_parallel": "1", "measured_out_of_memory": "1"}, ""),
        ({"mode": "disagg"}, "no numbers of workers"),
        ({"mode": "disagg", "prefill_num_workers": "1", "decode_num_workers": "2"}, ""),
    ],
)
def test_layouts_of_serving(tmp_path: Path, more: dict[str, str], words: str) -> None:
    found = reason(tmp_path, SERVED, **more)
    assert words in found if words else found == ""


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ""),
        ({"tensor_parallel": "7", "num_gpus": "56"}, "does not divide 64 heads"),
        (
            {"num_gpus": "1", "tensor_parallel": "1", "pipeline_parallel": "1"},
            "weights of 128 GiB on a GPU of 79 GiB",
        ),
    ],
)
def test_layouts_of_training(tmp_path: Path, more: dict[str, str], words: str) -> None:
    found = reason(tmp_path, TRAINED, **more)
    assert words in found if words else found == ""


def test_neuron_pads_heads(tmp_path: Path) -> None:
    row = SERVED | {"framework": "transformers-neuronx", "gpu": "inferentia2-32gb"}
    row |= {"model": "llama-2-7b", "tensor_parallel": "24", "num_gpus": "24", "mode": "online"}
    assert reason(tmp_path, row) == ""
    assert "must divide" in reason(tmp_path, row, framework="vllm", gpu="h100")


def test_a_tuned_fork_is_no_early_port() -> None:
    assert engine_rule("vllm-rocm", "0.6.4", 2024, "mi300x-192gb").profile == "vllm-rocm"
    assert engine_rule("vllm", "0.6.4", 2024, "mi300x-192gb").profile == "vllm-v0-ports"
