"""A flag without a value takes no option behind it as one, with DeepSpeed's file or without."""

from pathlib import Path

import pytest

from planner.launch.read import read_launch
from planner.launch.targets import target_of

_OPTIONS = (
    "--per_device_train_batch_size 2",
    "--gradient_accumulation_steps 4",
    "--max_length 4096",
    "--learning_rate 1e-5",
    "--gradient_checkpointing",
)
_WORLD = "torchrun --nproc_per_node 8 train.py --model_name_or_path meta-llama/Llama-3.1-8B"


def _flags() -> list[str]:
    known = target_of("transformers").options.options
    return [name for name, one in known.items() if one.type.startswith("bool") and "." not in name]


@pytest.mark.parametrize("beside", ["", "--deepspeed z3.json"])
def test_no_flag_swallows_the_option_behind_it(tmp_path: Path, beside: str) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    path = tmp_path / "run.sh"
    flags = _flags()
    assert "bf16" in flags
    for flag in flags:
        path.write_text(f"{_WORLD} {' '.join(f'--{flag} {one}' for one in _OPTIONS)} {beside}\n")
        options = read_launch(path).found.options
        for option in _OPTIONS[:-1]:
            name, value = option.removeprefix("--").split()
            assert options[name].texts == (value,), (flag, option)


def test_a_bare_flag_of_a_format_beside_deepspeed_says_the_format(tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    path = tmp_path / "run.sh"
    path.write_text(f"{_WORLD} --bf16 --per_device_train_batch_size 2 --deepspeed z3.json\n")
    found = read_launch(path).values
    assert (found["micro_batch_size"], found["precision"]) == (2, "bf16")
