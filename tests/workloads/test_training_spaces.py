"""What a space of one framework offers another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from planner import Request
from planner.workloads.make_plan import make_plan


def _stages(framework: str, **request: Any) -> list[int]:
    asked = Request(model="llama-7b", num_gpus=16, framework=framework, **request)
    (source,) = make_plan(asked).problem.sources
    assert source.mesh is not None
    found: list[int] = source.mesh.values("zero_stage").tolist()
    return found


@pytest.mark.parametrize(
    ("framework", "stages"),
    [
        ("megatron-lm", [0, 1]),
        ("megatron-bridge", [0, 1]),
        ("fsdp", [0, 2, 3]),
        ("torchtitan", [0, 2, 3]),
        ("deepspeed", [0, 1, 2, 3]),
        ("internevo", [0, 1]),
    ],
)
def test_a_framework_has_its_usual_stage_of_zero(framework: str, stages: list[int]) -> None:
    """The default space is Megatron's, with the stages 0 and 1."""
    assert _stages(framework) == stages


def test_what_the_user_sets_stays() -> None:
    assert _stages("deepspeed", settings={"zero_stage": 1}) == [1]


def test_a_space_of_the_framework_itself_stays(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        'name = "own"\ndescription = "no more"\nframework = "fsdp"\n'
        "[parameters]\nzero_stage = [0, 2]\n",
        encoding="utf-8",
    )
    assert _stages("fsdp", space=str(file)) == [0, 2]
