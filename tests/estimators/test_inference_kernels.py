"""What an engine says of its kernels, and of the host that launches them."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.base.enums import (
    CacheType,
    Precision,
    Quantization,
)
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.engine_step import InferenceStep
from planner.estimators.inference.kernels import Kernels
from planner.estimators.inference.static_batch import static_batch
from planner.specs.quantization import FORMATS
from planner.workloads.serving.question import without_cuda_graphs


def changed(setting: ServingInputs, **execution: Any) -> ServingInputs:
    """The setting with other values of its engine's execution."""
    values = dataclasses.replace(setting.engine.execution, **execution)
    return dataclasses.replace(
        setting, engine=dataclasses.replace(setting.engine, execution=values)
    )


def seconds_of(step: InferenceStep, operator: str) -> float:
    """Seconds of an operator in the last layer of a step, which has it."""
    *_, (_, operators) = step.layers
    (found,) = (o for o in operators if o.name == operator)
    return float(found.forward)


def attention_seconds(setting: ServingInputs, concurrency: int, tensor_parallel: int = 1) -> float:
    """Seconds of decode attention in one layer of a decode step."""
    c = replicas(num_gpus=tensor_parallel, tensor_parallel=tensor_parallel, concurrency=concurrency)
    return seconds_of(static_batch(setting, c).decode_step, "attention_decode")


def prompt_seconds(setting: ServingInputs, operator: str, **values: Any) -> float:
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
    split = engine.attention_split
    slower = 1 / split.unsplit_bandwidth_fraction
    assert ratio == pytest.approx(slower if unsplit else 1.0, rel=0.15)
    blocks = 32 // tensor_parallel * concurrency
    used: Any = SimpleNamespace(engine=engine, machine=setting.machine)
    _, reads = Kernels._cache_reads(used, blocks, np.asarray(float(input_tokens)))
    repeated = engine.execution.repeated_read_fraction
    assert reads == (split.unsplit_repeated_read_fraction if unsplit else repeated)


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


def test_an_all_reduce_that_leaves_a_node_waits_for_the_host() -> None:
    """Two of each layer and one of the embedding; without graphs the host is ahead of them."""
    waits = serving_setting("llama-2-70b", "h100-sxm-80gb", engine="sglang")
    free = changed(waits, network_callback_time=0.0)
    each = waits.engine.execution.network_callback_time
    for tp, expected in ((8, 0.0), (16, (2 * 80 + 1) * each)):
        c = replicas(num_gpus=tp, tensor_parallel=tp)
        steps = [static_batch(one, c).decode_step.kernels for one in (waits, free)]
        assert steps[0] - steps[1] == pytest.approx(expected, rel=1e-6)
    assert each > 0
    assert without_cuda_graphs(waits.engine).execution.network_callback_time == 0.0


@pytest.mark.parametrize(
    ("gpu", "cache", "faster"),
    [
        ("b200-sxm-180gb", CacheType.FP8, 1.5),
        ("b200-sxm-180gb", CacheType.BF16, 1.0),
        ("h200-sxm-141gb", CacheType.FP8, 1.0),
    ],
)
def test_latent_attention_over_an_8_bit_cache_computes_in_8_bit_on_blackwell(
    gpu: str, cache: CacheType, faster: float
) -> None:
    """All heads share a latent, so that arithmetic bounds it."""
    setting = serving_setting(
        "deepseek-v3", gpu, engine="tensorrt-llm", input_tokens=8000, output_tokens=200
    )
    none = dataclasses.replace(setting.engine, fp8_cache_compute_by_architecture={})
    c = replicas(
        num_gpus=8, attention_data_parallel=8, expert_parallel=8, concurrency=512, kv_cache=cache
    )
    seconds = []
    for engine in (none, setting.engine):
        step = static_batch(dataclasses.replace(setting, engine=engine), c).decode_step
        _, operators = step.layers[-1]
        seconds += [float(o.forward) for o in operators if o.name == "attention_decode"]
    assert seconds[0] / seconds[1] == pytest.approx(faster, rel=0.05)


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
    unpacked = changed(setting, unpacked_rows=33)
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


@pytest.mark.parametrize(
    ("gpu", "slower"), [("a100-sxm-80gb", 1 / 0.3), ("h100-sxm-80gb", 1.0), ("b200", 1.0)]
)
def test_prompts_with_sinks_take_triton_before_hopper(gpu: str, slower: float) -> None:
    """github.com/vllm-project/vllm/issues/22331: sinks are only supported in FlashAttention 3."""
    setting = serving_setting("gpt-oss-20b", gpu, input_tokens=32_000)
    plain = dataclasses.replace(setting.engine, sink_rate_by_architecture={})
    seconds = [
        prompt_seconds(dataclasses.replace(setting, engine=engine), "attention_prefill")
        for engine in (setting.engine, plain)
    ]
    assert seconds[0] / seconds[1] == pytest.approx(slower, rel=0.02)


def test_experts_with_biases_are_slow_in_sglang_on_ampere() -> None:
    """GPUStack performance lab: 8,192 tokens of gpt-oss-20b take 4.2 s on A100."""
    setting = serving_setting("gpt-oss-20b", "a100-sxm-80gb", "sglang", input_tokens=8192)
    c = replicas(expert_quantization=Quantization.MXFP4)
    *_, (_, operators) = static_batch(setting, c).prefill_step.layers
    experts = next(each for each in operators if each.name == "experts")
    assert float(experts.flops / experts.forward) / 1e12 == pytest.approx(10, rel=0.35)
    assert not serving_setting("qwen3-30b-a3b", "a100-sxm-80gb", "sglang").kernels.biased_experts


def test_vector_products_read_as_much_as_the_multiprocessors_load() -> None:
    """108 of them read 1.1 TB/s at 10 GB/s each, half of what an A100 has."""
    setting = serving_setting("llama-7b", "a100-sxm-80gb", "llama-cpp")
    bounded = [changed(setting, vector_bandwidth=each) for each in (10e9, 5e9)]
    steps = [static_batch(one, replicas()).decode_step for one in bounded]
    seconds = [seconds_of(step, "gate_up") for step in steps]
    assert seconds[1] == pytest.approx(2 * seconds[0], rel=0.1)


def test_each_row_of_few_costs_instructions_where_weights_are_packed() -> None:
    """3.3 instructions of a lane for each of 4,096 x 4,096 weights; an A100 runs 9.75e12 a second.

    More than 8 rows are multiplied by tensor cores.
    """
    kernels = serving_setting("llama-7b", "a100-sxm-80gb", "llama-cpp").kernels
    plain = changed(serving_setting("llama-7b", "a100-sxm-80gb", "llama-cpp"), vector_rows=0)
    rows = np.array([1.0, 2.0, 5.0, 9.0])
    for code, of_row in ((Quantization.W4A16, 3.3 * 4096**2 / 9.75e12), (Quantization.W16A16, 0)):
        seconds = [
            each.linear(rows, 4096.0, 4096.0, each.matrices(np.asarray(code, np.int8)))
            for each in (kernels, plain.kernels)
        ]
        assert seconds[0] - seconds[1] == pytest.approx(np.array([0, 1, 4, 0]) * of_row, rel=1e-6)


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


def test_hosts_launch_experts_that_the_engine_has_no_compiled_kernels_for() -> None:
    """InferenceX, TensorRT-LLM on H200: 89 to 103 ms to first tokens on 1 to 16 GPUs."""
    tensor_parallel = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    first_tokens = {}
    for gpu, code in (
        ("h200-sxm-141gb", Quantization.MXFP4),
        ("h200-sxm-141gb", Quantization.FP8),
        ("b200-sxm-180gb", Quantization.MXFP4),
    ):
        setting = serving_setting("gpt-oss-120b", gpu, "tensorrt-llm", input_tokens=1024)
        c = replicas(
            num_gpus=tensor_parallel, tensor_parallel=tensor_parallel, expert_quantization=code
        )
        step = static_batch(setting, c).prefill_step
        first_tokens[gpu, code] = np.ravel(step.total + setting.engine.execution.request_overhead)
    on_h200, in_fp8, on_b200 = first_tokens.values()
    assert on_h200 == pytest.approx(np.array([0.089, 0.092, 0.094, 0.103, 0.096]), rel=0.2)
    assert in_fp8[-1] < 0.7 * on_h200[-1] > on_b200[-1]


@pytest.mark.parametrize(("gpu", "slower"), [("a100-sxm-80gb", True), ("h100-sxm-80gb", False)])
def test_an_8_bit_cache_is_unpacked_where_the_gpu_has_no_such_type(gpu: str, slower: bool) -> None:
    setting = serving_setting("llama-3-8b", gpu, "vllm-v0", input_tokens=2048)
    sixteen, eight = (
        float(static_batch(setting, replicas(concurrency=32, kv_cache=cache)).decode_step.kernels)
        for cache in (CacheType.BF16, CacheType.FP8)
    )
    assert (eight > 2 * sixteen) if slower else (eight < sixteen)


@pytest.mark.parametrize(("cache", "instructions"), [(CacheType.BF16, 40.0), (CacheType.FP8, 60.0)])
def test_attention_on_vector_lanes_costs_instructions_for_every_query_head(
    cache: CacheType, instructions: float
) -> None:
    """Of keys and values: 16 sequences, 8 heads of 128 and 4 queries on each, 1,950 tokens."""
    shared = serving_setting("llama-3-8b", "h100-sxm-80gb", input_tokens=1900, output_tokens=100)
    lanes = {"vector_attention_instructions": 40.0, "vector_attention_instructions_8bit": 60.0}
    seconds = [
        seconds_of(
            static_batch(one, replicas(concurrency=16, kv_cache=cache)).decode_step,
            "attention_decode",
        )
        for one in (shared, changed(shared, **lanes), changed(shared, **lanes, tensor_core_group=4))
    ]
    peak = shared.machine.gpu.peak_flops[Precision.FP32]
    elements = 16 * 2 * 8 * 128 * 1950
    started = 2e-5
    assert seconds[1] == pytest.approx(4 * elements * 2 * instructions / peak, abs=started)
    assert seconds[0] == seconds[2] < seconds[1]


@pytest.mark.parametrize(("sequences", "on_lanes"), [(4, True), (5, False)])
def test_tensor_cores_wait_for_blocks_on_a_share_of_the_multiprocessors(
    sequences: int, on_lanes: bool
) -> None:
    """A quarter of 132 multiprocessors is 33 blocks: one for each of 8 key heads of a sequence."""
    shared = serving_setting("llama-3-8b", "h100-sxm-80gb", input_tokens=1900, output_tokens=100)
    lanes = {"vector_attention_instructions": 400.0, "tensor_core_group": 4}
    quick = attention_seconds(changed(shared, **lanes), sequences)
    found = attention_seconds(changed(shared, **lanes, tensor_core_blocks=0.25), sequences)
    assert (found > quick) == on_lanes


@pytest.mark.parametrize(
    ("model", "ranks", "layers", "milliseconds"),
    [("mistral-7b", 1, 32, 0.92), ("llama-2-70b", 4, 80, 2.2)],
)
def test_one_block_for_each_head_reads_a_context_at_its_own_pace(
    model: str, ranks: int, layers: int, milliseconds: float
) -> None:
    """argonne-lcf/LLM-Inference-Bench@4211f5d: what 2,880 more cached tokens add to a step.

    It is the same for 8 key heads on one H100 and for 2 on each of four.
    """
    short, long = (
        attention_seconds(
            serving_setting(model, "h100-sxm-80gb", "tensorrt-llm-run",
                            input_tokens=n, output_tokens=n), 1, ranks
        )
        for n in (128, 2048)
    )  # fmt: skip
    assert layers * (long - short) * 1e3 == pytest.approx(milliseconds, rel=0.25)


@pytest.mark.parametrize(("model", "reduced"), [("falcon-40b", 60), ("llama-13b", 0)])
def test_blocks_side_by_side_share_an_all_reduce_where_the_engine_joins_them(
    model: str, reduced: int
) -> None:
    apart = serving_setting(model, "l40s-48gb")
    c = replicas(num_gpus=2, tensor_parallel=2)
    steps = [
        static_batch(one, c).decode_step for one in (apart, changed(apart, joined_all_reduce=True))
    ]
    each = seconds_of(steps[0], "attention_all_reduce")
    saved = float(steps[0].kernels - steps[1].kernels)
    assert each > 0
    assert saved == pytest.approx(reduced * each)


@pytest.mark.parametrize(
    ("gpu", "quantization", "shape", "milliseconds"),
    [
        ("h200-sxm-141gb", Quantization.MXFP4, (8192, 2880, 2880, 128, 4), 4.302),
        ("h200-sxm-141gb", Quantization.MXFP4, (4096, 2880, 2880, 32, 4), 2.200),
        ("h200-sxm-141gb", Quantization.FP8, (4096, 4096, 14336 / 2, 8, 2), 1.055),
        ("h200-sxm-141gb", Quantization.FP8, (1024, 4096, 14336 / 4, 8, 2), 0.202),
        ("h200-sxm-141gb", Quantization.W4A16, (2048, 7168, 2048 / 8, 256, 8), 0.987),
        ("a100-sxm-80gb", Quantization.W4A16, (1024, 4096, 14336 / 2, 8, 2), 2.408),
        ("b300-sxm", Quantization.MXFP4, (8192, 2880, 2880, 128, 4), 0.805),
    ],
)
def test_experts_take_what_was_measured(
    gpu: str, quantization: Quantization, shape: tuple[float, ...], milliseconds: float
) -> None:
    """Tables of aiconfigurator-core 0.12.0: TensorRT-LLM 1.3.0rc20, of int4 SGLang 0.5.10."""
    tokens, hidden_size, width, num_experts, per_token = shape
    setting = serving_setting("mixtral-8x7b", gpu, "tensorrt-llm-cpp")
    seconds = Kernels(machine=setting.machine, engine=setting.engine).experts(
        tokens=tokens,
        pairs=tokens * per_token,
        num_experts=int(num_experts),
        num_experts_per_tok=int(per_token),
        local_experts=num_experts,
        hidden_size=int(hidden_size),
        width=width,
        matrices=3,
        quantization=np.asarray(quantization),
        dispersion=1.0,
    )
    assert 1e3 * float(seconds) == pytest.approx(milliseconds, rel=0.3)
