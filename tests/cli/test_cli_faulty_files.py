"""Files of ours that somebody changed, and sizes in launch files that none can be."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ASKED = ("--model", "llama-7b", "--gpus", "8", "--gpu", "h100", "--space", "small")
RUN = (
    "torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 32 --hidden-size 4096 --seq-length "
    "2048 --num-attention-heads 32 --max-position-embeddings 2048 --micro-batch-size 1 "
    "--global-batch-size 64 --vocab-size 32000 --bf16 {}\n"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from planner.__main__ import run

    folder = tmp_path_factory.mktemp("made")
    files = ("--save-plan", folder / "plan.json", "--csv", folder / "r.csv")
    assert run(["search", *ASKED, "--quiet", *map(str, files), "--json", f"{folder}/r.json"]) == 0
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: plan.update(parameters=True), "there is no table [parameters]"),
        (lambda plan: plan.update(answers=[1]), "there is no table [answers]"),
        (lambda plan: plan.update(specs=3), "[specs] is not a table of digests"),
        (lambda plan: plan.update(more=1), "more is not part of a plan"),
        (lambda plan: plan["parameters"].update(tensor_parallel=[1, 2]), "is one word or number"),
        (lambda plan: plan["parameters"].update(tensor_parallel=None), "is one word or number"),
        (lambda plan: plan["parameters"].update(zero_stage="x"), "parameters.zero_stage is one of"),
        (lambda plan: plan["answers"].update(sequence_length=0.5), "answers.sequence_length is a"),
        (lambda plan: plan["answers"].update(model=10**18), "answers.model is text"),
    ],
)
def test_a_plan_is_read_by_the_table_of_terms(planner, made, tmp_path, change, said):
    plan = json.loads((made / "plan.json").read_text())
    change(plan)
    (tmp_path / "p.json").write_text(json.dumps(plan))
    for words in (("estimate", "--plan"), ("report", "--markdown", "-")):
        ran = planner(*words, tmp_path / "p.json")
        assert (ran.exit_code, said in ran.err, "p.json: " in ran.err) == (2, True, True), ran.err


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda found: found.update(rows=3), 6),
        (lambda found: found["rows"].insert(0, [1]), 6),
        (lambda found: found.update(manifest=[1]), 6),
        (lambda found: found["manifest"].update(answers=3), 6),
        (lambda found: found["rows"][0].update(tensor_parallel="many"), 2),
        (lambda found: found["rows"][0].update(tensor_parallel={}), 2),
    ],
)
def test_a_row_of_a_result_is_read_by_the_table_of_terms(planner, made, tmp_path, change, code):
    found = json.loads((made / "r.json").read_text())
    change(found)
    (tmp_path / "r.json").write_text(json.dumps(found))
    ran = planner("estimate", "--from", tmp_path / "r.json", "--row", 1)
    assert (ran.exit_code, "r.json: " in ran.err) == (code, True), ran.err


def test_rows_of_csv_are_counted_and_found(planner, made):
    number = len((made / "r.csv").read_text().splitlines()) - 1
    for row in (1, number):
        assert planner("estimate", "--from", made / "r.csv", "--row", row).exit_code == 0
    for row in (0, number + 1):
        ran = planner("estimate", "--from", made / "r.csv", "--row", row)
        assert f"r.csv: has rows 1 to {number}, not {row}" in ran.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--pipeline-model-parallel-size 0", "--pipeline-model-parallel-size '0' is not a number"),
        ("--tensor-model-parallel-size 1" + "0" * 12, "is not a number from 1 to 1,000,000,000"),
        ("--num-attention-heads 1" + "0" * 12, "num_attention_heads must be at most 1000000000"),
        ("--num-attention-heads 0", "does not specify the model"),
    ],
)
def test_sizes_in_a_launch_file_are_such(planner, tmp_path, options, said):
    (tmp_path / "run.sh").write_text(RUN.format(options))
    ran = planner("estimate", "--from", tmp_path / "run.sh", "--gpu", "h100")
    assert ran.exit_code in (2, 6)
    assert "run.sh" in ran.err
    assert said in ran.err


def test_odd_paths_are_refused_in_words(planner, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    os.mkfifo("pipe.toml")
    for path in ("x" * 300, "loop", "a\0b", "loop/x", "pipe.toml", "."):
        for words in (
            ("specs", "list", "gpus", "--specs"),
            ("estimate", "--plan"),
            ("estimate", "--from"),
            ("validate", "--plan", "plan.toml", "--log"),
            ("report", "-o", "x.html"),
            ("estimate", *ASKED[:6], "--prices"),
            ("estimate", *ASKED[:6], "--json"),
        ):
            # A pipe that is written waits for a reader, as it should.
            is_fine = (path == "." and "--specs" in words) or ("--json" in words and "pipe" in path)
            if not is_fine:
                ran = planner(*words, path)
                assert ran.exit_code in (2, 3, 6, 8), (words, path, ran.err)


def test_one_thing_is_not_compared_with_itself(planner):
    ran = planner("compare", "h100", "h100")
    assert (ran.exit_code, "h100 is named twice" in ran.err) == (3, True)
