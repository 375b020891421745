"""A flag without a value takes no option behind it as one, with DeepSpeed's file or without."""

from pathlib import Path

import pytest
from rows import each

from planner.documents.shell import Word
from planner.documents.shell.syntax import computed_text
from planner.errors import LaunchError
from planner.launch.read.parse_arguments import read_arguments
from planner.launch.read.read_launch import parse_launches, read_launch
from planner.launch.targets import readers, target_of

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
    ends = [" ".join(f"--{flag} {one}" for one in _OPTIONS) for flag in flags]
    found = list(parse_launches(path, "".join(f"{_WORLD} {end} {beside}\n" for end in ends)))
    for flag, one in zip(flags, found, strict=True):
        names = {name.removeprefix("--"): given for name, given in one.options.items()}
        for option in _OPTIONS[:-1]:
            name, value = option.removeprefix("--").split()
            assert names[name].texts == (value,), (flag, option)


def test_a_bare_flag_of_a_format_beside_deepspeed_says_the_format(tmp_path: Path) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    path = tmp_path / "run.sh"
    path.write_text(f"{_WORLD} --bf16 --per_device_train_batch_size 2 --deepspeed z3.json\n")
    found = read_launch(path).values
    assert (found["micro_batch_size"], found["precision"]) == (2, "bf16")


_LAUNCHERS = (
    "torchrun --nproc_per_node 8 train.py",
    "torchrun --a_new_flag --nproc_per_node 8 train.py",
    "deepspeed --num_gpus 8 train.py",
    "accelerate launch --num_processes 8 train.py",
    "srun python train.py",
    "trl sft",
    "swift sft",
    "mlx_lm.lora",
)
_COMPANIONS = ("", "--deepspeed z3.json", "--fsdp full_shard --fsdp_config fsdp.json")


@pytest.mark.few(1)
@pytest.mark.parametrize("launcher", _LAUNCHERS)
def test_no_launcher_and_no_file_beside_it_lets_a_flag_swallow(
    tmp_path: Path, launcher: str
) -> None:
    (tmp_path / "z3.json").write_text('{"zero_optimization": {"stage": 3}}')
    (tmp_path / "fsdp.json").write_text('{"reshard_after_forward": true}')
    path = tmp_path / "run.sh"
    option = "--per_device_train_batch_size 2"
    ends = [f"--{flag} {option} {beside}" for flag in _flags() for beside in _COMPANIONS]
    text = "".join(f"{launcher} --model_name_or_path a/b {end}\n" for end in ends)
    found = list(parse_launches(path, text))

    assert len(found) == len(ends)
    for one, end in zip(found, ends, strict=True):
        names = {name.removeprefix("--"): given for name, given in one.options.items()}
        assert names["per_device_train_batch_size"].texts == ("2",), end
        assert ("deepspeed" in names) == ("--deepspeed " in end), end


@each("name", [*readers()])
def test_no_option_of_a_reader_takes_a_known_one_as_its_value(name: str) -> None:
    """Each option bare before another, and each behind another, by the parser of the reader.

    Of a program without a list of its options those that are read; of Hydra's words none.
    """
    reader = readers()[name]
    accepted = reader.options
    known = [
        _dashed(each.name)
        for each in accepted.options.values()
        if each.nargs in ("", "1", "?") and accepted.find(_dashed(each.name)) == each
    ]
    known = known or sorted(one for one in reader.table.used if one.startswith("--"))
    for first, second in zip(known, [*known[1:], *known[:1]], strict=True):
        words = [first, second, "7"]
        read = read_arguments([Word.of(computed_text(one), 1, one) for one in words], accepted)
        found = {one.option: one for one in read.unknown} | read.options
        behind = accepted.find(second)
        assert found[second if behind is None else behind.name].texts == ("7",), words


def _dashed(name: str) -> str:
    return name if name.startswith("-") else f"--{name}"


@pytest.mark.parametrize(
    "option",
    [
        *("--use_dora_adapter true", "--freeze_backbone", "--trainable_layers 4"),
        *("--quant_method gptq", "--weight_quantize_algo nf4", "--lisa_activated_layers 1"),
    ],
)
def test_what_decides_what_is_trained_stops_where_it_is_unknown(
    tmp_path: Path, option: str
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(f"{_WORLD} --per_device_train_batch_size 1 {option}\n")
    with pytest.raises(
        LaunchError, match=rf"{option.split()[0]} of train.py decides what is trained"
    ):
        read_launch(path)

    path.write_text(f"{_WORLD} --per_device_train_batch_size 1 --freeze_backbone false --seeds 3\n")
    assert read_launch(path).values["adapter"] == "none"
