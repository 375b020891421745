"""``megatron sft`` of ms-swift has Megatron-LM's options and ms-swift's defaults."""

from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

SIZES = "--expert_model_parallel_size 4 --max_length 4096"


def read(folder: Path, text: str) -> dict[str, object]:
    (folder / "run.sh").write_text(text)
    return dict(read_launch(folder / "run.sh").values)


def test_an_adapter_of_each_expert_of_converted_weights(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "NPROC_PER_NODE=8 megatron sft --load Qwen3-30B-A3B-mcore --train_type lora "
        f"--lora_rank 8 --target_modules all-linear {SIZES} --micro_batch_size 1 "
        "--global_batch_size 16 --recompute_granularity full --recompute_method uniform "
        "--recompute_num_layers 1 --sequence_parallel true\n"
    )
    launch = read_launch(tmp_path / "run.sh")
    found = launch.values
    assert (found["model"], found["num_gpus"]) == ("Qwen3-30B-A3B", 8)
    told = ("framework", "adapter", "expert_adapters")
    assert [found[name] for name in told] == ["Megatron-SWIFT", "lora", "each"]
    assert (found["lora_rank"], found["lora_targets"]) == ("8", "all_linear")
    assert (found["expert_parallel"], found["recompute"]) == ("4", "full")
    assert (found["sequence_length"], found["zero_stage"]) == ("4096", "1")
    assert not launch.lines_with_status(Status.UNKNOWN)


def test_its_defaults_and_flags_with_words(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "NNODES=2 NPROC_PER_NODE=8 megatron sft --model Qwen/Qwen3-30B-A3B "
        f"--tensor_model_parallel_size 2 --sequence_parallel false {SIZES}\n",
    )
    assert (found["model"], found["num_gpus"]) == ("Qwen/Qwen3-30B-A3B", 16)
    assert (found["micro_batch_size"], found["global_batch_size"]) == ("1", "16")
    assert (found["recompute"], found["adapter"]) == ("selective", "none")
    assert (found["tensor_parallel"], found["expert_tensor_parallel"]) == ("2", 1)
    assert (found["sequence_parallel"], found["dropout"]) == ("false", "false")


def test_rollouts_and_other_parameters_are_refused(tmp_path: Path) -> None:
    start = f"NPROC_PER_NODE=8 megatron rlhf --model Qwen/Qwen3-8B {SIZES}"
    assert read(tmp_path, f"{start} --rlhf_type dpo\n")["training_objective"] == "dpo"
    on_rollouts = read(tmp_path, f"{start} --rlhf_type grpo --max_length 1024\n")
    assert on_rollouts["training_objective"] == "grpo"
    assert on_rollouts["sequence_length"] == 1024 + 512  # answers of 512 tokens are ms-swift's
    with pytest.raises(SpecError, match="rollouts"):
        read(tmp_path, f"{start} --rlhf_type xpo\n")
    with pytest.raises(SpecError, match=r"run\.sh: ms-swift's train_type longlora"):
        read(tmp_path, f"{start} --train_type longlora\n")


def test_modules_of_prediction_beside_an_adapter_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "NPROC_PER_NODE=4 megatron sft --model zai-org/GLM-4.5-Air --mtp_num_layers 1 "
        f"--tuner_type lora --target_modules linear_qkv linear_proj --freeze_vit false {SIZES}\n"
    )
    found = read_launch(tmp_path / "run.sh")
    told = ("mtp_num_layers", "lora_targets", "freeze_vision_tower")
    assert [found.values.get(name) for name in told] == ["0", "attention", "true"]
    assert "expert_adapters" not in found.values
    assert sum("not predicted" in note for note in found.notes) == 2
