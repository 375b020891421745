"""``planner compare``: plans, names and specs side by side."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

import pytest

from planner.__main__ import run
from planner.question.terms import is_better_high

QUESTION = (
    "--model",
    "llama-7b",
    "--gpus",
    "8",
    "--set",
    "mbs=1,2",
    "--set",
    "recompute=none,full",
)


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("front") / "front.csv"
    assert run(["search", *QUESTION, "--csv", str(path), "--all", "--quiet"]) == 0
    return path


def test_rows_of_a_result_differ_in_what_is_set_otherwise(planner, front):
    done = planner("compare", f"{front}:1", f"{front}:2", "--json", "-")
    assert done.exit_code == 0
    told = json.loads(done.out)
    assert told["settings"]
    assert all(len({str(v) for v in values}) > 1 for values in told["settings"].values())
    for one in told["results"]:
        values = [value for value in one["values"] if value is not None]
        best = max(values) if is_better_high(one["name"]) else min(values)
        assert one["values"][one["best"]] == best
    assert told["sentences"]


def test_parts_add_up_to_what_plans_differ_by(planner, front):
    told = json.loads(planner("compare", f"{front}:1", f"{front}:3", "--json", "-", "--quiet").out)
    (step_times,) = (one["values"] for one in told["results"] if one["name"] == "step_time_s")
    parts = told["times_s"]["step"].values()
    assert sum(b - a for a, b in parts) == pytest.approx(step_times[1] - step_times[0], rel=1e-6)


def test_gpus_are_compared_by_their_best_plans(planner):
    done = planner("compare", "a100", "h100", "--model", "llama-7b", "--gpus", "8")
    assert done.exit_code == 0
    assert "a100-sxm-80gb" in done.out
    assert "B is best in step time" in done.out
    assert "* best" in done.out


def test_near_plans_are_ties(planner, tmp_path):
    for name, setting in (("a", "tp=4"), ("b", "tp=8")):
        planner(
            *("search", "--model", "llama-65b", "--gpus", "2048", "--set", setting, "--quiet"),
            *("--framework", "megatron-bridge", "--save-plan", tmp_path / f"{name}.toml"),
        )
    out = planner("compare", tmp_path / "a.toml", tmp_path / "b.toml").out
    assert "A and B are tied within x1." in out


def test_software_and_models_are_compared(planner):
    common = ("--model", "llama-7b", "--gpus", "8")
    assert "framework" in planner("compare", "deepspeed", "megatron-lm", *common).out
    serve = ("--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1")
    out = planner("compare", "vllm", "sglang", *serve).out
    assert "decode: " in out
    assert "Time of the decode, ms" in planner("compare", "vllm", "sglang", *serve, "--full").out
    assert planner("compare", "llama-7b", "llama-2-13b", "--gpus", "8").exit_code == 0


def test_what_has_no_plan_is_told(planner):
    asked = ("--model", "llama-2-13b", "--gpus", "8", "--space", "small")
    found = planner("compare", "rtx4090", "h100", "h200", *asked)
    assert found.exit_code == 0
    assert "rtx4090: no plan" in found.out
    alone = planner("compare", "rtx4090", "h100", *asked)
    assert alone.exit_code == 4
    assert "rtx4090" in alone.err


def test_specs_without_a_question(planner):
    out = planner("compare", "a100", "h100").out
    assert "312 TFLOP/s" in out
    assert "989 TFLOP/s" in out
    assert "price, on demand" in out
    assert "parameters" in planner("compare", "llama-7b", "llama-2-13b").out
    assert "do not differ" in planner("compare", "h100", "h100-sxm-80gb").out


def test_two_versions_of_specs(planner, tmp_path):
    own = tmp_path / "gpus"
    own.mkdir()
    text = Path("hardware_specs/gpus/a100-sxm-80gb.toml").read_text(encoding="utf-8")
    faster = text.replace("value = 2039, unit", "value = 3000, unit")
    (own / "a100-sxm-80gb.toml").write_text(faster, encoding="utf-8")
    out = planner("compare", "shipped", tmp_path).out
    assert "GPU a100-sxm-80gb" in out
    assert "3000 GB/s" in out
    told = json.loads(
        planner(
            *("compare", "shipped", tmp_path, "--model", "llama-7b", "--gpus", "8"),
            *("--json", "-", "--quiet"),
        ).out
    )
    (step,) = (one for one in told["results"] if one["name"] == "step_time_s")
    assert step["values"][1] < step["values"][0]
    shutil.rmtree(own)


@pytest.mark.few(1)
@pytest.mark.parametrize("width", ["40", "72", "200"])
def test_it_fits_the_terminal(planner, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", width)
    out = planner("compare", "a100", "h100", "--model", "llama-7b", "--gpus", "8").out
    assert max(map(len, out.splitlines())) <= int(width)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a100",), "two things"),
        (("a100", "llama-7b"), "different kinds of things"),
        (("a100", "no-such-gpu"), "no-such-gpu is no file"),
        (("a100", "h100", "--model", "llama-7"), "llama-7"),
        (("a100", "h100", "--json", "no/folder.json"), "there is no folder"),
    ],
)
def test_errors_say_what_and_where(planner, words, said):
    done = planner("compare", *words)
    assert done.exit_code != 0
    assert said in done.err.replace("\n", " ")


def test_plans_of_several_workloads_have_nothing_in_common(planner, tmp_path):
    train, serve = tmp_path / "train.toml", tmp_path / "serve.toml"
    planner("search", *QUESTION, "--save-plan", train, "--quiet")
    planner(
        *("search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100"),
        *("--gpus", "1", "--engine", "vllm", "--save-plan", serve, "--quiet"),
    )
    done = planner("compare", train, serve)
    assert done.exit_code == 3
    assert "nothing in common" in done.err


def test_scenarios_of_a_sweep_are_plans(planner, tmp_path):
    folder = tmp_path / "sweep"
    planner(
        *("sweep", "--model", "llama-7b", "--gpu", "a100,h100", "--gpus", "8", "--space", "small"),
        *("--output", folder, "--workers", "1", "--quiet"),
    )
    out = planner("compare", f"{folder}:0", f"{folder}:1").out
    assert "h100-sxm-80gb" in out
    assert planner("compare", folder, f"{folder}:1").exit_code != 0


def written(folder: Path, name: str, options: str = "") -> Path:
    path = folder / name
    path.write_text(f"vllm serve meta-llama/Llama-3.1-8B-Instruct {options}\n")
    return path


def test_launch_files_are_plans(planner, tmp_path):
    paths = [
        written(tmp_path, f"{share}.sh", f"--gpu-memory-utilization {share} --max-model-len 8192")
        for share in (0.95, 0.5)
    ]
    done = planner("compare", *paths, "--gpu", "h100", "--json", "-")
    assert done.exit_code == 0
    told = json.loads(done.out)
    assert told["settings"]["gpu_memory_utilization"] == [0.95, 0.5]
    # Each with as many requests as its cache has room for, at any time of 1,024 tokens of the
    # prompt and 1,024 of the answer: that of 0.45 of 79.1 GiB lies between.
    cache = told["memory_gib"]["kv_cache"]
    assert cache[0] - cache[1] == pytest.approx(0.45 * 79.1, rel=0.02)
    assert told["settings"]["concurrency"] == [230, 87]
    assert "gpu memory utilization 0.95 | 0.5" in done.err


@pytest.mark.slow
def test_a_launch_file_that_does_not_start_says_so(planner, tmp_path):
    short, whole = written(tmp_path, "a.sh", "--max-model-len 8192"), written(tmp_path, "b.sh")
    done = planner("compare", short, whole, "--gpu", "l4")
    assert "impossible: does not start: the longest request needs 131,072" in done.out
    done = planner("explain", "--from", short, "--gpu", "l4", "--against", whole)
    assert "It is impossible: does not start: the longest request needs 131,072" in done.out


def test_a_launch_file_beside_a_plan_is_asked_its_load() -> None:
    import planner

    asked = {"gpu": "h100", "num_gpus": 1, "engine": "vllm", "input_tokens": 4000}
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), "a.sh", "--max-model-len 8192")
        found = planner.explain(
            workload="serve", model="llama-3.1-8b", settings={"concurrency": 32}, against=path,
            **asked,
        )  # fmt: skip
    assert found.difference is not None
    assert "input_tokens" not in found.difference.settings
    assert found.difference.settings["max_model_len"] == (None, 8192)
