"""Transformer Engine keeps weights in 8 bits beside those in 16 bits, unless they are them."""

from pathlib import Path

import pytest

from planner import Request
from planner.launch.read.launch_file import full_row
from planner.launch.read.read_launch import read_launch
from planner.workloads.make_plan import evaluate, make_single_plan

# Llama 3 8B: 32 layers of 218.1 million, embedding and logits of 525.3 million each.
LAYERS = 32 * 218_112_000 / 2**30
ENDS = 2 * 128_256 * 4096 / 2**30


def weights(framework: str, gpu: str, precision: str, **settings: str) -> float:
    request = Request(
        model="llama-3-8b",
        gpu=gpu,
        num_gpus=8,
        framework=framework,
        precision=precision,
        settings={"micro_batch_size": 1, **settings},
        sequence_length=8192,
        global_batch_size=128,
    )
    return float(full_row(evaluate(make_single_plan(request)))["memory_weights_gib"])


@pytest.mark.parametrize(
    ("framework", "gpu", "precision", "settings", "width"),
    [
        ("megatron-lm", "h100-sxm", "bf16", {}, 2),
        ("megatron-lm", "h100-sxm", "fp8", {}, 2 + 2),  # products of Hopper read rows alone
        ("megatron-lm", "b200", "fp8", {"fp8_recipe": "delayed"}, 2 + 1),
        ("megatron-lm", "b200", "fp8", {"fp8_recipe": "mxfp8"}, 2 + 2),
        ("megatron-lm", "b200", "fp4", {}, 2 + 2 * 0.5625),
        ("nemo", "h100-sxm", "fp8", {}, 2),
        ("nemo", "b200", "fp8", {"fp8_recipe": "delayed"}, 1),
        ("hai-llm", "h100-sxm", "fp8", {}, 2),
    ],
)
def test_bytes_of_a_weight_in_layers(
    framework: str, gpu: str, precision: str, settings: dict[str, str], width: float
) -> None:
    expected = LAYERS * width + ENDS * 2
    assert weights(framework, gpu, precision, **settings) == pytest.approx(expected, rel=1e-3)


def test_weights_that_are_gathered_in_8_bits_have_no_others_beside(tmp_path: Path) -> None:
    shape = (
        "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
        "--group-query-attention --num-query-groups 8 --swiglu --seq-length 8192 "
        "--untie-embeddings-and-output-weights --disable-bias-linear --normalization RMSNorm "
        "--vocab-size 128256 --tokenizer-type NullTokenizer --max-position-embeddings 8192 "
        "--position-embedding-type rope --micro-batch-size 1 --global-batch-size 128 --bf16 "
        "--fp8-format hybrid --use-distributed-optimizer"
    )
    found = {}
    for more in ("", "--fp8-param-gather", "--fp8-param-gather --grad-reduce-in-bf16"):
        path = tmp_path / "run.sh"
        path.write_text(f"torchrun --nproc_per_node 8 pretrain_gpt.py {shape} {more}\n")
        values = read_launch(path).values
        found[more] = values["framework"], values.get("main_grads_precision")
    assert [framework for framework, _ in found.values()][1:] == ["NeMo", "NeMo"]
    assert found[""][0] == "Megatron-LM"
    assert [grads for _, grads in found.values()][1:] == ["fp32", "bf16"]
