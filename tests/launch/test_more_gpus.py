"""``--gpus`` beside a launch file is heeded, or refused with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from make_public_launches import Case, cases

from planner.errors import PlannerError
from planner.launch.read.launch_file import LaunchFile, evaluate_launch, full_row
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import readers

READ = [case for case in cases() if not case.refused and case.target in readers()]
OF_STEPS = ("verl", "openrlhf", "nemo-rl", "slime", "prime-rl")


def _gpus(case: Case, num_gpus: int | None, workload: str | None) -> int:
    """The GPUs of the answer about a file."""
    asked = {**case.given, "gpu": "b200"}
    asked |= {} if num_gpus is None else {"num_gpus": str(num_gpus)}
    question = LaunchFile(path=case.path, answers=asked, workload=workload).question()
    _, found, _ = evaluate_launch(question.request)
    return int(str(full_row(found)["num_gpus"]))


def _is_heeded(case: Case, workload: str | None) -> None:
    try:
        own = _gpus(case, None, workload)
    except PlannerError:
        pytest.skip("it leaves more open than its GPUs")
    wanted = 2 * own
    try:
        assert _gpus(case, wanted, workload) == wanted
    except PlannerError as error:
        message = str(error)
        assert re.search(rf"\b{wanted}\b|\b{own}\b", message), message
        assert "0 configurations" not in message


@pytest.mark.few(6)
@pytest.mark.parametrize("case", READ, ids=lambda case: case.name)
def test_twice_the_gpus_of_a_file_are_heeded_or_refused(case: Case) -> None:
    _is_heeded(case, None)


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "case", [case for case in READ if case.target in OF_STEPS], ids=lambda case: case.name
)
def test_twice_the_gpus_of_a_step_are_heeded_or_refused(case: Case) -> None:
    _is_heeded(case, "rl")


SLIME = (
    "python3 train.py {more} --hf-checkpoint Qwen/Qwen3-8B --rollout-batch-size 32 "
    "--n-samples-per-prompt 8 --rollout-max-response-len 4096 --global-batch-size 256 "
    "--tensor-model-parallel-size 2 --sequence-parallel\n"
)


@pytest.mark.parametrize(
    ("more", "gpus", "workload", "train", "all_gpus"),
    [
        ("--colocate", None, "train", None, 8),
        ("--colocate", "4", "train", None, 4),
        ("--colocate --actor-num-nodes 2", None, "train", None, 16),
        ("--colocate --actor-num-nodes 2", "32", "train", None, 32),
        ("--colocate --actor-num-nodes 2 --actor-num-gpus-per-node 4", None, "rl", None, 8),
        ("--actor-num-nodes 1 --rollout-num-gpus 8", None, "rl", 8, 16),
        ("--actor-num-nodes 1 --rollout-num-gpus 8", "32", "rl", 16, 32),
        ("--actor-num-nodes 1", "24", "rl", 8, 24),
    ],
)
def test_slime_has_the_gpus_that_are_named(
    more: str, gpus: str | None, workload: str, train: int | None, all_gpus: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SLIME.format(more=more), encoding="utf-8")
    values = read_launch(path, num_gpus=gpus, workload=workload).values
    assert int(values["num_gpus"]) == all_gpus
    assert values.get("train_gpus") == train


def test_slime_says_why_gpus_cannot_be_split(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(SLIME.format(more="--rollout-num-gpus 8"), encoding="utf-8")
    with pytest.raises(PlannerError, match="8 train and 8 generate, and 20 cannot be split so"):
        read_launch(path, num_gpus="20", workload="rl")
