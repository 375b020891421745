from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SEARCH = ("search", "--model", "llama-7b", "--gpu", "h100", "--gpus", "16", "--space", "small")
ESTIMATE = ("estimate", "--model", "llama-7b", "--gpu", "h100", "--gpus", "16")
SIZE = (
    "size", "--model", "llama-7b", "--gpu", "h100", "--tokens", "100B", "--deadline", "13d",
    "--framework", "megatron-lm", "--space", "small",
)  # fmt: skip
VALIDATE = ("validate",)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few measured runs."""
    from planner.validation.run_tables import SHIPPED

    lines = SHIPPED.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    path.write_text("".join(lines[:30]), encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "SVG"])
@pytest.mark.parametrize(
    ("command", "pictures"),
    [
        (SEARCH, ("front", "parts", "roofline")),
        (ESTIMATE, ("parts", "roofline")),
        (SIZE, ("cost",)),
    ],
    ids=["search", "estimate", "size"],
)
def test_every_picture_of_a_command_is_drawn(planner, tmp_path, command, pictures, ending):
    alone = planner(*command).out
    for picture in pictures:
        path = tmp_path / f"{picture}.{ending}"
        ran = planner(*command, "--plot", path, "--picture", picture, "--dark")
        assert ran.exit_code == 0, ran.err
        assert path.read_bytes()[:4] in (b"\x89PNG", b"<?xm")
        assert ran.out == alone


@pytest.mark.slow
def test_a_sweep_is_drawn_when_it_ran_and_later(planner, tmp_path):
    folder, path = tmp_path / "sweep", tmp_path / "cost.png"
    asked = (
        "sweep", "--model", "llama-7b", "--gpu", "a100,h100", "--gpus", "8,16", "--tokens", "10B",
        "--framework", "megatron-lm", "--space", "small", "--output", folder,
    )  # fmt: skip
    assert planner(*asked, "--plot", path).exit_code == 0
    assert path.is_file()
    for more in (("--picture", "matrix"), ("--value", "time"), ("--where", "num_gpus == 8")):
        path = tmp_path / f"{more[1]}.png"
        ran = planner("sweep", "show", folder, "--plot", path, *more)
        assert ran.exit_code == 0, ran.err
        assert path.is_file()
    ran = planner("sweep", "show", folder, "--plot", path, "--against", folder)
    assert ran.exit_code == 3
    assert "leave out --against" in ran.err
    ran = planner(
        "sweep", "show", folder, "--plot", tmp_path / "none.png", "--where", "gpu == 'b200'"
    )
    assert ran.exit_code == 3
    assert not (tmp_path / "none.png").exists()


@pytest.mark.slow
def test_a_sweep_of_services_has_its_gpus_beside_each_other(planner, tmp_path):
    folder, path = tmp_path / "sweep", tmp_path / "cost.png"
    ran = planner(
        "sweep", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100,h200",
        "--engine", "vllm", "--mode", "aggregated", "--request-rate", "10,20", "--ttft", "1s",
        "--tpot", "40ms",
        "--output", folder, "--plot", path, "--quiet",
    )  # fmt: skip
    assert ran.exit_code == 0, ran.err
    assert path.is_file()
    path = tmp_path / "matrix.png"
    shown = ("sweep", "show", folder, "--plot", path, "--picture", "matrix")
    assert planner(*shown, "--pivot", "gpu,request_rate").exit_code == 0
    assert path.is_file()


def test_validation_draws_predicted_against_measured(planner, runs, tmp_path):
    path = tmp_path / "runs.svg"
    assert planner("validate", runs, "--plot", path, "--quiet").exit_code == 0
    assert path.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.few(6)
@pytest.mark.parametrize("command", [SEARCH, ESTIMATE, SIZE, VALIDATE])
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--plot", "front.pdf"), 8, "give a file that ends in .png or .svg"),
        (("--plot", "-"), 8, "give a file that ends in .png or .svg"),
        (("--plot", "nowhere/front.png"), 8, "there is no folder nowhere; create it first"),
        (("--plot", "a.png", "--picture-width", "12"), 3, "at least 320, not"),
        (("--plot", "a.png", "--picture-width", "99999"), 3, "out of range"),
        (("--dark",), 3, "--dark is for a picture: give --plot FILE.png too"),
    ],
)
def test_faults_are_told_before_the_work_starts(
    planner, tmp_path, monkeypatch, command, options, code, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("planner.workloads.make_plan.Plan.__init__", None)  # no plan is made
    ran = planner(*command, *options)
    assert ran.exit_code == code, ran.err
    assert words in " ".join(ran.err.split())
    assert ran.out == ""
    assert [*tmp_path.iterdir()] == []


def test_a_command_names_its_pictures(planner):
    ran = planner(*SEARCH, "--plot", "a.png", "--picture", "fronts")
    assert ran.exit_code == 3
    assert "`planner search` draws front or parts or roofline" in ran.err
    assert "Did you mean front?" in ran.err


def test_a_flat_efficiency_has_no_kernels(planner, tmp_path):
    path = tmp_path / "a.png"
    command = (*ESTIMATE, "--flops-efficiency", "0.5", "--plot", path)
    ran = planner(*command, "--picture", "roofline")
    assert ran.exit_code == 3
    assert "leave out --flops-efficiency" in ran.err
    assert [*tmp_path.iterdir()] == []
    assert planner(*command).exit_code == 0


def test_two_outputs_are_two_files(planner, tmp_path):
    path = tmp_path / "a.svg"
    ran = planner(*SEARCH, "--plot", path, "--csv", path)
    assert ran.exit_code == 8
    assert "another output has this file" in ran.err


def test_without_matplotlib_the_command_says_what_to_install(planner, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = planner(*SEARCH, "--plot", tmp_path / "a.png")
    assert ran.exit_code == 7
    assert "pip install 'llm-gpu-planner[plot]'" in ran.err


def test_no_picture_is_left_where_nothing_is_feasible(planner, tmp_path):
    ran = planner(*SEARCH, "--set", "tp=7", "--plot", tmp_path / "a.png")
    assert ran.exit_code != 0
    assert [*tmp_path.iterdir()] == []


TIMED = (
    "estimate", "--model", "llama-65b", "--gpus", "256", "--global-batch-size", "256",
    "--set", "tp=8", "--set", "pp=4",
)  # fmt: skip
SERVED = (
    "estimate", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1",
    "--set", "concurrency=8",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("command", [TIMED, SERVED], ids=["train", "serve"])
def test_a_timeline_is_a_trace_or_a_picture_by_its_ending(planner, tmp_path, command):
    plain = planner(*command).out
    for ending in ("json", "png"):
        path = tmp_path / f"step.{ending}"
        ran = planner(*command, "--timeline", path, *(("--dark",) if ending != "json" else ()))
        assert ran.exit_code == 0, ran.err
        assert ran.out == plain
    trace = json.loads((tmp_path / "step.json").read_text(encoding="utf-8"))
    assert trace["otherData"]["plan"]
    assert trace["traceEvents"]
    both = (tmp_path / "parts.png", tmp_path / "both.json")
    assert planner(*command, "--plot", both[0], "--timeline", both[1]).exit_code == 0
    assert all(path.is_file() for path in both)


def test_the_makespan_of_a_trace_is_the_step_time_of_the_estimate(planner, tmp_path):
    step, row = tmp_path / "step.json", tmp_path / "row.json"
    assert planner(*TIMED, "--timeline", step, "--json", row, "--quiet").exit_code == 0
    makespan = json.loads(step.read_text(encoding="utf-8"))["otherData"]["steps"][0]["makespan_s"]
    (predicted,) = json.loads(row.read_text(encoding="utf-8"))["rows"]
    assert makespan == predicted["step_time_s"]


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--timeline", "step.txt"), 8, "ends in .json, .png or .svg"),
        (("--timeline", "nowhere/step.json"), 8, "there is no folder nowhere"),
        (("--timeline", "a.json", "--json", "a.json"), 8, "another output has this file"),
        (("--timeline", "a.png", "--plot", "a.png"), 8, "another output has this file"),
        (("--timeline", "a.png", "--picture-width", "wide"), 3, "--picture-width is a whole"),
        (("--timeline", "a.json", "--flops-efficiency", "0.5"), 3, "leave out --flops-efficiency"),
    ],
)
def test_faults_of_timelines_leave_nothing(planner, tmp_path, monkeypatch, options, code, words):
    monkeypatch.chdir(tmp_path)
    ran = planner(*TIMED, *options)
    assert ran.exit_code == code, ran.err
    assert words in " ".join(ran.err.split())
    assert [*tmp_path.iterdir()] == []


def test_a_trace_needs_no_matplotlib(planner, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert planner(*TIMED, "--timeline", tmp_path / "a.json").exit_code == 0
    assert planner(*TIMED, "--timeline", tmp_path / "a.png").exit_code == 7


@pytest.mark.slow
def test_a_picture_is_drawn_silently_where_no_cache_can_be_written(tmp_path):
    blocked = tmp_path / "file"
    blocked.touch()
    places = ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    known = {name: value for name, value in os.environ.items() if name != "MPLCONFIGDIR"}
    ran = subprocess.run(
        [
            sys.executable, "-m", "planner", "estimate", "--workload", "serve", "--model",
            "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--quiet", "--plot",
            str(tmp_path / "a.svg"),
        ],
        env={**known, **dict.fromkeys(places, str(blocked))},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    assert (ran.stdout, ran.stderr) == ("", "")
    assert (tmp_path / "a.svg").stat().st_size
