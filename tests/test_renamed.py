"""Old names of options, columns and keys are read, with one warning that names the new name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from commands import Command
from rows import each

from planner.base.version import __version__
from planner.errors import SearchSpaceError, SpecError
from planner.question import renamed
from planner.question.parse_values import full_name
from planner.question.terms import terms_of
from planner.specs.catalogue import load_framework
from planner.specs.spec_files import Column, read_records, read_toml
from planner.sweeps.columns import check_column
from planner.sweeps.find_plan import make_sweep, read_plan
from planner.sweeps.plan import SweepPlan
from planner.sweeps.sweep_folder import Sweep
from planner.validation.run_tables import SHIPPED, read_runs
from planner.workloads.build_request import make_request
from planner.workloads.saved_plan import SavedPlan

OPTIONS = {"--old-gpus": "--gpus", "--old-length": "--sequence-length"}
COLUMNS = {"old_gpu": "gpu", "old_model": "model"}
KEYS = {
    "old_length": "sequence_length",
    "old_batch": "micro_batch_size",
    "old_price": "price",
    "execution.old_passes": "execution.loss_passes",
}
SHIPPED_ROWS = [*renamed.renamed_names().values()]


@pytest.fixture(autouse=True)
def renames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table with rows of each kind."""
    kinds = {"option": OPTIONS, "column": COLUMNS, "key": KEYS}
    rows = {
        (kind, old): {"new": new, "until": "9.0.0"}
        for kind, names in kinds.items()
        for old, new in names.items()
    }
    monkeypatch.setattr(renamed, "renamed_names", lambda: rows)
    renamed._warn.cache_clear()


def version_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


@each("row", SHIPPED_ROWS)
def test_shipped_rows_are_complete_and_end_in_a_later_version(row: Mapping[str, str]) -> None:
    assert row["kind"] in ("option", "column", "key")
    assert row["old"] != row["new"]
    assert version_of(row["since"]) < version_of(row["until"])
    assert version_of(row["until"]) > version_of(__version__), "its time is over: remove the row"
    if row["kind"] == "key":
        assert row["old"].rpartition(".")[0] == row["new"].rpartition(".")[0]


def text_file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def space(folder: Path) -> object:
    text = 'name = "s"\ndescription = ""\nframework = "x"\n[parameters]\nold_batch = [1, 2]\n'
    return read_toml(text_file(folder, "space.toml", text))["parameters"]


def sweep_file(folder: Path) -> object:
    text = 'model = "llama-7b"\nnum_gpus = 8\nold_length = 4096\n[settings]\nold_batch = 2\n'
    (work,) = read_plan(str(text_file(folder, "sweep.toml", text))).works
    return work.axes["sequence_length"], dict(work.settings)


def sweep_of_kinds_of_work(folder: Path) -> object:
    text = 'model = "llama-7b"\nnum_gpus = 8\n[[work]]\nold_length = 4096\n'
    (work,) = read_plan(str(text_file(folder, "works.toml", text))).works
    return work.axes["sequence_length"]


def begun_sweep(_: Path) -> object:
    made = make_sweep({"model": "llama-7b", "num_gpus": 8, "sequence_length": 4096})
    table = json.loads(json.dumps(made.to_dict()).replace('"sequence_length"', '"old_length"'))
    return SweepPlan.of_dict(table).works[0].axes["sequence_length"]


def prices(folder: Path) -> object:
    path = text_file(folder, "prices.csv", "OLD_GPU,price\nh100,2\n")
    return read_records(path, [Column("gpu", needed=True), Column("price")], lambda row: row["gpu"])


def runs(folder: Path) -> object:
    head, first = SHIPPED.read_text(encoding="utf-8").splitlines()[:2]
    names = ["old_gpu" if name == "gpu" else name for name in head.split(",")]
    return read_runs(text_file(folder, "runs.csv", f"{','.join(names)}\n{first}\n")).columns.count(
        "gpu"
    )


@each(
    "read, answer, olds",
    [
        (space, {"micro_batch_size": [1, 2]}, ["old_batch"]),
        (sweep_file, ((4096,), {"micro_batch_size": 2}), ["old_length", "old_batch"]),
        (sweep_of_kinds_of_work, (4096,), ["old_length"]),
        (begun_sweep, (4096,), ["old_length"]),
        (prices, ["h100"], ["old_gpu"]),
        (runs, 1, ["old_gpu"]),
        (lambda _: check_column("old_gpu", ["gpu"], "--columns"), "gpu", ["old_gpu"]),
        (
            lambda _: full_name("old-batch", terms_of("train", "parameter")),
            "micro_batch_size",
            ["old_batch"],
        ),
        (
            lambda _: make_request({"model": "llama-7b", "old_length": 8192}).sequence_length,
            8192,
            ["old_length"],
        ),
    ],
)
def test_old_names_are_read_with_one_warning_each(
    read: Callable[[Path], object], answer: object, olds: list[str], tmp_path: Path
) -> None:
    renamed._warn.cache_clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            assert read(tmp_path) == answer
    new = {**COLUMNS, **KEYS}
    texts = [str(one.message) for one in caught]
    assert len(texts) == len(olds)
    for old, text in zip(olds, texts, strict=True):
        assert f" {old} is now {new[old]}; planner 9.0.0 will not read the old name." in text


def test_a_profile_that_extends_another_is_read_with_the_old_key(tmp_path: Path) -> None:
    text = (
        'name = "mine"\nextends = "megatron-lm"\n[sources]\nold_length = "measured"\n[execution]\n'
        'old_passes = { value = 3, unit = "1", source = "old_length" }\n'
    )
    with pytest.warns(FutureWarning, match=r"execution.old_passes is now execution.loss_passes"):
        profile = load_framework(str(text_file(tmp_path, "mine.toml", text))).spec
    assert profile.execution.loss_passes == 3


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_plan_file_with_old_keys_is_the_same_plan(planner: Command, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    planner("search", "--model", "llama-7b", "--gpus", "8", "--quiet", "--save-plan", path)
    text = path.read_text(encoding="utf-8")
    old = text.replace("sequence_length", "old_length").replace("micro_batch_size", "old_batch")
    assert old.count("old_") == 2
    plan = SavedPlan.read(path)
    assert SavedPlan.read(text_file(tmp_path, "old.toml", old)) == plan
    old_json = plan.to_json().replace("sequence_length", "old_length")
    assert SavedPlan.read(text_file(tmp_path, "old.json", old_json)) == plan


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_row_of_a_result_with_an_old_column_is_the_same_plan(
    planner: Command, tmp_path: Path
) -> None:
    from planner.sweeps.find_plan import plan_of_file

    path = tmp_path / "front.csv"
    planner(
        "search", "--model", "llama-7b", "--gpus", "8", "--price", "5", "--quiet", "--csv", path
    )
    plan = plan_of_file(path, 1)
    head, _, rows = path.read_text(encoding="utf-8").partition("\n")
    names = ["old_model" if name == "model" else name for name in head.split(",")]
    text_file(tmp_path, "front.csv", f"{','.join(names)}\n{rows}")
    manifest = tmp_path / "front.manifest.json"
    words = manifest.read_text(encoding="utf-8")
    assert '"price"' in words
    text_file(tmp_path, manifest.name, words.replace('"price"', '"old_price"'))
    assert plan_of_file(path, 1) == plan


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_a_sweep_with_an_old_column_has_the_same_rows(planner: Command, tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    planner("sweep", "run", "--model", "llama-7b", "--gpus", "8", "--output", folder)
    columns, rows = Sweep(folder).columns, [*Sweep(folder).rows()]
    assert rows[0]["model"] == "LLaMA 7B"
    path = folder / "scenarios.csv"
    text = path.read_text(encoding="utf-8")
    text_file(folder, path.name, text.replace(",model,", ",old_model,", 1))
    assert Sweep(folder).columns == columns
    assert [row["model"] for row in Sweep(folder).rows()] == ["LLaMA 7B"]


@each("words", [["--old-gpus", "8"], ["--old-gpus=8"]])
def test_an_old_option_is_read(words: list[str], planner: Command) -> None:
    renamed._warn.cache_clear()
    with pytest.warns(FutureWarning, match="The option --old-gpus is now --gpus; planner 9"):
        ran = planner("estimate", "--model", "llama-7b", *words)
    assert ran == replace(planner("estimate", "--model", "llama-7b", "--gpus", "8"), err=ran.err)


@each("kind, name", [("key", "gpu"), ("option", "--gpus"), ("column", "old_batch")])
def test_other_names_stay(kind: renamed.Kind, name: str) -> None:
    assert renamed.current_name(kind, name) == name


def test_a_name_whose_new_name_is_not_valid_stays_unknown() -> None:
    assert renamed.current_name("option", "--old-gpus", {"--model"}) == "--old-gpus"
    with pytest.raises(SearchSpaceError, match="old_gpu"):
        check_column("old_gpu", ["model"], "--columns")


def test_a_key_with_both_names_is_refused(tmp_path: Path) -> None:
    text = "model = 'llama-7b'\nnum_gpus = 8\nold_length = 1\nsequence_length = 2\n"
    with (
        pytest.warns(FutureWarning),
        pytest.raises(SpecError, match=r"both.toml: old_length is the old name of sequence_length"),
    ):
        read_plan(str(text_file(tmp_path, "both.toml", text)))


def test_a_column_with_both_names_is_refused(tmp_path: Path) -> None:
    path = text_file(tmp_path, "both.csv", "gpu,old_gpu\nh100,a100\n")
    with pytest.warns(FutureWarning), pytest.raises(SpecError, match="gpu is there twice"):
        read_records(path, [Column("gpu")], lambda row: row)


def test_the_command_prints_one_warning_to_stderr(tmp_path: Path) -> None:
    table = "[rollouts]\nown_runs = 1\n"
    name = 'name = "mine"\nextends = "verl"\n'
    profile = text_file(tmp_path, "mine.toml", name + table)
    ran = subprocess.run(
        [sys.executable, "-m", "planner", "specs", "validate", "frameworks", str(profile)],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        check=False,
    )
    assert "Warning" not in ran.stdout
    assert ran.stderr == (
        "Warning: The key rollouts.own_runs is now rollouts.calibration_runs; planner 2.0.0 will "
        "not read the old name.\n"
    )
