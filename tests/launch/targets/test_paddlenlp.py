"""PaddleNLP's arguments are the Trainer's with degrees, stages and adapters of its own."""

import json
from pathlib import Path

import pytest

from planner.errors import LaunchError, SpecError
from planner.launch.imported import Imported
from planner.launch.option_lines import Status
from planner.launch.read import read_launch

CONFIG = {
    "model_name_or_path": "meta-llama/Meta-Llama-3-8B",
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "max_length": 2048,
    "bf16": True,
    "tensor_parallel_degree": 2,
    "pipeline_parallel_degree": -1,
    "sharding": "stage1",
}
_START = 'python -u -m paddle.distributed.launch --nnodes 2 --devices "0,1,2,3"'


def read(folder: Path, name: str = "a.json", **more: object) -> Imported:
    kept = {key: value for key, value in {**CONFIG, **more}.items() if value is not None}
    (folder / name).write_text(json.dumps(kept))
    return read_launch(folder / name)


def test_its_launcher_counts_devices(tmp_path: Path) -> None:
    """8 GPUs: 4 ranks of a pair each take 2 sequences 4 times."""
    read(tmp_path, lora=True)
    (tmp_path / "run.sh").write_text(f"{_START} run_finetune.py config/a.json\n")
    found = read_launch(tmp_path / "run.sh")
    told = ("num_gpus", "tensor_parallel", "pipeline_parallel", "global_batch_size", "zero_stage")
    assert [found.values[name] for name in told] == [8, 2, 1, 2 * 4 * 4, 1]
    assert (found.values["adapter"], found.values["framework"]) == ("lora", "Megatron-Bridge")


def test_options_of_a_command_come_before_its_file(tmp_path: Path) -> None:
    words = " ".join(f"--{name} {value}" for name, value in CONFIG.items())
    more = "--sharding 'stage2 offload' --recompute true --recompute_granularity core_attn"
    (tmp_path / "run.sh").write_text(f"{_START} run_pretrain.py {words} {more}\n")
    found = read_launch(tmp_path / "run.sh")
    told = ("training_objective", "recompute", "offload", "sequence_length")
    assert [str(found.values[name]) for name in told] == ["pretrain", "selective", "optimizer",
                                                          "2048"]  # fmt: skip
    assert not found.of(Status.UNKNOWN)


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ({"recompute": True}, "recompute", "full"),
        ({"recompute": False, "recompute_granularity": "full"}, "recompute", "none"),
        ({"fine_tuning": "full", "recompute_granularity": "full"}, "recompute", "full"),
        ({"sharding": "stage3"}, "zero_stage", 3),
        ({"sharding": ""}, "zero_stage", 0),
        ({"lora": True, "weight_quantize_algo": "nf4"}, "adapter", "qlora"),
        ({"fine_tuning": "LoRA"}, "adapter", "lora"),
        ({"prefix_tuning": True}, "virtual_tokens", 128),
        ({"use_flash_attention": False}, "flash_attention", False),
        ({"use_flash_attention": True}, "flash_attention", True),
        ({"_attn_implementation": "flashmask"}, "flash_attention", True),
        ({"use_fused_head_and_loss_fn": True}, "loss_kernel", "linear"),
        ({"stage": "VL-SFT"}, "training_objective", "sft"),
        ({"stage": "DPO"}, "training_objective", "dpo"),
        ({"input_dir": "./data"}, "training_objective", "pretrain"),
        ({"rl_algorithm": "grpo", "kl_loss_coeff": 0.001}, "training_objective", "grpo"),
        ({"rl_algorithm": "grpo", "kl_loss_coeff": 0.0}, "training_objective", "dapo"),
        ({"sep_parallel_degree": 4}, "cp_comm_type", "a2a"),
        ({"sep_parallel_degree": 4}, "context_parallel", 4),
        ({"expert_parallel_degree": 8}, "expert_parallel", 8),
        ({"compute_type": "fp8"}, "precision", "fp8"),
        ({"compute_type": "wint4/8", "bf16": None}, "precision", "bf16"),
        ({"sharding_parallel_degree": 8}, "num_gpus", 2 * 8),
    ],
)
def test_a_key_says_what_it_means(
    tmp_path: Path, more: dict[str, object], name: str, value: object
) -> None:
    assert read(tmp_path, **more).values[name] == value


def test_its_file_may_be_called_after_what_it_trains(tmp_path: Path) -> None:
    assert read(tmp_path, "kto_argument.json").values["training_objective"] == "kto"


def test_what_is_no_low_rank_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="lokr"):
        read(tmp_path, lokr=True)


def test_its_degrees_divide_the_gpus(tmp_path: Path) -> None:
    read(tmp_path, tensor_parallel_degree=3)
    (tmp_path / "run.sh").write_text(f"{_START} run_finetune.py a.json\n")
    with pytest.raises(LaunchError, match="multiples of 3"):
        read_launch(tmp_path / "run.sh")
