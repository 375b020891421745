"""A recipe of Megatron-Bridge that planner does not know gets no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command

from planner.launch.read.read_launch import read_launch

STARTS = (
    "torchrun --nproc_per_node 8 scripts/training/run_recipe.py --recipe RECIPE --dataset mock",
    "./scripts/training/train.sh --nodes 2 --gpus-per-node 8 --recipe RECIPE --mode pretrain",
)
LAYOUT = (
    "model.tensor_model_parallel_size=2 model.pipeline_model_parallel_size=1 "
    "train.micro_batch_size=1 train.global_batch_size=128 dataset.seq_length=8192"
)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("recipe", ["llama3_8b_pretrain_9gpu_h100_bf16_config", "my_own_7b_config"])
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
    start = STARTS[0].replace("RECIPE", "llama3_8b_pretrain_9gpu_h100_bf16_config")
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


NAMED = {
    "scripts/training/train.sh --recipe llama3_8b_pretrain_config": (2, 1, 2, 512),
    "scripts/training/train.sh --recipe llama3_70b_pretrain_32gpu_h100_bf16_config": (
        32,
        4,
        2,
        512,
    ),
    "nemo llm pretrain --factory llama31_70b trainer.num_nodes=8 trainer.devices=8": (
        64,
        4,
        2,
        512,
    ),
    'nemo llm pretrain --factory "llama31_70b(num_nodes=16)"': (128, 4, 2, 512),
}


@pytest.mark.parametrize("command", NAMED)
def test_a_recipe_is_known_by_its_name(command: str, tmp_path: Path) -> None:
    (tmp_path / "t.sh").write_text(f"{command}\n")
    values = read_launch(tmp_path / "t.sh").values

    names = ("num_gpus", "tensor_parallel", "context_parallel", "global_batch_size")
    assert tuple(int(values[name]) for name in names) == NAMED[command]


def test_a_finetuning_factory_is_not_read_as_pretraining(planner: Command, tmp_path: Path) -> None:
    (tmp_path / "t.sh").write_text("nemo llm finetune --factory llama3_70b trainer.devices=8\n")
    result = planner("estimate", "--from", tmp_path / "t.sh", "--gpu", "h100")

    assert result.exit_code
    assert "is not known" in result.err


PROGRAM = """
from nemo.collections import llm
import nemo_run as run
recipe = llm.llama3_8b.pretrain_recipe(name="x", num_nodes=2, num_gpus_per_node=8)
recipe.trainer.strategy.tensor_model_parallel_size = 2
recipe.data.global_batch_size = 128
run.run(recipe)
"""
OBJECTS = """
from nemo import lightning as nl
from nemo.collections import llm
data = llm.MockDataModule(seq_length=1024, global_batch_size=32, micro_batch_size=1)
model = llm.Gemma3Model(llm.Gemma3Config1B())
strategy = nl.MegatronStrategy(tensor_model_parallel_size=2, sequence_parallel=True)
trainer = nl.Trainer(devices=8, num_nodes=2, strategy=strategy)
llm.train(model, data, trainer)
"""


@pytest.mark.parametrize(
    ("program", "expected"),
    [(PROGRAM, (16, 2, 2, 128, "llama3_8b")), (OBJECTS, (16, 2, 1, 32, "gemma3_1b"))],
)
def test_programs_of_nemo(program: str, expected: tuple[object, ...], tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(program)
    values = read_launch(tmp_path / "t.py").values

    names = ("num_gpus", "tensor_parallel", "context_parallel", "global_batch_size")
    assert (*(int(values[name]) for name in names), values["model"]) == expected
