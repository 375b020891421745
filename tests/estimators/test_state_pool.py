"""Pages that states of recurrent layers share with the cache, as vLLM's start logs have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import replicas, serving_setting

from planner.base.enums import CacheType, Quantization
from planner.base.units import GIB
from planner.estimators.inference.batch_share import Batch, BatchShare, ServingInputs
from planner.estimators.inference.serving_memory import (
    StatePool,
    _state_pool,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.towers import largest_image
from planner.specs.catalogue import load_model
from planner.specs.serving_workload import DraftMethod


def pool_of(setting: ServingInputs, **values: object) -> StatePool | None:
    zero = np.zeros(())
    c = replicas(**values)
    return _state_pool(
        BatchShare(inputs=setting, configurations=c, batch=Batch.of_decode(zero, zero))
    )


def drafted(setting: ServingInputs, tokens: int) -> ServingInputs:
    """With a prediction module of one layer that drafts so many tokens."""
    model = setting.model
    draft = replace(model, layer_groups=(replace(model.layer_groups[1], num_hidden_layers=1),))
    work = replace(
        setting.workload, draft_tokens=tokens, acceptance_rate=0.8, draft_method=DraftMethod.MTP
    )
    return replace(setting, draft=draft, workload=work)


@pytest.mark.parametrize(("cache", "tokens"), [(CacheType.FP8, 1600), (CacheType.BF16, 800)])
def test_a_page_is_as_large_as_a_state(cache: CacheType, tokens: int) -> None:
    """Qwen3.6-27B on 2 GPUs, 3 drafts: "Setting attention block size to 1600 tokens", fp8 cache.

    github.com/noonghunna/club-3090/issues/751; "Add 3 padding layers" beside 48 recurrent ones.
    """
    setting = drafted(serving_setting("qwen3.5-27b", "rtx3090-24gb", engine="vllm"), 3)
    pool = pool_of(setting, num_gpus=2, tensor_parallel=2, kv_cache=cache)
    assert pool is not None
    assert float(pool.page_tokens) == tokens
    assert (pool.layers, pool.attention_groups, pool.state_groups, pool.states) == (17, 1, 3, 4)
    assert pool.layers * pool.state_groups - 48 == 3


def test_tokens_that_a_server_with_drafts_logs() -> None:
    """Qwen3.8-27B-FP8 on 2 RTX 5090: 377,456 tokens (github.com/vllm-project/recipes/pull/810)."""
    setting = drafted(serving_setting("qwen3.5-27b", "rtx5090-32gb", engine="vllm"), 3)
    c = replicas(
        num_gpus=2, tensor_parallel=2, max_num_batched_tokens=2048, concurrency=28,
        quantization=Quantization.FP8_BLOCK, expert_quantization=Quantization.FP8_BLOCK,
    )  # fmt: skip
    setting = replace(
        setting,
        engine=replace(setting.engine, memory=replace(setting.engine.memory, profiled_seqs=256)),
    )
    memory = serving_memory(setting, c)
    pool = pool_of(setting, num_gpus=2, tensor_parallel=2)
    assert pool is not None
    assert (pool.layers, pool.attention_groups, pool.state_groups, pool.states) == (17, 1, 3, 4)
    tokens = 262_144 * float(memory.room.size) / float(sequence_bytes(setting, c, 262_144))
    assert tokens == pytest.approx(377_456, rel=0.03)


@given(st.integers(1, 300_000), st.integers(0, 5))
def test_a_pool_holds_at_least_what_layers_need(tokens: int, drafts: int) -> None:
    setting = serving_setting("qwen3.5-27b", "h100-sxm-80gb", engine="vllm")
    if drafts:
        setting = drafted(setting, drafts)
    plain = replace(
        setting,
        engine=replace(setting.engine, memory=replace(setting.engine.memory, pooled_states=False)),
    )
    c = replicas()
    pooled, needed = (float(sequence_bytes(one, c, tokens)) for one in (setting, plain))
    page = float(pool_of(setting).page_bytes) * 17  # type: ignore[union-attr]
    assert pooled >= needed - page / 100
    assert pooled <= needed * 51 / 48 + page * (1 + 3 * (1 + drafts))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_every_sequence_has_its_own_state(engine: str) -> None:
    """Of a prefix in common only the cache is shared."""
    setting = serving_setting("qwen3.5-27b", "h100-sxm-80gb", engine=engine, input_tokens=1024)
    room = serving_memory(setting, replicas()).room
    states = 48 * 48 * 128 * 128 * 4  # of layers, heads, keys and values, in 32 bits
    assert float(room.sequence) > states
    assert float(room.shared) < 0.02 * states


def test_windows_and_plain_models_have_no_pool() -> None:
    for name in ("llama-3.1-8b", "gemma-3-12b", "gpt-oss-20b"):
        assert pool_of(serving_setting(name, "h100-sxm-80gb", engine="vllm")) is None


def test_a_server_encodes_the_largest_image_at_its_start() -> None:
    """Logged: "budget of 16384 tokens, and profiled with 1 image items" (club-3090, issue 751)."""
    setting = serving_setting("qwen3.5-27b", "rtx3090-24gb", engine="vllm")
    image = largest_image(setting)
    assert image is not None
    assert image.largest == 16_384
    short = replace(setting, workload=replace(setting.workload, max_model_len=4096))
    assert largest_image(short).largest == 4096  # type: ignore[union-attr]
    text = replace(setting, model=replace(setting.model, vision_tower=None))
    assert largest_image(text) is None
    other = serving_setting("qwen3.5-27b", "rtx3090-24gb", engine="sglang")
    assert largest_image(other) is None


def test_what_the_largest_image_takes_is_not_of_the_cache() -> None:
    setting = serving_setting("qwen2.5-vl-7b", "a100-sxm-80gb", engine="vllm", input_tokens=1024)
    plain = replace(
        setting,
        engine=replace(
            setting.engine, memory=replace(setting.engine.memory, profiles_images=False)
        ),
    )
    rooms = [float(serving_memory(one, replicas()).room.size) for one in (setting, plain)]
    assert 0.05 * GIB < rooms[1] - rooms[0] < 4 * GIB
    assert load_model("qwen2.5-vl-7b").vision_tower is not None
