"""Weights and cache in host memory: what is copied, hidden, unpacked and left to the host."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from serving_cases import replicas, serving_setting

from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.engine_step import InferenceStep
from planner.estimators.inference.static_batch import static_batch
from planner.estimators.inference.weights import weight_bytes

# Two bytes of keys and values of 32 layers with 4,096 elements each: of OPT-6.7B.
CACHE_PER_TOKEN = 2 * 2 * 32 * 4096
USUAL_HOST_BANDWIDTH = 51.2e9


def setting_of(model: str = "opt-6.7b", engine: str = "vllm", **execution: Any) -> ServingInputs:
    """A model on an A6000, with other values of its engine's execution."""
    setting = serving_setting(model, "a6000-48gb", engine, input_tokens=512, output_tokens=32)
    values = dataclasses.replace(setting.engine.execution, **execution)
    return dataclasses.replace(
        setting, engine=dataclasses.replace(setting.engine, execution=values)
    )


def step(setting: ServingInputs, **values: Any) -> InferenceStep:
    """A decode step of one GPU."""
    return static_batch(setting, replicas(**values)).decode_step


def waited(setting: ServingInputs, **values: Any) -> float:
    """Seconds that a decode step waits for the host."""
    return float(step(setting, **values).transfer_wait.ravel()[0])


def test_the_host_attends_to_an_offloaded_cache_at_the_rate_of_its_memory() -> None:
    setting = setting_of(host_attention_fraction=0.25)
    read = 64 * (512 + 16) * CACHE_PER_TOKEN
    found = waited(setting, concurrency=64, kv_offload=1.0)
    assert found == pytest.approx(read / (0.25 * USUAL_HOST_BANDWIDTH))


def test_half_of_the_cache_on_the_host_takes_it_half_as_long() -> None:
    setting = setting_of(host_attention_fraction=0.25)
    whole = waited(setting, concurrency=64, kv_offload=1.0)
    assert waited(setting, concurrency=64, kv_offload=0.5) == pytest.approx(whole / 2)


def test_its_attention_copies_keys_for_each_query_head_that_shares_them() -> None:
    setting = setting_of("llama-2-70b", host_attention_fraction=0.25)
    read = 8 * (512 + 16) * 2 * 2 * 80 * 1024
    found = waited(setting, concurrency=8, kv_offload=1.0)
    assert found == pytest.approx((1 + 2 * 8) * read / (0.25 * USUAL_HOST_BANDWIDTH))


def test_a_cache_of_fewer_bits_is_copied_and_unpacked_on_the_gpu() -> None:
    setting = setting_of(host_attention_fraction=0.25, hidden_copies=0.0, unpacking_bytes=20.0)
    batch = {"concurrency": 64, "kv_cache": CacheType.INT4}
    copied = 64 * (512 + 16) * CACHE_PER_TOKEN / 2 * (0.5 + 2 / 64)
    assert waited(setting, **batch, kv_offload=1.0) == pytest.approx(copied / (0.8 * 32e9))
    plain = dataclasses.replace(
        setting,
        engine=dataclasses.replace(
            setting.engine,
            execution=dataclasses.replace(setting.engine.execution, unpacking_bytes=0.0),
        ),
    )
    more = step(setting, **batch).kernels - step(plain, **batch).kernels
    gpu = setting.machine.gpu
    reached = gpu.memory_bandwidth * gpu.efficiency.memory_bound.bandwidth_fraction
    elements = 64 * (512 + 16) * CACHE_PER_TOKEN / 2
    assert float(more.ravel()[0]) == pytest.approx(20 * elements / reached, rel=0.01)


def test_copies_add_to_a_step_that_cannot_hide_them() -> None:
    hidden, shown = setting_of(), setting_of(hidden_copies=0.0)
    whole = waited(shown, concurrency=64, weight_offload=1.0)
    busy = float(step(hidden, concurrency=64).kernels.ravel()[0])
    assert waited(hidden, concurrency=64, weight_offload=1.0) == pytest.approx(
        whole - busy, rel=0.05
    )
    assert whole > 0.9 * 2 * 6.5e9 / (0.8 * 32e9)


@pytest.mark.parametrize(("stages", "steps"), [(1, 4), (2, 2)])
def test_every_step_of_a_long_prefill_fetches_the_offloaded_weights(
    stages: int, steps: int
) -> None:
    """64 prompts of 512 tokens are four steps of 8,192, or two for each of two micro-batches."""
    setting = setting_of(hidden_copies=0.0)
    shape = {"num_gpus": stages, "pipeline_parallel": stages, "concurrency": 64}
    kept, moved = (
        static_batch(setting, replicas(**shape, weight_offload=share)) for share in (0.0, 1.0)
    )
    each = float(moved.prefill_step.transfer_wait.ravel()[0])
    assert each > 0.9 * 2 * 6.5e9 / (0.8 * 32e9)
    later = moved.time_to_first_token - kept.time_to_first_token
    # All stages wait for the first step; then the copies of the stages are made side by side.
    waits = each + (stages * steps - 1) * each / stages
    assert float(later.ravel()[0]) == pytest.approx(waits)


@pytest.mark.parametrize(
    ("engine", "model", "batch", "values", "tokens_per_s"),
    [
        ("deepspeed-inference", "opt-66b", 40, {"kv_offload": 1.0}, 3.63),
        ("deepspeed-inference", "opt-30b", 24, {"quantization": Quantization.W4A16}, 22.74),
        ("flexgen", "opt-30b", 200, {"kv_offload": 1.0}, 13.24),
        ("flexgen", "opt-175b", 16, {"quantization": Quantization.W4A16}, 1.50),
    ],
)
def test_published_rates(
    engine: str, model: str, batch: int, values: dict[str, Any], tokens_per_s: float
) -> None:
    """512 tokens in and 32 out: microsoft/DeepSpeedExamples, zero_inference/README.md."""
    found = static_batch(
        setting_of(model, engine), replicas(concurrency=batch, weight_offload=1.0, **values)
    )
    rate = 32 * found.batch / found.request_latency
    assert float(rate.ravel()[0]) == pytest.approx(tokens_per_s, rel=0.15)


def test_a_host_that_multiplies_reads_its_weights_once() -> None:
    setting = setting_of("llama-2-70b", "llama.cpp", host_product_fraction=0.5)
    values: dict[str, Any] = {"quantization": Quantization.Q4_K_M, "concurrency": 1}
    weights = float(weight_bytes(setting, replicas(**values)).total)
    found = waited(setting, weight_offload=0.5, **values)
    assert found == pytest.approx(0.5 * weights / (0.5 * USUAL_HOST_BANDWIDTH))


def test_a_host_reads_the_chosen_experts_alone() -> None:
    """github.com/ggml-org/llama.cpp/issues/15077: 108 tokens/s with experts of 3 layers of 36."""
    setting = serving_setting("gpt-oss-120b", "rtx5090-32gb", "llama.cpp", input_tokens=1024)
    values: dict[str, Any] = {"num_gpus": 2, "pipeline_parallel": 2, "concurrency": 1}
    types = {"quantization": Quantization.MXFP4, "expert_quantization": Quantization.MXFP4}
    c = replicas(weight_offload=0.08, **values, **types)
    alone = float(static_batch(setting, c).decode_step.total.ravel()[0])
    assert alone == pytest.approx(1 / 108, rel=0.3)
    # Four of 128 are read of one token, nearly all of 256.
    many = dataclasses.replace(c, concurrency=c.concurrency * 256)
    more = static_batch(setting, many).decode_step.transfer_wait
    assert float(more.ravel()[0]) > 20 * waited(setting, weight_offload=0.08, **values, **types)
