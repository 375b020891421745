"""What a branch, a loop or a function adds to a command line loses nothing of the rest."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from commands import Command

from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

# How a script adds to its options where text alone does not tell whether it does.
FORMS = {
    "if": 'if [ -n "$API_KEY" ]; then ADD; fi',
    "else": 'if [ -n "$A" ]; then echo a; else ADD; fi',
    "elif": 'if [ -n "$A" ]; then :; elif [ -n "$B" ]; then ADD; fi',
    "nested": 'if [ -n "$A" ]; then if [ -n "$B" ]; then ADD; fi; fi',
    "case": 'case "$MODE" in fast) ADD ;; slow|other) echo x ;; *) echo y ;; esac',
    "and": '[ -n "$API_KEY" ] && ADD',
    "or": '[[ -z "$API_KEY" ]] || ADD',
    "for": "for each in $(ls /lora); do ADD; done",
    "while": "while read -r each; do ADD; done < list.txt",
    "function": 'more() { if [ -n "$A" ]; then ADD; fi; }\nmore',
}
ADDED = ("--api-key $API_KEY", "--enforce-eager", "--max-num-seqs 64", "--chat-template $T")
KINDS = {
    "array": (
        "ARGS=(--model Qwen/Qwen3-32B --tensor-parallel-size 2)",
        ("ARGS+=(WORDS)", 'ARGS=("${ARGS[@]}" WORDS)', 'ARGS=(WORDS "${ARGS[@]}")'),
        "ARGS+=(--max-model-len 32768)",
        'vllm serve "${ARGS[@]}" --port 8000',
    ),
    "string": (
        'ARGS="--model Qwen/Qwen3-32B --tensor-parallel-size 2"',
        ('ARGS="$ARGS WORDS"', 'ARGS+=" WORDS"', 'ARGS="WORDS ${ARGS}"'),
        'ARGS="$ARGS --max-model-len 32768"',
        "vllm serve $ARGS --port 8000",
    ),
}


def _script(kind: str, forms: list[tuple[str, str, str]]) -> str:
    first, _, last, command = KINDS[kind]
    lines = [FORMS[form].replace("ADD", way.replace("WORDS", added)) for form, way, added in forms]
    return "\n".join([first, *lines, last, command, ""])


def _requires_what_stands_outside(script: str, folder: Path) -> None:
    (folder / "serve.sh").write_text(script)
    launch = read_launch(folder / "serve.sh")
    read = {name: str(launch.values.get(name)) for name in ("tensor_parallel", "max_model_len")}

    assert read == {"tensor_parallel": "2", "max_model_len": "32768"}, script
    assert launch.values["model"] == "Qwen/Qwen3-32B", script
    assert launch.lines_with_status(Status.OPEN), f"what a branch adds is not listed:\n{script}"


CASES = list(itertools.product(KINDS, FORMS, range(3)))


@pytest.mark.few(8)
@pytest.mark.parametrize(("kind", "form", "way"), CASES)
def test_options_outside_a_branch_are_read(kind: str, form: str, way: int, tmp_path: Path) -> None:
    for added in ADDED:
        script = _script(kind, [(form, KINDS[kind][1][way], added)])
        _requires_what_stands_outside(script, tmp_path)


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(200))
def test_options_outside_several_branches_are_read(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    kind = draw.choice(list(KINDS))
    forms = [
        (draw.choice(list(FORMS)), draw.choice(KINDS[kind][1]), draw.choice(ADDED))
        for _ in range(draw.randint(2, 4))
    ]
    _requires_what_stands_outside(_script(kind, forms), tmp_path)


def test_what_follows_a_branch_is_kept_where_nothing_stood_before_it(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(
        'EXTRA=()\nif [ -n "$K" ]; then EXTRA+=(--api-key $K); fi\n'
        "EXTRA+=(--tensor-parallel-size 2)\n"
        'vllm serve Qwen/Qwen3-32B "${EXTRA[@]}"\n'
    )
    assert read_launch(tmp_path / "serve.sh").values["tensor_parallel"] == 2


def test_values_that_differ_are_open_and_the_rest_is_read(tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(
        'if [ -n "$BIG" ]; then ARGS=(--model Qwen/Qwen3-32B --tensor-parallel-size 4)\n'
        "else ARGS=(--model Qwen/Qwen3-32B --tensor-parallel-size 2); fi\n"
        'vllm serve "${ARGS[@]}" --max-model-len 4096\n'
    )
    launch = read_launch(tmp_path / "serve.sh")

    assert launch.values["model"] == "Qwen/Qwen3-32B"
    assert [line.option for line in launch.lines_with_status(Status.OPEN)] == [
        "--tensor-parallel-size"
    ]


def test_the_screen_says_what_only_some_branches_set(planner: Command, tmp_path: Path) -> None:
    (tmp_path / "serve.sh").write_text(
        _script("array", [("if", "ARGS+=(WORDS)", "--api-key $API_KEY")])
    )
    result = planner("estimate", "--from", tmp_path / "serve.sh", "--gpu", "h100")

    text = " ".join(result.out.split())
    assert "--api-key is set only in some branches" in text
    assert "2 x h100" in text
