"""A plan written to a file and read back gives the same estimate, to the last bit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.__main__ import run

HARDWARE = Path(__file__).parents[2] / "hardware_specs"

QUESTIONS = {
    "dense": ("--model", "llama-65b", "--gpus", "2048"),
    "experts": ("--model", "mixtral-8x7b", "--gpus", "64", "--gpu", "h100", "--tokens", "300B"),
    "cluster": ("--model", "llama-2-70b", "--gpus", "64", "--cluster", "dgx-h100", "--price", "2"),
    "adapter": ("--model", "llama-2-7b", "--gpus", "1", "--gpu", "rtx4090", "--adapter", "qlora"),
    "several counts": ("--model", "llama-7b", "--gpus", "8,16", "--space", "small", "--dropout"),
    "flat": ("--model", "llama-7b", "--gpus", "8", "--flops-efficiency", "150 TFLOP/s"),
    "prediction modules": ("--model", "qwen3-next-80b-a3b", "--gpus", "128", "--gpu", "h100"),
    "served": (
        *("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "8"),
        *("--mode", "aggregated", "--engine", "vllm", "--ttft", "1s"),
    ),
    "engines": (
        *("--workload", "serve", "--model", "gpt-oss-120b", "--gpu", "h100,b200", "--gpus", "8"),
        *("--mode", "aggregated", "--engine", "sglang,vllm"),
    ),
    "pools": (
        *("--workload", "serve", "--model", "llama-3.1-70b", "--gpu", "h200", "--gpus", "32"),
        *("--mode", "disaggregated", "--prefill-gpu", "h100", "--input-tokens", "4000"),
    ),
    "sized pools": (
        *("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--mode"),
        *("disaggregated", "--engine", "vllm", "--request-rate", "30"),
    ),
    "batch": (
        *("--workload", "inference", "--model", "mixtral-8x7b", "--gpu", "h100", "--gpus", "8"),
        *("--latency", "20s"),
    ),
    "sized": (
        *("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--mode"),
        *("aggregated", "--engine", "vllm", "--request-rate", "30"),
        *("--prefix-cache-hit-rate", "0.3"),
    ),
}


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plan that is recommended for the first question."""
    plan = tmp_path_factory.mktemp("dense") / "plan.toml"
    assert run(["search", *QUESTIONS["dense"], "--save-plan", str(plan), "--quiet"]) == 0
    return plan


@pytest.mark.few(1)
@pytest.mark.parametrize("suffix", ["toml", "json"])
@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
def test_a_plan_reads_back_to_the_same_estimate(planner, tmp_path, question, suffix):
    plan, found, again = (tmp_path / name for name in (f"p.{suffix}", "found.json", "again.json"))
    ran = planner("search", *question, "--save-plan", plan, "--json", found, "--quiet")
    assert ran.exit_code == 0, ran.err
    ran = planner("estimate", "--plan", plan, "--json", again, "--quiet")
    assert ran.exit_code == 0, ran.err
    read = json.loads(found.read_text())
    first = read["recommended_row"]
    (second,) = json.loads(again.read_text())["rows"]
    assert {
        name: (first[name], second[name]) for name in first if first[name] != second[name]
    } == {}


def test_options_beside_a_plan_change_it(planner, dense, tmp_path):
    found = tmp_path / "found.json"
    ran = planner(
        *("estimate", "--plan", dense, "--gpu", "h100", "--set", "micro_batch_size=1"),
        *("--json", found, "--quiet"),
    )
    assert ran.exit_code == 0, ran.err
    row = json.loads(found.read_text())["rows"][0]
    assert (row["micro_batch_size"], row["num_gpus"]) == (1, 2048)
    assert "gpu h100-sxm-80gb" in json.loads(found.read_text())["manifest"]["specs"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((r"^tensor_parallel = \d+", "tensor_paralel = 2"), "Did you mean tensor_parallel"),
        ((r"^global_batch_size = \d+", ""), "parameters.global_batch_size is missing"),
        (
            (r"^tensor_parallel = \d+", 'tensor_parallel = "two"'),
            "tensor_parallel is a whole number",
        ),
        (('workload = "train"', 'workload = "trian"'), "train, inference, serve or rl"),
        (('model = "llama-65b"', ""), "answers.model is missing"),
        ((r"\[answers\]", "[answer]"), "no table [answers]"),
        ((r"\[answers\]", "[answers"), "line 5"),
    ],
)
def test_a_faulty_plan_is_told_with_its_file(planner, dense, tmp_path, change, words):
    plan = tmp_path / "plan.toml"
    plan.write_text(re.sub(*change, dense.read_text(), count=1, flags=re.MULTILINE))
    ran = planner("estimate", "--plan", plan)
    assert ran.exit_code in (2, 3)
    assert words in ran.err


def test_a_plan_of_another_workload_and_none_at_all_are_refused(planner, dense, tmp_path):
    ran = planner("estimate", "--plan", dense, "--workload", "serve")
    assert (ran.exit_code, "leave --workload out" in ran.err) == (3, True)
    ran = planner("estimate", "--gpus", "8")
    assert (ran.exit_code, "--model" in ran.err) == (2, True)
    ran = planner("estimate", "--plan", tmp_path / "none.toml")
    assert (ran.exit_code, "none.toml" in ran.err) == (2, True)


@pytest.mark.parametrize("suffix", ["toml", "json"])
def test_a_plan_of_own_specs_knows_their_folder(planner, tmp_path, suffix):
    (tmp_path / "mine" / "gpus").mkdir(parents=True)
    text = (HARDWARE / "gpus" / "h100-sxm-80gb.toml").read_text().replace("h100-sxm-80gb", "mygpu")
    kept = (line for line in text.splitlines() if not line.startswith("aliases"))
    (tmp_path / "mine" / "gpus" / "mygpu.toml").write_text("\n".join(kept))
    plan, found = tmp_path / f"p.{suffix}", tmp_path / "found.json"
    words = ("--model", "llama-7b", "--gpus", "8", "--gpu", "mygpu", "--space", "small")
    words = (*words, "--specs", tmp_path / "mine")
    ran = planner("search", *words, "--save-plan", plan, "--json", found, "--quiet")
    assert ran.exit_code == 0, ran.err
    assert planner("estimate", "--plan", plan, "--quiet").exit_code == 0
    # The file of a search has its recommended plan.
    assert planner("estimate", "--plan", found, "--quiet").exit_code == 0
    faulty = json.loads(found.read_text())["recommended"] | {"specs_folder": 3}
    (tmp_path / "faulty.json").write_text(json.dumps(faulty))
    ran = planner("estimate", "--plan", tmp_path / "faulty.json", "--quiet")
    assert (ran.exit_code, "specs_folder is not text" in ran.err) == (2, True)


def test_a_plan_of_an_older_version_has_the_defaults_of_what_it_lacks(planner, tmp_path):
    plan, found, again = (tmp_path / name for name in ("plan.json", "found.json", "again.json"))
    words = ("--save-plan", plan, "--json", found, "--quiet")
    assert planner("search", *QUESTIONS["several counts"], *words).exit_code == 0
    older = json.loads(plan.read_text())
    del older["parameters"]["optimizer"], older["parameters"]["cp_comm_type"]
    plan.write_text(json.dumps(older))
    ran = planner("estimate", "--plan", plan, "--json", again, "--quiet")
    assert ran.exit_code == 0, ran.err
    told = " ".join(ran.err.split())
    assert "lacks 2 parameters" in told
    assert "its default: optimizer, cp_comm_type." in told
    read = json.loads(found.read_text())
    first = read["recommended_row"]
    (second,) = json.loads(again.read_text())["rows"]
    assert second["step_time_s"] == first["step_time_s"]
    # What has no default is missing.
    del older["parameters"]["global_batch_size"]
    plan.write_text(json.dumps(older))
    ran = planner("estimate", "--plan", plan)
    assert (ran.exit_code, "global_batch_size is missing" in ran.err) == (2, True)


def test_a_row_of_an_older_version_has_the_defaults_of_what_it_lacks(planner, tmp_path):
    rows, again = tmp_path / "rows.json", tmp_path / "again.json"
    ran = planner("search", *QUESTIONS["several counts"], "--json", rows, "--quiet")
    assert ran.exit_code == 0, ran.err
    table = json.loads(rows.read_text())
    step_time = table["rows"][1]["step_time_s"]
    del table["rows"][1]["optimizer"], table["rows"][1]["fp8_recipe"]
    rows.write_text(json.dumps(table))
    ran = planner("estimate", "--from", rows, "--row", "2", "--json", again, "--quiet")
    assert ran.exit_code == 0, ran.err
    assert "lacks 2 parameters" in " ".join(ran.err.split())
    assert json.loads(again.read_text())["rows"][0]["step_time_s"] == step_time
