"""Launch files with paged optimizers: what moves to the host where the states do not fit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WHOLE = """\
model_name_or_path: meta-llama/Llama-3.1-8B
stage: sft
finetuning_type: full
cutoff_len: 2048
per_device_train_batch_size: 1
pure_bf16: true
optim: {}
"""


def test_states_that_have_no_room_are_paged(planner, tmp_path: Path) -> None:
    """8.03 billion parameters: weights, gradients and states of 2, 2 and 2.03 bytes, 1.0 beside.

    That is 46.1 of 39.4 GiB.
    """
    (tmp_path / "lf.yaml").write_text(WHOLE.format("paged_adamw_8bit"))
    asked = ("--from", str(tmp_path / "lf.yaml"), "--gpu", "a100-sxm-40gb", "--gpus", "1")
    out = re.sub(r"\s+", " ", planner("estimate", *asked).out)
    assert "paged 6.8 GiB of optimizer states, to the host and back in every step" in out
    assert "host memory 6.8 of" in out


def test_states_of_others_are_not_paged(planner, tmp_path: Path) -> None:
    (tmp_path / "lf.yaml").write_text(WHOLE.format("adamw_bnb_8bit"))
    asked = ("--from", str(tmp_path / "lf.yaml"), "--gpu", "a100-sxm-40gb", "--gpus", "1")
    found = planner("estimate", *asked)
    assert "paged" not in found.out.partition("Best change")[0]
    assert found.exit_code == 4


@pytest.mark.slow
def test_what_lacks_more_than_the_states_does_not_fit(planner, tmp_path: Path) -> None:
    (tmp_path / "lf.yaml").write_text(WHOLE.format("paged_adamw_8bit"))
    asked = ("--from", str(tmp_path / "lf.yaml"), "--gpu", "rtx-4090", "--gpus", "1")
    assert planner("estimate", *asked).exit_code == 4


def test_deepspeed_flattens_states_and_pages_none(planner, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    text = WHOLE.format("paged_adamw_8bit") + f"deepspeed: {tmp_path / 'ds.json'}\n"
    (tmp_path / "lf.yaml").write_text(text)
    asked = ("--from", str(tmp_path / "lf.yaml"), "--gpu", "h100-sxm", "--gpus", "8")
    out = re.sub(r"\s+", " ", planner("estimate", *asked).out)
    assert "The states of paged_adamw_8bit are predicted without paging." in out
