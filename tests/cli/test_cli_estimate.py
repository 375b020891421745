from __future__ import annotations

import json
import re

import pytest

SETTINGS = ("tensor_parallel=8", "pipeline_parallel=8", "sequence_parallel=yes", "recompute=full")
TRAINING = (
    *("estimate", "--model", "llama-65b", "--gpus", "2048"),
    *(word for setting in SETTINGS for word in ("--set", setting)),
)


def test_the_operators_and_modules_add_up_to_the_step(planner):
    out = planner(*TRAINING, "--full").out
    for title in ("by module", "by operator"):
        table = out[out.index(f"Time of a step {title}") :].split("\n\n")
        rows, totals = table[0].splitlines()[3:], table[1].splitlines()[0]
        for column in range(4):
            parts = [_numbers(row)[column] for row in rows]
            assert sum(parts) == pytest.approx(_numbers(totals)[column], abs=0.01 * len(parts))


def _numbers(row: str) -> list[float]:
    cells = re.split(r" {2,}", row)[1:]
    return [0.0 if cell == "-" else float(cell.replace(",", "")) for cell in cells]


def test_json_holds_the_row_and_its_operators(planner, tmp_path):
    path = tmp_path / "a.json"
    assert planner(*TRAINING, "--json", path, "--quiet").exit_code == 0
    document = json.loads(path.read_text())
    (row,) = document["rows"]
    total = sum(operator["total_s"] for operator in document["operators"])
    assert total == pytest.approx(row["step_time_s"], rel=1e-9)
    assert row["recompute"] == "full"


def command_of(front: str) -> list[str]:
    """The words of the estimate command under a front."""
    command = re.search(r"planner (estimate (?:[^\\\n]|\\\n)*)", front)
    assert command is not None
    return command[1].replace("\\\n", " ").split()


@pytest.mark.few(1)
@pytest.mark.parametrize("layers", ["0", "1"])
def test_the_command_under_a_front_repeats_the_recommended_plan(planner, tmp_path, layers):
    chosen = ("recompute=full", f"recompute_num_layers={layers}")
    settings = [word for setting in chosen for word in ("--set", setting)]
    search = ("search", "--model", "llama-2-13b", "--gpus", "64", *settings)
    words = command_of(planner(*search, "--full", "--json", tmp_path / "found.json").out)
    assert ("recompute_num_layers=1" in words) == (layers == "1")
    assert "recompute_num_layers=0" not in words
    best = json.loads((tmp_path / "found.json").read_text())["recommended_row"]
    (again,) = json.loads(planner(*words, "--json", "-", "--quiet").out)["rows"]
    names = ("step_time_s", "recompute", "recompute_num_layers")
    assert [again[name] for name in names] == [best[name] for name in names]


@pytest.mark.few(1)
@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3", "gpt-3-175b"])
def test_every_kind_of_model_has_operators_that_add_up(planner, model):
    asked = ("estimate", "--model", model, "--gpus", "1024", "--gpu", "h200")
    ran = planner(*asked, "--json", "-", "--quiet")
    document = json.loads(ran.out)
    total = sum(operator["total_s"] for operator in document["operators"])
    assert total == pytest.approx(document["rows"][0]["step_time_s"], rel=1e-9)


def test_a_specified_efficiency_shows_modules_and_no_operators(planner):
    ran = planner(*TRAINING, "--flops-efficiency", "0.5", "--full")
    assert ran.exit_code == 0
    assert "as long as their FLOPs take" in " ".join(ran.out.split())
    assert "by operator" not in ran.out
    modules = ran.out[ran.out.index("Time of a step by module") :]
    for name in ("attention", "feed forward", "embedding and logits", "tensor parallel"):
        assert f"\n{name}  " in modules


@pytest.mark.parametrize("precision", ["bf16", "fp8", "bf16,fp8"])
def test_an_achieved_rate_is_reached_in_any_precision(planner, precision):
    words = (*TRAINING, "--gpu", "h100", "--flops-efficiency", "400 TFLOP/s")
    words = ("search", *words[1:], "--set", f"precision={precision}", "--framework", "megatron-lm")
    rows = json.loads(planner(*words, "--all", "--json", "-", "--quiet").out)["rows"]
    assert {row["precision"] for row in rows} == set(precision.split(","))
    for row in rows:
        rate = row["tflops_per_gpu"] * row["hardware_flops_utilization"]
        assert rate / row["model_flops_utilization"] == pytest.approx(400)


def test_the_ideal_is_said(planner):
    assert "Ideal: every efficiency is 1" in planner(*TRAINING, "--ideal").out


def test_the_hours_of_the_computation_come_before_those_of_the_campaign(planner):
    """llm-analysis has 1,015,701 GPU-hours for this run; restarts and spare GPUs come on top."""
    asked = (*TRAINING[:-1], "recompute=selective", "--flops-efficiency", "0.5")
    out = planner(*asked, "--full").out
    run = out[out.index("A run of 1.4 trillion tokens") :]
    shown = [line.split("  ")[0] for line in run.splitlines()]
    assert "GPU-hours      1,012,728\n" in run
    assert shown.index("GPU-hours") < shown.index("calendar time") < shown.index("campaign")
