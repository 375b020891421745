from __future__ import annotations

import pytest

from planner.documents.shell import read_shell
from planner.launch.launchers import inner_commands


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
