"""``swift sft`` trains adapters, repeats layers and starts its own processes unless told."""

from pathlib import Path

import pytest

from planner.errors import SpecError
from planner.launch.read.option_lines import Status
from planner.launch.read.read_launch import read_launch

MODEL = "--model Qwen/Qwen2.5-7B-Instruct --max_length 4096"
BATCH = "--per_device_train_batch_size 1 --gradient_accumulation_steps 8"


def read(folder: Path, text: str) -> dict[str, object]:
    (folder / "run.sh").write_text(text)
    return dict(read_launch(folder / "run.sh").values)


def test_an_adapter_of_rank_8_over_zero_2_on_four_gpus(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        f"NPROC_PER_NODE=4 swift sft {MODEL} --train_type lora --lora_rank 8 --deepspeed zero2 "
        f"{BATCH}\n",
    )
    assert (found["adapter"], found["lora_rank"]) == ("lora", 8)
    assert (found["lora_targets"], found["zero_stage"], found["num_gpus"]) == ("all_linear", 2, 4)
    assert (found["recompute"], found["precision"]) == ("full", "bf16")
    assert (found["global_batch_size"], found["sequence_length"]) == (32, 4096)


@pytest.mark.parametrize("word", ["--train_type", "--sft_type", "--tuner_type"])
def test_all_is_trained_where_any_release_of_it_says_so(tmp_path: Path, word: str) -> None:
    text = f"NNODES=2 NPROC_PER_NODE=8 swift sft {MODEL} {word} full --deepspeed zero3_offload\n"
    found = read(tmp_path, text)
    assert (found["adapter"], found["zero_stage"], found["num_gpus"]) == ("none", 3, 16)
    assert (found["framework"], found["offload"]) == ("DeepSpeed", "optimizer_weights")


def test_its_defaults_are_told(tmp_path: Path) -> None:
    """A micro-batch of 1, and 16 samples a step: four micro-batches on each of four GPUs."""
    (tmp_path / "run.sh").write_text(f"NPROC_PER_NODE=4 swift sft {MODEL} --dataset own.jsonl\n")
    found = read_launch(tmp_path / "run.sh")
    assert found.values["global_batch_size"] == 16
    assert found.values["micro_batch_size"] == 1
    told = {"adapter", "lora_rank", "lora_targets", "recompute", "micro_batch_size", "precision"}
    assert told <= set(found.defaults)
    assert not found.lines_with_status(Status.UNKNOWN)


def test_words_of_its_own_are_read(tmp_path: Path) -> None:
    more = "--quant_bits 4 --attn_impl sdpa --packing true --rlhf_type dpo"
    found = read(tmp_path, f"NPROC_PER_NODE=2 swift rlhf {MODEL} {more}\n")
    assert (found["adapter"], found["attention_kernel"]) == ("qlora", "sdpa")
    assert found["training_objective"] == "dpo"


@pytest.mark.parametrize(
    ("before", "more", "split"),
    [
        ("CUDA_VISIBLE_DEVICES=0,1", "", (True, 2, 8)),
        ("CUDA_VISIBLE_DEVICES=0,1 NPROC_PER_NODE=2", "", (None, None, 16)),
        ("CUDA_VISIBLE_DEVICES=0,1", "--deepspeed zero2", (None, None, 16)),
        ("CUDA_VISIBLE_DEVICES=0", "", (None, None, 8)),
    ],
)
def test_layers_are_spread_over_the_gpus_of_one_process(
    tmp_path: Path, before: str, more: str, split: tuple[object, ...]
) -> None:
    """swift/model/utils.py, get_default_device_map; a batch of 1 x 8 for each process."""
    found = read(tmp_path, f"{before} swift sft {MODEL} {BATCH} {more}\n")
    names = ("layer_split", "pipeline_parallel", "global_batch_size")
    assert tuple(found.get(name) for name in names) == split


def test_kernels_of_unsloth_come_with_its_checkpoints(tmp_path: Path) -> None:
    found = read(tmp_path, f"CUDA_VISIBLE_DEVICES=0 swift sft {MODEL} --tuner_backend unsloth\n")
    names = ("framework", "recompute", "offload")
    assert [found[name] for name in names] == ["Unsloth", "full", "activations"]


def test_pre_training_trains_all(tmp_path: Path) -> None:
    assert read(tmp_path, f"NPROC_PER_NODE=2 swift pt {MODEL} {BATCH}\n")["adapter"] == "none"


def test_what_trains_other_parameters_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"run\.sh: ms-swift's train_type longlora") as caught:
        read(tmp_path, f"NPROC_PER_NODE=2 swift sft {MODEL} --train_type longlora\n")
    assert caught.value.exit_code == 2


def test_ranks_of_a_sequence_trade_tokens_for_heads(tmp_path: Path) -> None:
    """``sequence_parallel_size`` is Ulysses, beside whatever shards: 8 GPUs are 2 sequences."""
    text = f"NPROC_PER_NODE=8 swift sft {MODEL} {BATCH} --sequence_parallel_size 4\n"
    found = read(tmp_path, text)
    assert (found["context_parallel"], found["cp_comm_type"]) == (4, "a2a")
    assert (found["zero_stage"], found["global_batch_size"]) == (0, 16)


@pytest.mark.parametrize("launcher", ["torchrun --nproc_per_node 4", "accelerate launch"])
def test_the_file_of_its_command_is_its_command(tmp_path: Path, launcher: str) -> None:
    """As examples/train/multi-node of ms-swift start it."""
    path = tmp_path / "run.sh"
    path.write_text(
        f"{launcher} swift/cli/sft.py --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora "
        "--per_device_train_batch_size 1 --lora_rank 16\n"
    )
    found = read_launch(path).values

    assert (found["adapter"], str(found["lora_rank"])) == ("lora", "16")
    assert (found["training_objective"], found["recompute"]) == ("sft", "full")


def test_a_teacher_is_said_to_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        f"NPROC_PER_NODE=4 swift rlhf {MODEL} --rlhf_type gkd --teacher_model Qwen/Qwen2.5-14B\n"
    )
    found = read_launch(tmp_path / "run.sh")
    assert found.values["training_objective"] == "sft"
    assert "teacher" in " ".join(found.notes)


def test_an_objective_that_nothing_knows_is_not_taken_for_another(tmp_path: Path) -> None:
    more = "--rlhf_type odd --num_generations 8"
    with pytest.raises(SpecError, match="odd"):
        read(tmp_path, f"NPROC_PER_NODE=4 swift rlhf {MODEL} {more}\n")


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ("--optimizer muon", "optimizer", "muon"),
        ("--experts_impl grouped_mm", "expert_compute", "grouped"),
        ("--gradient_accumulation_steps $(expr 32 / 4 / 2)", "global_batch_size", 4 * 4),
        ("--max_length 4095 --sequence_parallel_size 4", "sequence_length", 4096),
    ],
)
def test_options_that_decide_are_read(tmp_path: Path, more: str, name: str, value: object) -> None:
    text = f"NPROC_PER_NODE=4 swift sft --model Qwen/Qwen3-30B-A3B {more}\n"
    assert read(tmp_path, text)[name] == value


@pytest.mark.parametrize("more", ["--lisa_activated_layers 2", "--optimizer galore"])
def test_what_keeps_or_trains_less_is_refused(tmp_path: Path, more: str) -> None:
    with pytest.raises(SpecError, match="not predicted"):
        read(tmp_path, f"NPROC_PER_NODE=4 swift sft {MODEL} {more}\n")


def test_ranks_of_a_sequence_take_the_loss_in_parts(tmp_path: Path) -> None:
    """2 sequences of 65,536 tokens on 8 ranks are 16,384 each, 8 parts of 2,048."""
    start = "CELOSS_PARALLEL_SIZE=2048 NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B-Instruct"
    more = "--max_length 65536 --per_device_train_batch_size 2"
    found = read(tmp_path, f"{start} {more} --sequence_parallel_size 8\n")
    assert (found["loss_kernel"], found["loss_chunks"]) == ("chunked", 8)
    assert "loss_chunks" not in read(tmp_path, f"{start} {more}\n")


def test_how_adapters_begin_changes_nothing(tmp_path: Path) -> None:
    start = f"NPROC_PER_NODE=4 swift sft {MODEL}"
    more = "--init_weights lora-ga --lora_ga_batch_size 2 --lora_ga_iters 2"
    assert read(tmp_path, f"{start} {more}\n") == read(tmp_path, f"{start}\n")


def test_a_head_of_few_numbers_is_told(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(f"NPROC_PER_NODE=2 swift sft {MODEL} --task_type embedding\n")
    assert "logits" in " ".join(read_launch(tmp_path / "run.sh").notes)


@pytest.mark.parametrize(
    ("data", "samples"),
    [("a/b#500", 500), ("a/b#500 c/d#1500", 2000), ("a/b#500 c/d", None), ("a/b", None)],
)
def test_samples_behind_a_hash_are_drawn(data: str, samples: int | None, tmp_path: Path) -> None:
    (tmp_path / "s.sh").write_text(
        f"swift sft --model Qwen/Qwen2.5-7B-Instruct --max_length 2048 --dataset {data}\n"
    )
    launch = read_launch(tmp_path / "s.sh")

    assert launch.values.get("num_samples") == samples
    assert "num_samples" not in launch.defaults
