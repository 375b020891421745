from __future__ import annotations

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
    from planner.validation.runs import SHIPPED

    lines = SHIPPED.read_text(encoding="utf-8").splitlines(keepends=True)
    path = tmp_path_factory.mktemp("runs") / "runs.csv"
    path.write_text("".join(lines[:30]), encoding="utf-8")
    return path


@pytest.mark.parametrize("ending", ["png", "SVG"])
@pytest.mark.parametrize(
    ("command", "pictures"),
    [(SEARCH, ("front", "parts")), (ESTIMATE, ("parts",)), (SIZE, ("cost",))],
    ids=["search", "estimate", "size"],
)
def test_every_picture_of_a_command_is_drawn(planner, tmp_path, command, pictures, ending):
    for picture in pictures:
        path = tmp_path / f"{picture}.{ending}"
        ran = planner(*command, "--plot", path, "--picture", picture, "--dark")
        assert ran.exit_code == 0, ran.err
        assert path.read_bytes()[:4] in (b"\x89PNG", b"<?xm")
        assert ran.out == planner(*command).out


def test_a_sweep_is_drawn_when_it_ran_and_later(planner, tmp_path):
    folder, path = tmp_path / "sweep", tmp_path / "cost.png"
    asked = (
        "sweep", "--model", "llama-7b", "--gpu", "a100,h100", "--gpus", "8,16", "--tokens", "10B",
        "--framework", "megatron-lm", "--space", "small", "--output", folder,
    )  # fmt: skip
    assert planner(*asked, "--plot", path).exit_code == 0
    assert path.is_file()
    for more in (("--picture", "matrix"), ("--value", "time"), ("--where", "gpu=h100")):
        path = tmp_path / f"{more[1]}.png"
        ran = planner("sweep", "show", folder, "--plot", path, *more)
        assert ran.exit_code == 0, ran.err
        assert path.is_file()
    ran = planner("sweep", "show", folder, "--plot", path, "--against", folder)
    assert ran.exit_code == 3
    assert "leave out --against" in ran.err
    ran = planner("sweep", "show", folder, "--plot", tmp_path / "none.png", "--where", "gpu=b200")
    assert ran.exit_code == 3
    assert not (tmp_path / "none.png").exists()


def test_validation_draws_predicted_against_measured(planner, runs, tmp_path):
    path = tmp_path / "runs.svg"
    assert planner("validate", runs, "--plot", path, "--quiet").exit_code == 0
    assert path.read_text(encoding="utf-8").startswith("<?xml")


@pytest.mark.parametrize("command", [SEARCH, ESTIMATE, SIZE, VALIDATE])
@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--plot", "front.pdf"), 8, "give a file that ends in .png or .svg"),
        (("--plot", "-"), 8, "give a file that ends in .png or .svg"),
        (("--plot", "nowhere/front.png"), 8, "there is no folder nowhere; create it first"),
        (("--plot", "a.png", "--picture-width", "12"), 3, "at least 320, not"),
        (("--plot", "a.png", "--picture-width", "99999"), 3, "beyond"),
        (("--dark",), 3, "--dark is of a picture: give --plot FILE.png, too"),
    ],
)
def test_faults_are_told_before_the_work_starts(
    planner, tmp_path, monkeypatch, command, options, code, words
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("planner.plan.Plan.__init__", None)  # no plan is made
    ran = planner(*command, *options)
    assert ran.exit_code == code, ran.err
    assert words in " ".join(ran.err.split())
    assert ran.out == ""
    assert [*tmp_path.iterdir()] == []


def test_a_command_names_its_pictures(planner):
    ran = planner(*SEARCH, "--plot", "a.png", "--picture", "fronts")
    assert ran.exit_code == 3
    assert "`planner search` draws front or parts" in ran.err
    assert "Did you mean front?" in ran.err


def test_two_outputs_are_two_files(planner, tmp_path):
    path = tmp_path / "a.svg"
    ran = planner(*SEARCH, "--plot", path, "--csv", path)
    assert ran.exit_code == 8
    assert "another output goes there" in ran.err


def test_without_matplotlib_the_command_says_what_to_install(planner, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    ran = planner(*SEARCH, "--plot", tmp_path / "a.png")
    assert ran.exit_code == 7
    assert "pip install 'llm-gpu-planner[plot]'" in ran.err


def test_no_picture_is_left_where_nothing_is_feasible(planner, tmp_path):
    ran = planner(*SEARCH, "--set", "tp=7", "--plot", tmp_path / "a.png")
    assert ran.exit_code != 0
    assert [*tmp_path.iterdir()] == []
