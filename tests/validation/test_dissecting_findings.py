"""The findings of arXiv:2311.03687 on Llama-2, 8 x A800, RTX 4090 and RTX 3090, in autumn 2023.

Samples of 350 tokens; 1,000 requests of 512 tokens, answered with as many, at once. A finding
that does not hold is marked with what is known of why: the mark fails once it holds.
"""

from typing import Any

import numpy as np
import pytest

import planner
from planner.estimators.inference.burst import burst

LENGTH = 350
A800, RTX4090 = "a800-node", "rtx4090-pcie"
RTX3090, BRIDGED = "rtx3090-pcie", "rtx3090-nvlink"
# In 4 bits embedding and logits are what a framework trains of a model without adapters; an
# adapter of rank 1 stands for none.
FOUR_BITS = {"adapter": "qlora", "lora_rank": 1, "modules_to_save": "embeddings"}


def trained(cluster: str, num_gpus: int, micro_batch_size: int = 1, **asked: Any) -> Any:
    settings = asked.pop("settings", {})
    split = settings.get("tensor_parallel", 1)
    return planner.estimate(
        **{
            "model": "llama-2-7b",
            "framework": "hf-trainer",
            "cluster": cluster,
            "num_gpus": num_gpus,
            "sequence_length": LENGTH,
            "global_batch_size": micro_batch_size * num_gpus // split,
            "settings": {"micro_batch_size": micro_batch_size, **settings},
            **asked,
        }
    )


def one(values: Any) -> float:
    return float(np.ravel(values)[0])


def tokens_per_second(*args: Any, **asked: Any) -> float:
    return one(trained(*args, **asked).estimate.tokens_per_second)


def efficiency(cluster: str) -> float:
    """Percent of eight times the tokens of one GPU."""
    alone, together = (tokens_per_second(cluster, n, 2, **FOUR_BITS) for n in (1, 8))
    return 100 * together / (8 * alone)


@pytest.mark.parametrize(
    ("cluster", "published"),
    [
        pytest.param(A800, 100.0, id="A800"),
        pytest.param(RTX4090, 90.8, id="RTX 4090"),
        pytest.param(RTX3090, 85.9, id="RTX 3090"),
        pytest.param(BRIDGED, 95.9, id="RTX 3090 with NVLink"),
    ],
)
def test_scaling_of_the_4_bit_7b_from_one_gpu_to_eight(cluster: str, published: float) -> None:
    """Ours 98.7, 91.0, 87.0, 95.8: no peer access, and the embedding's gradients come last."""
    assert efficiency(cluster) == pytest.approx(published, abs=2)


def test_bridges_give_ten_points() -> None:
    assert efficiency(BRIDGED) - efficiency(RTX3090) == pytest.approx(10, abs=2)


def slowdown(adapter: str, cluster: str) -> float:
    """Percent that 13B is slower than 7B."""
    asked = {"adapter": adapter, "lora_rank": 64}
    small, large = (
        tokens_per_second(cluster, 8, model=model, **asked)
        for model in ("llama-2-7b", "llama-2-13b")
    )
    return 100 * (1 - large / small)


@pytest.mark.parametrize("cluster", [A800, RTX4090, RTX3090])
def test_13b_is_about_30_percent_slower_than_7b(cluster: str) -> None:
    """LoRA at micro-batch 1, ours 21, 32, 37: the host's launches do not grow with the width."""
    assert slowdown("lora", cluster) == pytest.approx(30, abs=10)


@pytest.mark.xfail(
    strict=True,
    reason="ours 40 to 44: unpacking grows with the layers and takes most of a small step; the "
    "paper's batch size is not known, and no host wait of ours is as long as its figure needs",
)
@pytest.mark.parametrize("cluster", [A800, RTX4090, RTX3090])
def test_qlora_of_13b_is_about_30_percent_slower(cluster: str) -> None:
    assert slowdown("qlora", cluster) == pytest.approx(30, abs=9)


EVERY_TECHNIQUE = {"zero_stage": 3, "recompute": "full", "offload": "optimizer_weights"}


@pytest.mark.parametrize(
    "cluster",
    [
        pytest.param(RTX3090, id="RTX 3090"),
        pytest.param(
            RTX4090,
            marks=pytest.mark.xfail(
                strict=True,
                reason="ours 304: its host's links are taken to carry twice what the RTX 3090's do",
            ),
            id="RTX 4090",
        ),
    ],
)
def test_70b_with_every_technique_on_24_gb(cluster: str) -> None:
    """200 tokens/s with ZeRO-3, offloading, recomputation and 4 bits; ours 193 on RTX 3090."""
    asked = {"model": "llama-2-70b", "adapter": "qlora", "lora_rank": 64}
    found = trained(cluster, 8, **asked, settings=EVERY_TECHNIQUE)
    assert not found.rejected_by
    assert one(found.estimate.tokens_per_second) == pytest.approx(200, rel=0.1)


def attention_module(flash: bool) -> tuple[float, float]:
    """Forward and backward seconds of projections, rotary embedding and core of a layer."""
    settings = {"flash_attention": flash}
    found = trained(A800, 1, 4, framework="hf-bf16", settings=settings)
    operators = [
        each
        for each in found.estimate.time.blocks[0].time.operators
        if each.module in ("qkv", "rope", "attention")
    ]
    return sum(one(o.forward) for o in operators), sum(one(o.backward) for o in operators)


def test_flash_attention_shortens_the_attention_module() -> None:
    """By 34.9 % forward and 24.7 % backward; ours 23.7 and 20.0, with the products in it."""
    fused, unfused = attention_module(True), attention_module(False)
    forward, backward = (100 * (1 - a / b) for a, b in zip(fused, unfused, strict=True))
    assert forward == pytest.approx(34.9, abs=12)
    assert backward == pytest.approx(24.7, abs=6)
    assert forward > backward


MEGATRON = {"framework": "megatron-lm", "settings": {"zero_stage": 1}}
DEEPSPEED = {"framework": "deepspeed", "settings": {"zero_stage": 0}}


def test_5_to_10_percent_of_a_step_at_batch_1_are_idle() -> None:
    """Ours 9: what the GPU waits for the host, by Megatron-LM, without ZeRO-3's gathers."""
    time = trained(A800, 8, **MEGATRON).estimate.time
    parts = time.parts()
    waiting = one(parts["launch_wait"]) + one(parts["overhead"])
    assert 0.05 <= waiting / one(time.total) <= 0.10


def test_megatron_is_faster_at_batch_1_and_deepspeed_takes_more_memory() -> None:
    megatron, deepspeed = (trained(A800, 8, **each).estimate for each in (MEGATRON, DEEPSPEED))
    assert one(megatron.tokens_per_second) > one(deepspeed.tokens_per_second)
    assert one(deepspeed.peak_memory) > one(megatron.peak_memory)


def at_its_largest_batch(framework: str, zero_stages: tuple[int, ...]) -> float:
    speeds = []
    for stage in zero_stages:
        for batch in (1, 2, 4, 8, 16, 32, 64):
            asked = {"framework": framework, "settings": {"zero_stage": stage}}
            found = trained(A800, 8, batch, **asked)
            if not found.rejected_by:
                speeds.append(one(found.estimate.tokens_per_second))
    return max(speeds)


@pytest.mark.xfail(
    strict=True,
    reason="ours the other way round by a sixth: Megatron-LM's kernels are those of today, fused "
    "and with FlashAttention, and its batch here is larger than that of the paper",
)
def test_deepspeed_is_fastest_at_its_largest_batch() -> None:
    megatron = at_its_largest_batch("megatron-lm", (1,))
    assert at_its_largest_batch("deepspeed", (0, 2, 3)) > megatron


@pytest.mark.parametrize("cluster", [RTX4090, RTX3090])
@pytest.mark.parametrize("asked", [MEGATRON, DEEPSPEED], ids=["Megatron-LM", "DeepSpeed"])
def test_neither_fits_24_gb_without_memory_techniques(cluster: str, asked: Any) -> None:
    assert trained(cluster, 8, **asked).rejected_by == "out_of_memory"


def served(engine: str, cluster: str) -> float:
    """Answered tokens per second of the burst, on all eight GPUs."""
    found = planner.estimate(
        workload="serve",
        model="llama-2-7b",
        cluster=cluster,
        num_gpus=8,
        engine=engine,
        input_tokens=512,
        output_tokens=512,
        settings={"tensor_parallel": 8, "concurrency": 1000},
    )
    return 1000 * 512 / burst(found.estimate, 1000).makespan


@pytest.mark.parametrize("other", ["tgi", "vllm-v0"])
def test_lightllm_is_nearly_twice_as_fast_on_a800(other: str) -> None:
    """Ours 1.7 and 1.8 times: all requests are in one batch, the others' hold 128 and 256."""
    assert served("lightllm", A800) / served(other, A800) == pytest.approx(1.9, abs=0.25)


@pytest.mark.xfail(
    strict=True,
    reason="ours LightLLM by a fifth: exchanges over the host take most of a step there, and take "
    "the same in each engine; what slowed LightLLM and vLLM on these cards is not known",
)
@pytest.mark.parametrize("cluster", [RTX4090, RTX3090])
def test_tgi_is_best_on_24_gb(cluster: str) -> None:
    assert served("tgi", cluster) > max(served(one, cluster) for one in ("lightllm", "vllm-v0"))
