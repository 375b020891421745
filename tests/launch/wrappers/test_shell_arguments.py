from __future__ import annotations

from pathlib import Path

import pytest

from planner.documents.shell import read_shell
from planner.launch.read.read_launch import read_launch
from planner.launch.wrappers.read_programs import inner_commands


def _last(text: str, environment: dict[str, str] | None = None) -> list[str | None]:
    return [word.text for word in read_shell(text, environment or {}).commands[-1].words]


@pytest.mark.parametrize(
    "loop",
    [
        'while getopts "m:" option; do case $option in m) MODEL="$OPTARG" ;; esac; done',
        "while [[ $# -gt 0 ]]; do case $1 in -m) MODEL=$2; shift 2 ;; *) exit 1 ;; esac; done",
        'while [ "$1" != "" ]; do MODEL=$1; shift; done',
        'while test -n "$1"; do MODEL=$1; shift; done',
        'while [[ "$1" != "" ]]; do case $1 in -m) shift; MODEL=$1;; esac; shift; done',
    ],
)
def test_a_script_is_read_as_started_without_arguments(loop: str) -> None:
    assert _last(f"MODEL=a/b\n{loop}\nvllm serve $MODEL\n") == ["vllm", "serve", "a/b"]


def test_another_loop_leaves_its_variables_open() -> None:
    text = "SIZE=1\nwhile read line; do SIZE=$line; done < file\nrun $SIZE\n"

    assert _last(text) == ["run", None]


def test_options_of_a_wrapper_may_follow_a_variable_with_more_of_them() -> None:
    script = read_shell('srun $MORE -l "${ARGS[@]}" python -m torchrun train.py --tp 2\n')

    (inner,) = inner_commands(script)

    assert [word.text for word in inner.words][-3:] == ["train.py", "--tp", "2"]


def test_options_of_docker_in_a_variable_end_at_an_image_that_is_known(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "docker run --rm $args -p 8080:80 "
        "ghcr.io/huggingface/text-generation-inference:2.0 --model-id Qwen/Qwen3-8B "
        "--max-concurrent-requests 2 --num-shard 2\n",
        encoding="utf-8",
    )
    found = read_launch(path)
    assert found.target.name == "tgi"
    assert (found.values["concurrency"], found.values["tensor_parallel"]) == (2, 2)


def test_an_image_in_a_variable_stays_the_image(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        "docker run --gpus all $IMAGE vllm serve Qwen/Qwen3-8B -tp 2\n", encoding="utf-8"
    )
    assert read_launch(path).values["tensor_parallel"] == 2


@pytest.mark.parametrize(
    "options", ["--tensor-parallel 4", "--tensor_parallel 4", "--tensor_parallel_size=4", "-tp 4"]
)
def test_abbreviated_options_are_read(options: str, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"vllm serve Qwen/Qwen3-8B {options}\n", encoding="utf-8")
    assert read_launch(path).values["tensor_parallel"] == 4


@pytest.mark.parametrize(("layers", "is_noted"), [("16,32", True), ("24,24", False)])
def test_stages_of_unequal_layers_are_noted(layers: str, is_noted: bool, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        f"VLLM_PP_LAYER_PARTITION={layers} vllm serve Qwen/Qwen3-30B-A3B -pp 2\n", encoding="utf-8"
    )
    launch = read_launch(path)
    notes = " ".join(launch.notes)
    assert launch.values.get("stage_layers") == (32 if is_noted else None)
    assert ("gives the stages 16, 32 layers" in notes) == is_noted
