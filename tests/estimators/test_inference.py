"""Prefill, decode and serving against published rooflines and by hand."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.base.units import GIB
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.closed_loop import served_at_concurrency
from planner.estimators.inference.serving_estimate import SERVING_REJECTIONS, evaluate_serving
from planner.estimators.inference.serving_memory import (
    SERVING_MEMORY_PARTS,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.inference.static_batch import static_batch
from planner.estimators.inference.weights import weight_bytes
from planner.specs.quantization import FORMATS

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
        layers = sum(n * sum(float(o.forward) for o in ops) for n, ops in step.layers)
        ends = sum(float(o.forward) for o in step.ends)
        assert layers + ends == pytest.approx(float(step.kernels))
        parts = (
            step.kernels,
            step.pipeline,
            step.launch_wait,
            step.transfer_wait,
            step.overhead,
            step.untuned,
        )
        assert sum(map(float, parts)) == pytest.approx(float(step.total))


def test_memory_parts_add_up_and_weights_are_those_published() -> None:
    """LLaMA-2 70B has 68.98e9 parameters: 128.5 GiB in 16 bit, over two GPUs."""
    setting = serving_setting("llama-2-70b", "h100-sxm-80gb")
    memory = serving_memory(setting, replicas(num_gpus=2, tensor_parallel=2))
    parts = sum(float(getattr(memory, name)) for name in SERVING_MEMORY_PARTS)
    assert parts == pytest.approx(float(memory.total))
    assert memory.weights / GIB == pytest.approx(128.5 / 2, rel=0.01)


def _without_shared_pages(setting: ServingInputs) -> ServingInputs:
    """The setting with an engine whose states have buffers of their own."""
    memory = dataclasses.replace(setting.engine.memory, pooled_states=False)
    return dataclasses.replace(setting, engine=dataclasses.replace(setting.engine, memory=memory))


def test_hybrid_models_cache_their_attention_layers_and_keep_states() -> None:
    """Nemotron 3 Nano: 6 of 52 layers have keys and values, 23 a state in fp32 and 4 taps."""
    setting = _without_shared_pages(serving_setting("nemotron-3-nano-30b-a3b", "h100-sxm-80gb"))
    short, long = (
        float(sequence_bytes(setting, replicas(), tokens)) for tokens in (16_000, 32_000)
    )
    cached = 16_000 * 6 * 2 * 2 * 128 * 2.0
    states = 23 * (64 * 64 * 128 * 4 + 4 * 6144 * 2)
    assert long - short == pytest.approx(cached)
    assert short - cached == pytest.approx(states, rel=0.002)


@pytest.mark.parametrize(
    ("model", "cached", "states"),
    [
        # 4 layers with 8 heads of keys and values; 28 with 16 numbers in fp32 a channel and 4 taps.
        ("jamba-mini", 4 * 2 * 8 * 128 * 2, 28 * (8192 * 16 * 4 + 4 * 8192 * 2)),
        # Each layer has both: 32 heads of 128 x 256, taps of 4,096 channels, B and C of 2 groups.
        ("falcon-h1-34b", 72 * 2 * 4 * 128 * 2, 72 * (4096 * 256 * 4 + 4 * (4096 + 1024) * 2)),
        # 70 layers with 64 heads of 128 x 128 and no taps.
        ("minimax-text-01", 10 * 2 * 8 * 128 * 2, 70 * 64 * 128 * 128 * 4),
    ],
)
def test_states_of_every_kind(model: str, cached: int, states: int) -> None:
    setting = _without_shared_pages(serving_setting(model, "h100-sxm-80gb"))
    short, long = (
        float(sequence_bytes(setting, replicas(), tokens)) for tokens in (16_000, 32_000)
    )
    assert long - short == pytest.approx(16_000 * cached)
    half_a_block = 7.5
    assert short - (16_000 + half_a_block) * cached == pytest.approx(states)


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("IQ1_S", 1.87), ("IQ2_XXS", 2.23), ("Q2_K", 2.95), ("Q3_K_M", 3.74), ("Q3_K_L", 4.02),
        ("Q4_0", 4.34), ("Q4_K_M", 4.58), ("Q5_K_M", 5.33), ("Q6_K", 6.14), ("Q8_0", 7.95),
    ],
)  # fmt: skip
def test_sizes_of_gguf_files(kind: str, size: float) -> None:
    """Llama 3.1 8B, in GiB: tools/quantize/README.md of llama.cpp."""
    setting = serving_setting("llama-3.1-8b", engine="llama-cpp")
    found = serving_memory(setting, replicas(quantization=Quantization[kind])).weights
    assert float(found) / GIB == pytest.approx(size, rel=0.005)


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        (
            "llama-3.3-70b",  # huggingface.co/bartowski/Llama-3.3-70B-Instruct-GGUF
            {
                "IQ1_M": 16.8, "IQ2_XXS": 19.1, "IQ2_XS": 21.1, "IQ2_S": 22.2, "IQ2_M": 24.1,
                "Q2_K": 26.4, "IQ3_XXS": 27.5, "IQ3_XS": 29.3, "Q3_K_S": 30.9, "IQ3_M": 31.9,
                "Q3_K_M": 34.3, "Q3_K_L": 37.1, "IQ4_XS": 37.9, "IQ4_NL": 40.1, "Q4_0": 40.1,
                "Q4_K_S": 40.3, "Q4_K_M": 42.5, "Q5_K_S": 48.7,
            },
        ),
        (
            "llama-3.2-1b",  # huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF
            {
                "IQ3_M": 0.657, "Q3_K_L": 0.733, "IQ4_XS": 0.743, "Q4_0": 0.773,
                "Q4_K_S": 0.776, "Q4_K_M": 0.808,
            },
        ),
        (
            "gemma-7b",  # huggingface.co/mradermacher/gemma-7b-GGUF
            {
                "Q2_K": 3.48, "Q3_K_S": 3.98, "IQ3_M": 4.11, "Q3_K_M": 4.37, "Q3_K_L": 4.71,
                "IQ4_XS": 4.81, "IQ4_NL": 5.04, "Q4_0": 5.01, "Q4_K_M": 5.33, "Q5_K_M": 6.14,
                "Q6_K": 7.01, "Q8_0": 9.08,
            },
        ),
    ],
)  # fmt: skip
def test_embedding_and_logits_have_types_of_their_own(model: str, sizes: dict[str, float]) -> None:
    """Files in GB whose vocabulary is a smaller or larger part than in Llama 3.1 8B."""
    setting = serving_setting(model, engine="llama-cpp")
    errors = {
        kind: float(serving_memory(setting, replicas(quantization=Quantization[kind])).weights)
        / (size * 1e9)
        - 1
        for kind, size in sizes.items()
    }
    assert max(map(abs, errors.values())) < 0.03, errors


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
    setting = serving_setting("mixtral-8x7b", "h100-sxm-80gb", num_requests=1000)
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
    assert (np.diff(estimate.request_rate) > 0).all()


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"tensor_parallel": 3, "num_gpus": 3}, "attention_heads"),
        ({"quantization": Quantization.FP8}, "quantization"),
        ({"expert_parallel": 2, "num_gpus": 2, "tensor_parallel": 2}, "expert_parallel"),
        ({"attention_data_parallel": 2, "num_gpus": 2}, "attention_data_parallel"),
        ({"concurrency": 100_000}, "out_of_memory"),
    ],
)
def test_what_is_impossible_says_why(change: dict[str, Any], rule: str) -> None:
    """On an A100, which has no fp8, with an engine that does not do without."""
    setting = serving_setting(engine="tensorrt-llm")
    estimate = evaluate_serving(setting, replicas(**change))
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


@pytest.mark.parametrize(
    ("pipeline", "concurrency", "in_prefill", "in_decode"),
    [(1, 256, 1, 1), (3, 32, 1, 1), (3, 64, 2, 1), (3, 96, 3, 3), (3, 100, 2, 1), (3, 9, 3, 3)],
)
def test_fastertransformer_halves_a_batch_until_its_tokens_are_few(
    pipeline: int, concurrency: int, in_prefill: int, in_decode: int
) -> None:
    """At most 1,024 tokens pass its pipeline together; equal shares where stages divide."""
    setting = serving_setting("llama-7b", engine="fastertransformer", input_tokens=20)
    c = replicas(num_gpus=pipeline, pipeline_parallel=pipeline, concurrency=concurrency)
    batch = static_batch(setting, c)
    prefill, decode = batch.prefill_step, batch.decode_step
    assert batch.time_to_first_token == pytest.approx(
        prefill.total + (in_prefill - 1) * prefill.slowest_stage
    )
    assert batch.time_per_output_token == pytest.approx(decode.cycle(in_decode))


def test_embedding_and_logits_have_the_bits_that_are_said() -> None:
    """llm-analysis' e32 beside e16: two matrices of 32,000 x 4,096, and one is read each step."""
    import planner

    def served(**more: object) -> tuple[float, float]:
        found = planner.estimate(
            workload="inference", model="llama-2-7b", gpu="a100-sxm-80gb", num_gpus=1,
            engine="vllm", input_tokens=512, output_tokens=32, settings={"concurrency": 1}, **more,
        ).table()  # fmt: skip
        return float(found["memory_weights_gib"][0]), float(found["decode_latency_s"][0])

    numbers = 32_000 * 4096
    (plain, usual), (same, as_usual), (wide, slow), (narrow, fast) = (
        served(), *(served(embedding_bits=bits) for bits in (16, 32, 8))
    )  # fmt: skip
    assert (plain, usual) == (same, as_usual)
    assert wide - plain == pytest.approx(2 * numbers * 2 / 2**30, rel=1e-6)
    assert plain - narrow == pytest.approx(2 * numbers / 2**30, rel=1e-6)
    # 262 MB more at 60 to 100 % of 2,039 GB/s.
    assert numbers * 2 / 2.039e12 <= slow - usual <= numbers * 2 / 1.2e12
    assert fast < usual
    with pytest.raises(planner.errors.PlannerError, match="embedding_bits"):
        served(embedding_bits=3)
