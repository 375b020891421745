"""The findings of arXiv:2311.03687 on Llama-2, 8 x A800, RTX 4090 and RTX 3090, in autumn 2023.

Samples of 350 tokens; 1,000 requests of 512 tokens, answered with as many, at once. Of a
finding that is another here, the test holds the figure of what makes it so.
"""

from typing import Any

import pytest
from dissecting import (
    A800,
    BRIDGED,
    DEEPSPEED,
    EVERY_TECHNIQUE,
    MEGATRON,
    RTX3090,
    RTX4090,
    attention_module,
    deepspeed_over_megatron,
    efficiency,
    host_time_that_decides,
    idle_share,
    implied_slowdown,
    one,
    served,
    slowdown,
    tokens_per_second,
    trained,
    unpacking,
)


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


@pytest.mark.parametrize("cluster", [A800, RTX4090, RTX3090])
def test_13b_is_about_30_percent_slower_than_7b(cluster: str) -> None:
    """LoRA at micro-batch 1, ours 21, 32, 37: the host's launches do not grow with the width."""
    assert slowdown("lora", cluster) == pytest.approx(30, abs=10)


@pytest.mark.parametrize("cluster", [A800, RTX4090, RTX3090])
def test_qlora_of_13b_is_as_much_slower_as_lora_and_unpacking_make_it(cluster: str) -> None:
    """Published about 30, ours 40, 43, 43: 1.93 times the weights take as much longer to unpack.

    That, and the published 30 of LoRA, make 43, 43, 40. For 30 of both, unpacking would have to
    grow by 1.43.
    """
    share, growth = unpacking(cluster)
    assert 0.35 < share < 0.55
    assert growth > 1.9
    assert slowdown("qlora", cluster) == pytest.approx(implied_slowdown(cluster), abs=4)


@pytest.mark.parametrize("cluster", [RTX4090, RTX3090])
def test_70b_with_every_technique_on_24_gb(cluster: str) -> None:
    """200 tokens/s by LoRA with ZeRO-3, offloading, recomputation and FlashAttention.

    No 4 bits: 35 GB of them fit no card, and bitsandbytes shards them since 0.43 of 2024. The
    paper names no batch: ours 68, 131, 247 at 1, 2, 4 sequences on RTX 3090, 130 and 252 at 1 and
    2 on RTX 4090, whose links carry twice as much.
    """
    assert not trained(cluster, 8, **EVERY_TECHNIQUE).rejected_by
    least, most = (tokens_per_second(cluster, 8, batch, **EVERY_TECHNIQUE) for batch in (1, 4))
    assert least < 200 < most


def test_links_decide_how_fast_70b_is_on_24_gb() -> None:
    """Gathers from the host are nearly the whole step: twice the link, twice the tokens."""
    slow, fast = (tokens_per_second(card, 8, 2, **EVERY_TECHNIQUE) for card in (RTX3090, RTX4090))
    assert fast / slow == pytest.approx(2, abs=0.15)


def test_flash_attention_shortens_the_attention_module() -> None:
    """By 34.9 % forward and 24.7 % backward; ours 23.7 and 20.0, with the products in it."""
    fused, unfused = attention_module(True), attention_module(False)
    forward, backward = (100 * (1 - a / b) for a, b in zip(fused, unfused, strict=True))
    assert forward == pytest.approx(34.9, abs=12)
    assert backward == pytest.approx(24.7, abs=6)
    assert forward > backward


def test_5_to_10_percent_of_a_step_at_batch_1_are_idle() -> None:
    """Ours 9: what the GPU waits for the host, by Megatron-LM, without ZeRO-3's gathers."""
    assert 0.05 <= idle_share() <= 0.10


def test_megatron_is_faster_at_batch_1_and_deepspeed_takes_more_memory() -> None:
    megatron, deepspeed = (trained(A800, 8, **each).estimate for each in (MEGATRON, DEEPSPEED))
    assert one(megatron.tokens_per_second) > one(deepspeed.tokens_per_second)
    assert one(deepspeed.peak_memory) > one(megatron.peak_memory)


def test_deepspeed_is_fastest_at_its_largest_batch() -> None:
    """As fast, where the paper has it ahead: ours is 0.98 over the Megatron-LM of 2023."""
    assert deepspeed_over_megatron() > 0.97


@pytest.mark.parametrize("cluster", [RTX4090, RTX3090])
@pytest.mark.parametrize("asked", [MEGATRON, DEEPSPEED], ids=["Megatron-LM", "DeepSpeed"])
def test_neither_fits_24_gb_without_memory_techniques(cluster: str, asked: dict[str, Any]) -> None:
    assert trained(cluster, 8, **asked).rejected_by == "out_of_memory"


@pytest.mark.parametrize("other", ["tgi", "vllm-v0"])
def test_lightllm_is_nearly_twice_as_fast_on_a800(other: str) -> None:
    """Ours 1.7 and 1.8 times: all requests are in one batch, the others' hold 128 and 256."""
    assert served("lightllm", A800) / served(other, A800) == pytest.approx(1.9, abs=0.25)


@pytest.mark.parametrize("cluster", [RTX4090, RTX3090])
def test_tgi_is_best_on_24_gb_where_python_takes_its_time(cluster: str) -> None:
    """Ours LightLLM by a tenth, until Python takes 61 to 64 us of the host for each token.

    Servers in Python take 100 to 200 us (vllm-project/vllm issues 580, 7935, 17546), TGI's router
    is Rust. With 100 us TGI is best.
    """
    assert 0 < host_time_that_decides(cluster) < 100e-6
    of_python = [served(engine, cluster, 100e-6) for engine in ("lightllm", "vllm-v0")]
    assert served("tgi", cluster) > max(of_python)
