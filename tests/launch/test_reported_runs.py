"""Runs that users report of their launch files, with the published outcome."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from planner.base.csv_cells import Row
from planner.launch.read.launch_file import LaunchFile, evaluate_launch, full_row
from planner.launch.read.read_launch import read_launch

GB, GIB = 1e9, 2**30

FSDP2 = """\
distributed_type: FSDP
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_activation_checkpointing: true
  fsdp_activation_checkpointing_offload: true
  fsdp_offload_params: {offload}
  fsdp_reshard_after_forward: true
mixed_precision: bf16
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 8
"""
LONG_CONTEXT = (
    "accelerate launch --config_file fsdp2.yaml sft.py --model_name_or_path Qwen/{model} "
    "--max_length 1048576 --packing True --per_device_train_batch_size 1 --bf16 "
    "--gradient_checkpointing False\n"
)
LLAMA_FACTORY = """\
model_name_or_path: {model}
stage: sft
finetuning_type: {method}
lora_target: all
deepspeed: ds_z3_offload_config.json
cutoff_len: {length}
per_device_train_batch_size: 1
gradient_accumulation_steps: 2
bf16: true
"""
OFFLOADED = """\
{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
 "offload_param": {"device": "cpu"}}}
"""
LLAMA_13B = (
    "torchrun --nproc_per_node 8 --nnodes 16 pretrain_llama.py --num-layers 40 --hidden-size 5120 "
    "--ffn-hidden-size 13824 --num-attention-heads 40 --seq-length 2048 --swiglu --bf16 "
    "--max-position-embeddings 2048 --tensor-model-parallel-size 2 --sequence-parallel "
    "--micro-batch-size 2 --global-batch-size 1024 --use-rotary-position-embeddings "
    "--disable-bias-linear --use-flash-attn --vocab-size 32000 {optimizer}\n"
)
MIXTRAL = (
    "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py --use-mcore-models --seq-length 2048 "
    "--disable-bias-linear --max-position-embeddings 32768 --num-layers 32 --hidden-size 4096 "
    "--ffn-hidden-size 14336 --num-attention-heads 32 --normalization RMSNorm --swiglu "
    "--position-embedding-type rope --untie-embeddings-and-output-weights "
    "--group-query-attention --num-query-groups 8 --num-experts 8 --moe-router-topk 2 "
    "--expert-model-parallel-size 8 --moe-grouped-gemm --moe-token-dispatcher-type alltoall "
    "--micro-batch-size 1 --global-batch-size 128 --bf16 --tensor-model-parallel-size 2 "
    "--sequence-parallel --use-distributed-optimizer --use-flash-attn --vocab-size 32000 "
    "--attention-dropout 0.0 --hidden-dropout 0.0 --train-iters 500000\n"
)


def predict(path: Path, **answers: object) -> tuple[Row, tuple[float, float]]:
    """The result columns of a file, and the 90 % interval of its step time in seconds."""
    question = LaunchFile(path=path, answers=answers).question()
    plan, evaluation, _ = evaluate_launch(question.request)
    row = full_row(evaluation)
    factors = plan.source_of(row).confidence_of(row).factors["step_time"]
    low, high = (factor * row["step_time_s"] for factor in factors)
    return row, (low, high)


@pytest.mark.parametrize(
    ("model", "offload", "seconds", "gigabytes", "rel"),
    [
        ("Qwen3-8B", "false", 364, 56.2, 0.08),
        ("Qwen3-30B-A3B", "true", 483, 46.0, 0.08),
        # Its feed-forward layers were cut into parts of 16,384 tokens, which no option says.
        ("Qwen3-32B", "true", 1295, 60.8, 0.15),
    ],
)
def test_a_million_tokens_on_one_node(tmp_path, model, offload, seconds, gigabytes, rel):
    """Eight H100, context parallelism of FSDP2: huggingface/trl pull request 6845."""
    (tmp_path / "fsdp2.yaml").write_text(FSDP2.format(offload=offload))
    path = tmp_path / "run.sh"
    path.write_text(LONG_CONTEXT.format(model=model))
    row, (low, high) = predict(path, gpu="h100-sxm-80gb")
    assert low < seconds < high
    assert row["peak_memory_gib"] * GIB / GB == pytest.approx(gigabytes, rel=rel)
    assert row["fit_probability"] > 0.5


def test_gradients_that_are_scattered_after_each_micro_batch(planner, tmp_path):
    """LLaMA 13B on 16 nodes of A800, each with 800 Gbit/s: alibaba/Megatron-LLaMA issue 22.

    43.0 GiB and 1,126 tokens/s, with Megatron-LM's optimizer 1,886.
    """
    rates, path = [], tmp_path / "run.sh"
    for optimizer in ("--overlapped-distributed-optimizer", "--use-distributed-optimizer"):
        path.write_text(LLAMA_13B.format(optimizer=optimizer))
        options = ("--gpu", "a800-sxm-80gb", "--network", "800 Gbit/s per node")
        words = " ".join(planner("estimate", "--from", path, *options).out.split())
        rates.append(float(re.search(r"tokens/s/GPU ([\d,]+)", words)[1].replace(",", "")))
        if "overlapped" in optimizer:
            assert "dp64 mbs2 zero2" in words
            peak = float(re.search(r"peak ([\d.]+) of", words)[1])
            assert peak == pytest.approx(43.0, rel=0.05)
    overlapped, usual = rates
    assert usual == pytest.approx(1886, rel=0.15)
    assert overlapped / usual < 1126 / 1886


def test_mixtral_whose_log_says_its_sequence_length(tmp_path):
    """NVIDIA/Megatron-LM issue 756: 5.45 s at 239.6 TFLOP/s are 79.6 GFLOP a token, of 2,048."""
    path = tmp_path / "run.sh"
    path.write_text(MIXTRAL)
    row, (low, high) = predict(path, gpu="h100-sxm-80gb")
    assert row["step_time_s"] == pytest.approx(5.45, rel=0.12)
    assert low < 5.45 < high


def test_the_verdict_names_the_host_memory_that_it_rests_on(planner, tmp_path):
    """Full training of a 32B with offloading ran out: hiyouga/LlamaFactory issues 6942, 6755."""
    (tmp_path / "ds_z3_offload_config.json").write_text(OFFLOADED)
    path = tmp_path / "run.yaml"
    path.write_text(LLAMA_FACTORY.format(model="Qwen/Qwen2.5-32B", method="full", length=4096))
    options = ("estimate", "--from", path, "--gpu", "h100-sxm-80gb", "--gpus", 8)
    first = " ".join(planner(*options).out.split()[:30])
    assert "if a node has 824 GiB of host memory." in first
    assert "if a node" not in planner(*options, "--host-memory", "2TiB").out


def test_the_copy_of_logits_decides_a_long_sequence(planner, tmp_path):
    """LoRA of Qwen2 7B at 32,768 tokens ran out in July 2024: hiyouga/LlamaFactory issue 4642."""
    (tmp_path / "ds_z3_offload_config.json").write_text(OFFLOADED)
    path = tmp_path / "run.yaml"
    text = LLAMA_FACTORY.format(model="Qwen/Qwen2-7B-Instruct", method="lora", length=32768)
    path.write_text(f"{text}flash_attn: fa2\n")
    ran = planner("estimate", "--from", path, "--gpu", "a800-sxm-80gb", "--gpus", 8)
    words = " ".join(ran.out.split())
    assert "May fit" in words
    assert "does not fit with logits shifted and copied, before" in words


@pytest.mark.parametrize(
    ("key", "kernel"),
    [("flash_attn: fa2", "fa2"), ("flash_attn: sdpa", "sdpa"), ("flash_attn: auto", None)],
)
def test_a_file_that_names_flash_attention_assumes_none(tmp_path, key, kernel):
    path = tmp_path / "run.yaml"
    text = LLAMA_FACTORY.format(model="Qwen/Qwen2-7B-Instruct", method="lora", length=2048)
    path.write_text(f"{text}{key}\n")
    assert read_launch(path).values.get("attention_kernel") == kernel


def test_loading_in_each_process_of_fsdp_is_named(tmp_path):
    (tmp_path / "fsdp2.yaml").write_text(
        FSDP2.format(offload="true").replace(
            "  fsdp_version: 2\n", "  fsdp_version: 2\n  fsdp_cpu_ram_efficient_loading: false\n"
        )
    )
    path = tmp_path / "run.sh"
    path.write_text(LONG_CONTEXT.format(model="Qwen3-8B"))
    assert any("each process loads all weights" in note for note in read_launch(path).notes)
    (tmp_path / "fsdp2.yaml").write_text(FSDP2.format(offload="true"))
    assert not any("loads all weights" in note for note in read_launch(path).notes)
