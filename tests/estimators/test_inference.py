"""Prefill, decode and serving against published rooflines and by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.enums import CacheType, Quantization
from planner.estimators.inference.estimate import SERVING_REJECTIONS, evaluate_serving
from planner.estimators.inference.memory import (
    SERVING_MEMORY_PARTS,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.inference.serving import served_at_concurrency
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.inference.static import static_batch
from planner.estimators.inference.step import InferenceStep
from planner.estimators.inference.weights import weight_bytes
from planner.specs.quantization import FORMATS
from planner.units import GIB

_W16, _W4A4, _W4A8 = Quantization.W16A16, Quantization.W4A4, Quantization.W4A8
_W4A16, _W8A8 = Quantization.W4A16, Quantization.W8A8
# Activations of so many bits keep a cache of so many.
_CACHES = {_W16: CacheType.BF16, _W4A16: CacheType.BF16, _W4A8: CacheType.INT8,
           _W8A8: CacheType.INT8, _W4A4: CacheType.INT4}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "tensor_parallel", "quantization", "prefill_ms", "decode_ms"),
    [
        ("llama-7b", 1, _W16, 22.41, 6.73),
        ("llama-13b", 1, _W16, 43.1, 12.94),
        ("llama-33b", 1, _W16, 107.74, 32.36),
        ("llama-65b", 2, _W16, 113.33, 33.85),
        ("llama-7b", 1, _W4A4, 5.9, 1.78),
        ("llama-7b", 1, _W8A8, 11.4, 3.43),
        ("llama-7b", 1, _W4A16, 22.41, 1.99),
        ("llama-65b", 1, _W4A4, 55.2, 16.41),
        ("llama-65b", 1, _W4A8, 108.83, 16.76),
        ("llama-65b", 1, _W4A16, 216.08, 17.47),
        ("llama-65b", 1, _W8A8, 108.83, 32.56),
    ],
)
def test_ideal_latencies_of_llm_analysis(
    model: str, tensor_parallel: int, quantization: Quantization, prefill_ms: float,
    decode_ms: float,
) -> None:  # fmt: skip
    """cli99/llm-analysis, examples/inference: A100-SXM-80GB, 512 tokens, batch 1, roofline."""
    setting = serving_setting(model, ideal=True, input_tokens=512, output_tokens=1)
    batch = static_batch(
        setting,
        replicas(
            num_gpus=tensor_parallel,
            tensor_parallel=tensor_parallel,
            quantization=quantization,
            expert_quantization=quantization,
            kv_cache=_CACHES[quantization],
        ),
    )
    assert batch.prefill_step.total * 1e3 == pytest.approx(prefill_ms, rel=0.05)
    assert batch.decode_step.total * 1e3 == pytest.approx(decode_ms, rel=0.05)


def test_ideal_decode_reads_weights_and_cache_once() -> None:
    """Grouped-query attention: 8 key-value heads of 128 in each of the 32 layers."""
    setting = serving_setting("llama-3-8b", ideal=True, input_tokens=1000, output_tokens=2)
    c = replicas(concurrency=4)
    step = static_batch(setting, c).decode_step
    weights = weight_bytes(setting, c)
    norms = 2.0 * (2 * 32 + 1) * 4096
    cache = 4 * 1001 * 32 * 8 * 2 * 128 * 2
    moved = weights.total - weights.embedding - norms + cache
    seconds = moved / setting.machine.gpu.memory_bandwidth
    assert step.kernels == pytest.approx(seconds, rel=0.005)


@pytest.mark.parametrize(
    ("model", "gpus"),
    [("llama-3.1-70b", 8), ("deepseek-v3", 8), ("mixtral-8x7b", 4), ("gpt-oss-120b", 2)],
)
def test_operators_add_up_to_the_step(model: str, gpus: int) -> None:
    setting = serving_setting(model, "h200-sxm-141gb")
    batch = static_batch(setting, replicas(num_gpus=gpus, tensor_parallel=gpus, concurrency=16))
    for step in (batch.prefill_step, batch.decode_step):
        layers = sum(n * sum(float(o.time) for o in ops) for n, ops in step.layers)
        ends = sum(float(o.time) for o in step.ends)
        assert layers + ends == pytest.approx(float(step.kernels))
        parts = (step.kernels, step.pipeline, step.launch_wait, step.transfer_wait, step.overhead)
        assert sum(map(float, parts)) == pytest.approx(float(step.total))


def changed(setting: ServingSetting, **execution: Any) -> ServingSetting:
    """The setting with other values of its engine's execution."""
    values = dataclasses.replace(setting.engine.execution, **execution)
    return dataclasses.replace(
        setting, engine=dataclasses.replace(setting.engine, execution=values)
    )


def seconds_of(step: InferenceStep, operator: str) -> float:
    """Seconds of an operator in one layer of a step, which has it."""
    ((_, operators),) = step.layers
    (found,) = (o for o in operators if o.name == operator)
    return float(found.time)


def attention_seconds(setting: ServingSetting, concurrency: int, tensor_parallel: int = 1) -> float:
    """Seconds of decode attention in one layer of a decode step."""
    c = replicas(num_gpus=tensor_parallel, tensor_parallel=tensor_parallel, concurrency=concurrency)
    return seconds_of(static_batch(setting, c).decode_step, "attention_decode")


def prompt_seconds(setting: ServingSetting, operator: str, **values: Any) -> float:
    """Seconds of an operator in one layer of a step with prompts."""
    return seconds_of(static_batch(setting, replicas(**values)).prefill_step, operator)


@pytest.mark.parametrize(("model", "group"), [("llama-7b", 1), ("llama-3-8b", 4)])
def test_kernels_of_single_heads_read_keys_for_every_query_head(model: str, group: int) -> None:
    shared = serving_setting(model, input_tokens=1900, output_tokens=100)
    single = changed(shared, repeated_read_fraction=1.0)
    seconds = [attention_seconds(setting, 256) for setting in (shared, single)]
    assert seconds[1] == pytest.approx(group * seconds[0], rel=0.05)


@pytest.mark.parametrize(
    ("gpu", "input_tokens", "tensor_parallel", "concurrency", "unsplit"),
    [
        ("mi300x-192gb", 1900, 1, 16, False),
        ("mi300x-192gb", 1900, 1, 17, True),
        ("mi300x-192gb", 1900, 4, 64, False),
        ("mi300x-192gb", 1900, 4, 65, True),
        ("mi300x-192gb", 300, 1, 16, True),
        ("mi250", 1900, 1, 32, False),
        ("mi250", 1900, 1, 33, True),
    ],
)
def test_attention_splits_long_contexts_of_few_blocks(
    gpu: str, input_tokens: int, tensor_parallel: int, concurrency: int, unsplit: bool
) -> None:
    """A block for each of the 32 query heads of a sequence; an MI250 is two devices."""
    setting = serving_setting(
        "llama-7b", gpu, engine="vllm-v0-ports", input_tokens=input_tokens, output_tokens=100
    )
    engine = setting.engine
    assert engine.attention_split is not None
    never = dataclasses.replace(setting, engine=dataclasses.replace(engine, attention_split=None))
    ratio = attention_seconds(setting, concurrency, tensor_parallel) / attention_seconds(
        never, concurrency, tensor_parallel
    )
    slower = 1 / engine.attention_split.unsplit_bandwidth_fraction
    assert ratio == pytest.approx(slower if unsplit else 1.0, rel=0.15)


def test_products_and_collectives_take_what_the_engine_says_of_them() -> None:
    shared = serving_setting("llama-7b", "mi300x-192gb", engine="vllm-v0-ports")
    engine = shared.engine
    tuned = dataclasses.replace(engine, linear_compute_by_architecture={"cdna3": 1.0})
    seconds = [
        prompt_seconds(dataclasses.replace(shared, engine=one), "qkv", concurrency=16)
        for one in (engine, tuned)
    ]
    assert seconds[0] / seconds[1] == pytest.approx(
        1 / engine.linear_compute_by_architecture["cdna3"], rel=0.1
    )
    c = replicas(num_gpus=2, tensor_parallel=2)
    steps = [
        float(static_batch(one, c).decode_step.kernels)
        for one in (shared, changed(shared, collective_launch_time=0.0))
    ]
    launched = (2 * 32 + 1) * engine.execution.collective_launch_time
    assert steps[0] - steps[1] == pytest.approx(launched, rel=1e-6)


@pytest.mark.parametrize(
    ("gpu", "faster"), [("rtx4090-24gb", 1.9), ("rtx6000-ada", 1.0), ("a100-sxm-80gb", 1.0)]
)
def test_sums_in_16_bit_are_faster_on_geforce_alone(gpu: str, faster: float) -> None:
    setting = serving_setting("llama-7b", gpu, input_tokens=4096)
    half = changed(setting, half_accumulation=True)
    ratio = prompt_seconds(setting, "qkv") / prompt_seconds(half, "qkv")
    assert ratio == pytest.approx(faster, abs=0.1)


def test_unpacked_weights_pass_memory_twice_more() -> None:
    """Read in 4 bits, written in 16: 2.5 bytes of each weight before the product in 16 bit."""
    setting = serving_setting("llama-7b", "a100-sxm-80gb", input_tokens=512)
    unpacked = changed(setting, unpacked_rows=32)
    quantized = {"quantization": Quantization.W4A16}
    plain = prompt_seconds(setting, "qkv")
    ways = [prompt_seconds(one, "qkv", **quantized) for one in (setting, unpacked)]
    gpu = setting.machine.gpu
    reached = gpu.memory_bandwidth * gpu.efficiency.memory_bound.bandwidth_fraction
    written = (2 + FORMATS[Quantization.W4A16].weight) * 3 * 4096**2 / reached
    assert ways[1] - plain == pytest.approx(written, rel=0.1)
    assert ways[0] != ways[1]
    assert prompt_seconds(unpacked, "qkv") == plain


def test_scores_outside_fused_kernels_grow_with_the_square_of_the_prompt() -> None:
    added = []
    for tokens in (2048, 4096):
        setting = serving_setting("llama-7b", "a100-sxm-80gb", input_tokens=tokens)
        seconds = [
            prompt_seconds(one, "attention_prefill")
            for one in (setting, changed(setting, score_passes=5.0))
        ]
        added.append(seconds[1] - seconds[0])
    assert added[1] / added[0] == pytest.approx(4, rel=0.05)


def test_vector_products_read_as_much_as_the_multiprocessors_load() -> None:
    """108 of them read 1.1 TB/s at 10 GB/s each, half of what an A100 has."""
    setting = serving_setting("llama-7b", "a100-sxm-80gb", "llama-cpp")
    bounded = [changed(setting, vector_bandwidth=each) for each in (10e9, 5e9)]
    steps = [static_batch(one, replicas()).decode_step for one in bounded]
    seconds = [seconds_of(step, "gate_up") for step in steps]
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=0.1)


def test_hosts_launch_what_no_graph_holds() -> None:
    long = serving_setting("qwen2-0.5b", "h100-sxm-80gb", "vllm-v0-paged", input_tokens=8192)
    waits = [
        float(static_batch(one, replicas()).decode_step.launch_wait)
        for one in (long, changed(long, captured_context=16384))
    ]
    assert waits[0] > waits[1]
    mixture = serving_setting("mixtral-8x7b", "h100-sxm-80gb", "transformers")
    times = [
        float(static_batch(changed(mixture, expert_loop_time=each), replicas()).decode_step.total)
        for each in (0.001, 0.002)
    ]
    assert times[1] - times[0] == pytest.approx(32 * 8 * 0.001, rel=0.01)


def test_kernels_of_quantized_weights_have_a_rate_of_their_own() -> None:
    setting = serving_setting("llama-3.1-8b", "rtx4090-24gb", "lmdeploy")
    slow, fast = (changed(setting, quantized_bandwidth_fraction=rate) for rate in (1.0, 1.25))
    sixteen, four = (
        [
            float(static_batch(one, replicas(quantization=code)).decode_step.kernels)
            for one in (slow, fast)
        ]
        for code in (Quantization.W16A16, Quantization.W4A16)
    )
    assert sixteen[0] == sixteen[1]
    assert 0.8 < four[1] / four[0] < 0.95


def test_hosts_launch_more_for_each_quantized_matrix() -> None:
    """LLaMA has seven matrices in each of its 32 layers; 16-bit ones launch nothing more."""
    setting = serving_setting("llama-2-7b", "h100-sxm-80gb", "litgpt")
    slow, fast = (changed(setting, quantized_launch_time=each) for each in (0.0003, 0.0002))
    for code, more in ((Quantization.W4A16, 32 * 7 * 0.0001), (Quantization.W16A16, 0.0)):
        waits = [
            float(static_batch(one, replicas(quantization=code)).decode_step.total)
            for one in (slow, fast)
        ]
        assert waits[0] - waits[1] == pytest.approx(more)


@pytest.mark.parametrize(("gpu", "slower"), [("a100-sxm-80gb", True), ("h100-sxm-80gb", False)])
def test_an_8_bit_cache_is_unpacked_where_the_gpu_has_no_such_type(gpu: str, slower: bool) -> None:
    setting = serving_setting("llama-3-8b", gpu, "vllm-v0", input_tokens=2048)
    sixteen, eight = (
        float(static_batch(setting, replicas(concurrency=32, kv_cache=cache)).decode_step.kernels)
        for cache in (CacheType.BF16, CacheType.FP8)
    )
    assert (eight > 2 * sixteen) if slower else (eight < sixteen)


def test_memory_parts_add_up_and_weights_are_those_published() -> None:
    """LLaMA-2 70B has 68.98e9 parameters: 128.5 GiB in 16 bit, over two GPUs."""
    setting = serving_setting("llama-2-70b", "h100-sxm-80gb")
    memory = serving_memory(setting, replicas(num_gpus=2, tensor_parallel=2))
    parts = sum(float(getattr(memory, name)) for name in SERVING_MEMORY_PARTS)
    assert parts == pytest.approx(float(memory.total))
    assert memory.weights / GIB == pytest.approx(128.5 / 2, rel=0.01)


def test_hybrid_models_cache_their_attention_layers_and_keep_states() -> None:
    """Nemotron 3 Nano: 6 of 52 layers have keys and values, 23 a state in fp32 and 4 taps."""
    setting = serving_setting("nemotron-3-nano-30b-a3b", "h100-sxm-80gb")
    short, long = (
        float(sequence_bytes(setting, replicas(), tokens)) for tokens in (16_000, 32_000)
    )
    cached = 16_000 * 6 * 2 * 2 * 128 * 2.0
    states = 23 * (64 * 64 * 128 * 4 + 4 * 6144 * 2)
    assert long - short == pytest.approx(cached)
    assert short - cached == pytest.approx(states, rel=0.002)


def test_gguf_files_quantize_embedding_and_logits() -> None:
    """Llama 3 8B in Q4_K_M is a file of 4.58 GiB at 4.9 bits a weight."""
    setting = serving_setting("llama-3-8b", engine="llama-cpp")
    c = replicas(quantization=Quantization.W4A16)
    held = float(serving_memory(setting, c).weights)
    assert held * 4.9 / 8 / FORMATS[Quantization.W4A16].weight / GIB == pytest.approx(
        4.58, rel=0.01
    )
    engine = dataclasses.replace(setting.engine, quantized_ends=False)
    others = dataclasses.replace(setting, engine=engine)
    assert serving_memory(others, c).weights > 1.3 * held


@pytest.mark.parametrize(
    ("batch", "inputs", "outputs", "gib"),
    [(1, 128, 8, 14.48), (64, 128, 8, 20.65), (64, 512, 32, 38.97)],
)
def test_memory_of_fastertransformer(batch: int, inputs: int, outputs: int, gib: float) -> None:
    """docs/gpt_guide.md of FasterTransformer: GPT-6.7B on an A100."""
    setting = serving_setting(
        "gpt-6.7b-ft", engine="fastertransformer", input_tokens=inputs, output_tokens=outputs
    )
    assert serving_memory(
        setting, replicas(concurrency=batch, max_num_batched_tokens=10**6)
    ).total / GIB == pytest.approx(gib, rel=0.03)


def test_macos_keeps_a_part_of_the_memory() -> None:
    setting = serving_setting("llama-3-8b", "apple-m1-7c-8gb", engine="llama-cpp")
    assert setting.usable_memory / GIB == pytest.approx(5.33, rel=0.01)


def test_a_table_is_its_rows() -> None:
    """Predictions of a configuration do not depend on the others beside it."""
    setting = serving_setting("mixtral-8x7b", "h100-sxm-80gb", burst_share=0.1)
    values: dict[str, Any] = {
        "num_gpus": [2, 4, 8, 8],
        "tensor_parallel": [2, 4, 8, 4],
        "expert_parallel": [1, 2, 8, 4],
        "concurrency": [1, 17, 256, 900],
    }
    whole = evaluate_serving(setting, replicas(**values))
    for row in range(4):
        one = evaluate_serving(setting, replicas(**{k: [v[row]] for k, v in values.items()}))
        for name in ("time_to_first_token", "time_per_output_token", "request_rate"):
            mine, alone = getattr(whole.served, name), getattr(one.served, name)
            assert mine[row] == pytest.approx(float(alone[0]), rel=1e-12)
        assert whole.rejected_by[row] == one.rejected_by[0]


def test_little_s_law_holds_in_the_closed_loop() -> None:
    """Requests in flight = rate x latency, but for transport, which holds no place."""
    setting = serving_setting("llama-3.1-8b", "h100-sxm-80gb", output_tokens=512)
    engine = setting.engine
    quick = dataclasses.replace(engine.execution, request_overhead=0.0)
    still = dataclasses.replace(engine.scheduler, clustering=0.0)
    setting = dataclasses.replace(
        setting, engine=dataclasses.replace(engine, execution=quick, scheduler=still)
    )
    c = replicas(concurrency=np.array([1.0, 8.0, 64.0, 128.0]))
    served = served_at_concurrency(setting, c, serving_memory(setting, c))
    latency = served.request_latency(512)
    assert served.request_rate * latency == pytest.approx(c.concurrency, rel=0.02)


def test_more_requests_are_slower_each_and_faster_together() -> None:
    setting = serving_setting("llama-3.1-70b", "h200-sxm-141gb", input_tokens=2000)
    c = replicas(num_gpus=4, tensor_parallel=4, concurrency=np.arange(1.0, 129.0))
    estimate = evaluate_serving(setting, c)
    assert (np.diff(estimate.served.time_per_output_token) > 0).all()
    assert (np.diff(estimate.output_tokens_per_second) > 0).all()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tensor_parallel": 3, "num_gpus": 3}, "attention_heads"),
        ({"quantization": Quantization.FP8}, "quantization"),
        ({"kv_cache": CacheType.FP8}, "kv_cache"),
        ({"expert_parallel": 2, "num_gpus": 2, "tensor_parallel": 2}, "expert_parallel"),
        ({"attention_data_parallel": 2, "num_gpus": 2}, "attention_data_parallel"),
        ({"tensor_parallel": 16, "num_gpus": 16}, "fabric"),
        ({"concurrency": 100_000}, "out_of_memory"),
    ],
)
def test_what_is_impossible_says_why(change: dict[str, Any], rule: str) -> None:
    """On an A100, which has no fp8."""
    estimate = evaluate_serving(serving_setting(), replicas(**change))
    assert SERVING_REJECTIONS[int(estimate.rejected_by) - 1] == rule


def test_longer_than_the_model_s_positions() -> None:
    setting = serving_setting(input_tokens=2000, output_tokens=2000)
    estimate = evaluate_serving(setting, replicas())
    assert SERVING_REJECTIONS[int(estimate.rejected_by) - 1] == "context_length"


def test_drafts_and_cached_prefixes_help() -> None:
    plain = serving_setting("llama-3.1-8b", "h100-sxm-80gb", input_tokens=4000)
    drafted = serving_setting(
        "llama-3.1-8b", "h100-sxm-80gb", input_tokens=4000, draft_tokens=3, acceptance_rate=0.8
    )
    cached = serving_setting(
        "llama-3.1-8b", "h100-sxm-80gb", input_tokens=4000, prefix_cache_hit_rate=0.9
    )
    c = replicas(concurrency=4)
    of = {
        name: evaluate_serving(setting, c).served
        for name, setting in (("plain", plain), ("drafted", drafted), ("cached", cached))
    }
    assert of["drafted"].time_per_output_token < 0.6 * of["plain"].time_per_output_token
    assert of["cached"].time_to_first_token < 0.6 * of["plain"].time_to_first_token


def test_offloaded_weights_wait_for_the_host_link() -> None:
    """LLaMA-2 13B does not fit 24 GB; over PCIe 4.0 x16 a step lasts at least 26 GB / 32 GB/s."""
    setting = serving_setting("llama-2-13b", "rtx4090-24gb", "transformers")
    c = replicas(weight_offload=np.array([0.0, 1.0]))
    estimate = evaluate_serving(setting, c)
    assert [bool(code) for code in estimate.rejected_by] == [True, False]
    slow = static_batch(setting, replicas(weight_offload=1.0)).time_per_output_token
    host = setting.machine.gpu.host
    assert host is not None
    assert host.bandwidth is not None
    assert slow >= 0.95 * 26.0e9 / host.bandwidth


def test_a_cpu_serves_too() -> None:
    setting = serving_setting("llama-2-7b", "xeon-8480-2s", "llama-cpp")
    batch = static_batch(setting, replicas())
    fastest = 13.5e9 / setting.machine.gpu.memory_bandwidth
    assert fastest < batch.time_per_output_token < 5 * fastest
