"""``planner explain``: of a plan, a row, settings, or what is recommended."""

from __future__ import annotations

import json

import pytest

TRAINING = ("--model", "llama-65b", "--gpus", "2048", "--framework", "megatron-bridge")
LAYOUT = ("--set", "tp=8", "--set", "mbs=4", "--set", "sp=true", "--set", "zero=1")
SERVED = (
    *("--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8"),
    *("--input-tokens", "4000", "--output-tokens", "1000", "--set", "tp=4"),
    *("--set", "concurrency=64"),
)


def test_the_short_report_says_what_bounds_and_moves_it(planner):
    done = planner("explain", *TRAINING, *LAYOUT)
    assert done.exit_code == 0
    assert "Bound by compute" in done.out
    assert "feed forward gate up" in done.out
    assert "10 % worse: " in done.out
    assert "most depends on recompute (assumed none; tried" in " ".join(done.out.split())
    assert len(done.out.splitlines()) <= 24
    full = planner("explain", *TRAINING, *LAYOUT, "--full").out
    assert "What if (each one predicted again)" in full
    assert "network between nodes (assumed 200 Gbit/s per GPU" in full


@pytest.mark.slow
def test_the_full_report_has_formulas_and_sources_and_other_settings_side_by_side(planner):
    other = ("--against", "tp=4", "--against", "pp=2", "--against", "vp=20")
    out = planner("explain", *TRAINING, *LAYOUT, *other, "--full").out
    assert "Time of the step, ms" in out
    assert "Memory, GiB" in out
    assert "312 TFLOP/s" in out
    assert "planner.formulas.roofline.roofline_time" in out
    assert "S. Williams et al." in out.replace("\n  ", " ")
    assert "gpu peak_flops.bf16" in out


@pytest.mark.slow
def test_without_a_layout_the_recommended_plan_is_explained(planner):
    asked = ("--model", "llama-7b", "--gpus", "2", "--framework", "megatron-lm")
    out = planner("explain", *asked, "--space", "small")
    assert out.exit_code == 2  # the space is not asked for: a plan is one configuration
    found, told = (
        json.loads(planner(command, *asked, "--json", "-", "--quiet").out)
        for command in ("search", "explain")
    )
    best = found["recommended_row"]
    assert told["row"]["step_time_s"] == best["step_time_s"]


@pytest.mark.slow
def test_a_row_and_a_plan_file_are_explained(planner, tmp_path):
    csv, plan = tmp_path / "front.csv", tmp_path / "plan.toml"
    asked = ("--model", "llama-7b", "--gpus", "8", "--space", "small")
    planner("search", *asked, "--csv", csv, "--save-plan", plan)
    of_row = planner("explain", "--from", csv, "--row", "2", "--against", f"{csv}:1")
    assert of_row.exit_code == 0
    assert "Against the other plan" in of_row.out
    assert planner("explain", "--plan", plan).exit_code == 0
    same = planner("explain", "--plan", plan, "--against", plan)
    assert "Changed: nothing." in same.out


@pytest.mark.slow
def test_json_has_all_of_it_and_the_report_goes_to_stderr(planner):
    done = planner("explain", *SERVED, "--against", "quantization=fp8", "--json", "-")
    told = json.loads(done.out)
    assert [step["step"] for step in told["steps"]] == ["prefill", "decode"]
    assert told["manifest"]["command"].startswith("planner explain")
    assert any("Of the memory it gains" in line for line in told["against"]["sentences"])
    assert "Against the other plan" in done.err


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize("width", ["40", "60", "200"])
def test_it_fits_the_terminal(planner, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    out = planner("explain", *SERVED).out
    assert max(map(len, out.splitlines())) <= max(int(width), 40)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((*LAYOUT, "--against", "tensor_paralel=4"), "tensor_paralel"),
        ((*LAYOUT, "--against", "nowhere.toml"), "nowhere.toml"),
        ((*LAYOUT, "--against", "tp=4,8"), "2 configurations"),
        ((*LAYOUT, "--against", "a.toml", "--against", "b.toml"), "one plan, not 2"),
        (("--set", "tp=4,8"), "2 configurations"),
        (("--row", "3"), "--row needs --from"),
        (("--set", "tp=8", "--json", "no/such/folder.json"), "there is no folder"),
        (("--set", "tp=1", "--against", "tp=8", "--quiet"), "out of memory: peak"),
    ],
)
def test_errors_say_what_and_where(planner, options, said):
    done = planner("explain", *TRAINING, *options)
    assert done.exit_code != 0
    assert said in done.err.replace("\n", " ")


def test_a_plan_that_does_not_fit_is_refused_as_by_estimate(planner):
    explained = planner("explain", *TRAINING, "--set", "tp=1")
    estimated = planner("estimate", *TRAINING, "--set", "tp=1", "--quiet")
    assert explained.exit_code == estimated.exit_code == 4
    assert explained.err == estimated.err
