"""A recipe of Megatron-Bridge that planner does not know gets no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

STARTS = (
    "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe RECIPE --dataset mock",
    "./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --recipe RECIPE --mode pretrain",
)
LAYOUT = (
    "model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=1 "
    "train.micro_batch_size=1 train.global_batch_size=128 dataset.seq_length=8192"
)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("recipe", ["llama3_8b_pretrain_config", "my_own_7b_config"])
def test_an_unknown_recipe_gets_no_verdict(
    start: str, recipe: str, planner: Command, tmp_path: Path
) -> None:
    (tmp_path / "t.sh").write_text(start.replace("RECIPE", recipe) + "\n")
    result = planner("estimate", "--from", tmp_path / "t.sh", "--gpu", "h100")

    assert result.exit_code
    assert f"the recipe {recipe} is not known" in result.err
    assert "--global-batch-size" in result.err
    assert "step time" not in result.out


def test_what_the_user_or_the_file_sets_is_enough(planner: Command, tmp_path: Path) -> None:
    start = STARTS[0].replace("RECIPE", "llama3_8b_pretrain_config")
    (tmp_path / "whole.sh").write_text(f"{start} {LAYOUT}\n")
    (tmp_path / "t.sh").write_text(f"{start}\n")
    given = [
        *("--set", "tp=2", "--set", "pp=1", "--set", "micro_batch_size=1"),
        *("--global-batch-size", "128", "--sequence-length", "8192"),
    ]
    whole = planner("estimate", "--from", tmp_path / "whole.sh", "--gpu", "h100")
    part = planner("estimate", "--from", tmp_path / "t.sh", "--gpu", "h100", *given)

    assert whole.exit_code == part.exit_code == 0
    times = [text.partition("step time")[2].split("\n")[0] for text in (whole.out, part.out)]
    assert times[0] == times[1]
