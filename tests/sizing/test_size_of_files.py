"""How many GPUs a launch file needs: by command line, for training and for serving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TUNING = """\
model_name_or_path: {model}
stage: sft
do_train: true
finetuning_type: {tuning}
deepspeed: ds.json
dataset: d
template: llama3
cutoff_len: {length}
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
"""
SERVING = "vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 1\n"


@pytest.fixture
def size(planner, tmp_path: Path):
    """The rows of a size, and the text of its report."""

    def ask(name: str, text: str, *options: str, code: int = 0) -> tuple[list[dict], str]:
        (tmp_path / name).write_text(text)
        (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
        answer = tmp_path / "size.json"
        done = planner("size", "--from", tmp_path / name, *options, "--json", answer)
        assert done.exit_code == code
        rows: list[dict[str, Any]] = json.loads(answer.read_text())["rows"] if code == 0 else []
        return rows, " ".join((done.out + done.err).split())

    return ask


def chance(planner, tmp_path: Path, gpus: int, gpu: str) -> float:
    """How likely the file fits on so many GPUs; 0 where it is said not to."""
    answer = tmp_path / "one.json"
    asked = "--from", tmp_path / "train.yaml", "--gpu", gpu, "--gpus", gpus, "--json", answer
    done = planner("estimate", *asked)
    return json.loads(answer.read_text())["rows"][0]["fit_probability"] if not done.exit_code else 0


@pytest.mark.slow
def test_a_tuning_is_sized_by_memory_where_nothing_else_is_given(size, planner, tmp_path) -> None:
    text = TUNING.format(model="meta-llama/Llama-3.1-8B", tuning="full", length=2048)
    rows, said = size("train.yaml", text, "--gpu", "a100,h100")
    assert "the fewest GPUs on which it fits" in said
    assert {row["gpu"] for row in rows} == {"a100-sxm-80gb", "h100-sxm-80gb"}
    for row in rows:
        count = int(row["num_gpus"])
        assert row["fit_probability"] >= 0.9
        assert (row["zero_stage"], row["framework"]) == (3, "DeepSpeed")
        assert chance(planner, tmp_path, count, row["gpu"]) >= 0.9
        assert chance(planner, tmp_path, count // 2, row["gpu"]) < 0.9


def test_a_deadline_beside_a_file_is_kept(size) -> None:
    text = TUNING.format(model="meta-llama/Llama-3.1-8B", tuning="full", length=2048)
    asked = "--gpu", "h100", "--tokens", "1B", "--time-to-train", "6h"
    rows, said = size("train.yaml", text, *asked)
    assert "90 % likely to keep: time to train at most 6.00 h" in said
    assert all(row["time_to_train_days"] <= 0.25 for row in rows)


def test_a_service_without_a_rate_is_sized_by_memory(size) -> None:
    rows, said = size("serve.sh", SERVING, "--gpu", "a100,mi325x")
    assert "No rate, deadline or budget is specified" in said
    found = {row["gpu"]: (row["num_gpus"], row["tensor_parallel"]) for row in rows}
    assert found == {"a100-sxm-80gb": (4, 4), "mi325x": (1, 1)}
    assert {row["quantization"] for row in rows} == {"w16a16"}


def test_a_service_with_a_rate_is_sized_for_it(size) -> None:
    rows, said = size("serve.sh", SERVING, "--gpu", "h100", "--request-rate", "5", "--ttft", "2s")
    assert "5 per second" in said
    assert rows[0]["capacity_requests_per_s"] >= 5


def test_the_numbers_of_gpus_that_are_named_are_tried(size) -> None:
    text = TUNING.format(model="meta-llama/Llama-3.1-8B", tuning="full", length=2048)
    rows, _ = size("train.yaml", text, "--gpu", "h100", "--gpus", "16,32")
    assert [row["num_gpus"] for row in rows] == [16]


def test_what_fits_otherwise_is_named_where_no_number_fits(size) -> None:
    text = TUNING.format(model="Qwen/Qwen2.5-14B-Instruct", tuning="lora", length=32_768)
    _, said = size("train.yaml", text, "--gpu", "a100", code=4)
    assert "does not fit on 1 to 1,024 GPUs; it fits on 1 GPU with loss_kernel linear" in said


@pytest.mark.parametrize("other", ["--services", "--pools"])
def test_a_file_is_of_one_service(planner, tmp_path: Path, other: str) -> None:
    (tmp_path / "serve.sh").write_text(SERVING)
    done = planner("size", "--from", tmp_path / "serve.sh", other, "4Ki")
    assert done.exit_code == 3
    assert "--from is of one run or service" in done.err


def test_a_plan_file_is_sized_again(planner, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    asked = "--model", "llama-2-7b", "--gpu", "h100", "--gpus", "8", "--framework", "fsdp"
    assert planner("search", *asked, "--save-plan", plan).exit_code == 0
    done = planner("size", "--from", plan, "--gpu", "h100,h200")
    assert done.exit_code == 0
    assert "the fewest GPUs on which it fits" in " ".join(done.out.split())
