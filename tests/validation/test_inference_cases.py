"""What a row of inference is taken to mean: engines, precisions, layouts, conventions."""

import pytest
from sample_inference import DISAGGREGATED, run_of

from planner.enums import CacheType, Quantization
from planner.validation.inference.cases import Mode, inference_case
from planner.validation.inference.tables import engine_rule
from planner.validation.models import NotPredicted


@pytest.fixture(scope="module")
def case(library):
    return lambda **changes: inference_case(run_of(**changes), library)


@pytest.mark.parametrize(
    ("written", "model"),
    [
        ("TheBloke/Qwen1.5-72B-Chat-GPTQ-Int4", "Qwen1.5 72B"),
        ("TheBloke/Llama-2-7B-GPTQ-4bit-128g", "Llama 2 7B"),
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "Llama 3.2 1B"),
        ("Llama2-70B LoRA", "Llama 2 70B"),
        ("amd/Llama-3.1-405B-Instruct-FP8-KV", "Llama 3.1 405B"),
        ("RedHatAI/Llama-3.3-70B-Instruct-quantized.w8a8", "Llama 3.3 70B"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "Llama 3.3 70B"),
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "DeepSeek-V3"),
        ("Mistral-Small-3.2-24B", "Mistral Small 3.1 24B"),
        ("mistralai/Mistral-Nemo-12B-Instruct-2407", "Mistral NeMo 12B"),
    ],
)
def test_releases_and_formats_are_no_other_models(case, written, model):
    assert case(model=written).model.name == model


@pytest.mark.parametrize(
    ("engine", "version", "year", "gpu", "profile"),
    [
        ("trtllm", "1.0.0rc3", None, "h100-sxm-80gb", "tensorrt-llm"),
        ("tensorrt-llm+triton", "0.14.0", 2024, "h100-sxm-80gb", "tensorrt-llm-cpp"),
        ("tensorrt-llm", "0.7.1", 2024, "h100-sxm-80gb", "tensorrt-llm-cpp-mmha"),
        ("tensorrt-llm", "0.8.0", 2024, "h100-sxm-80gb", "tensorrt-llm-cpp-xqa"),
        ("tensorrt-llm", "0.10.0", 2024, "h100-sxm-80gb", "tensorrt-llm-cpp-xqa"),
        ("tensorrt-llm", "0.11.0", 2024, "h100-sxm-80gb", "tensorrt-llm-cpp"),
        ("tensorrt-llm", "", 2024, "h100-sxm-80gb", "tensorrt-llm-cpp"),
        ("nim-trtllm", "", None, "h100-sxm-80gb", "tensorrt-llm-cpp"),
        ("vllm", "0.6.1", 2024, "h100-sxm-80gb", "vllm-v0"),
        ("vllm", "", 2024, "h100-sxm-80gb", "vllm-v0"),
        ("vllm", "0.4.2", 2024, "a100-sxm-80gb", "vllm-v0-paged"),
        ("vllm", "", 2025, "h100-sxm-80gb", "vllm"),
        ("vllm", "", None, "h100-sxm-80gb", "vllm"),
        ("vllm", "0.12.0", 2025, "h100-sxm-80gb", "vllm"),
        ("vllm", "0.6.1", 2024, "mi300x-192gb", "vllm-v0-ports"),
        ("vllm-rocm", "0.9.0.1", 2025, "mi300x-192gb", "vllm"),
        ("lmdeploy-turbomind", "", None, "h100-sxm-80gb", "lmdeploy"),
        ("megatron-lm-inference", "", None, "h100-sxm-80gb", "transformers"),
        ("llama.cpp", "", None, "h100-sxm-80gb", "llama-cpp"),
        ("llama.cpp", "", None, "mi300x-192gb", "llama-cpp-ports"),
        ("llama.cpp", "", None, "apple-m1-7c-8gb", "llama-cpp-metal"),
        ("torchao-gptfast", "", None, "h100-sxm-80gb", "gpt-fast"),
        ("autoawq", "", None, "h100-sxm-80gb", "autoawq"),
        ("exllamav2", "", None, "rtx4090-24gb", "exllama"),
        ("flexgen", "", None, "h100-sxm-80gb", "flexgen"),
        ("deepspeed-zero-inference", "", None, "a6000-48gb", "deepspeed-inference"),
        ("hf-accelerate", "", None, "t4-16gb", "transformers"),
        ("optimum-habana-deepspeed", "", None, "gaudi2", "optimum-habana"),
        ("hf-transformers", "4.46", None, "h100-sxm-80gb", "transformers"),
        ("litgpt", "", None, "a100-sxm-40gb", "litgpt"),
        ("something new", "", None, "h100-sxm-80gb", "transformers"),
    ],
)
def test_engines_find_their_profile(library, engine, version, year, gpu, profile):
    rule = engine_rule(engine, version, year, gpu)
    assert rule.profile == profile
    assert library.engine(profile).name


@pytest.mark.parametrize(
    ("version", "year", "gpu", "mode", "profile"),
    [
        ("", 2024, "h100-sxm-80gb", "static_batch", "tensorrt-llm-run"),
        ("0.11.0", 2024, "a100-sxm-40gb", "static_batch", "tensorrt-llm-run"),
        ("", 2024, "h100-sxm-80gb", "online", "tensorrt-llm-cpp"),
        ("", 2025, "h100-sxm-80gb", "static_batch", "tensorrt-llm"),
        ("", 2024, "gh200-96gb", "static_batch", "tensorrt-llm-cpp"),
        ("0.9.0", 2024, "h100-sxm-80gb", "static_batch", "tensorrt-llm-cpp-xqa"),
        ("0.12.0", 2024, "h100-sxm-80gb", "static_batch", "tensorrt-llm-cpp"),
    ],
)
def test_static_batches_of_tensorrt_llm_have_a_driver_of_their_own(
    version, year, gpu, mode, profile
):
    assert engine_rule("tensorrt-llm", version, year, gpu, mode).profile == profile


def test_only_clients_that_wait_for_answers_start_together(library):
    notes = {"mode": "online", "notes": "request rate 4 req/s"}
    offered = inference_case(run_of(concurrency="", **notes), library).traffic.workload
    assert (offered.request_rate, offered.burst_share) == (4.0, 0.0)
    held = inference_case(run_of(concurrency="8", **notes), library).traffic.workload
    assert held.request_rate is None
    assert held.burst_share > 0


def test_a_source_may_say_how_much_memory_its_cards_have(library):
    stated = run_of(gpu="a10-24gb", notes='test environment "2 * A10, 20G / 2 * A800, 80G"')
    assert inference_case(stated, library).gpu.memory_capacity == 20 * 2**30
    assert inference_case(run_of(gpu="a10-24gb"), library).gpu.memory_capacity == 24 * 2**30


@pytest.mark.parametrize(
    ("changes", "dense", "experts"),
    [
        ({}, "W16A16", "W16A16"),
        ({"weight_precision": ""}, "W16A16", "W16A16"),
        ({"weight_precision": "fp8"}, "FP8", "FP8_BLOCK"),
        ({"model": "deepseek-v3", "weight_precision": "fp8"}, "FP8_BLOCK", "FP8_BLOCK"),
        ({"model": "deepseek-r1", "weight_precision": "fp4", "gpu": "b200"}, "FP8", "NVFP4"),
        ({"model": "openai/gpt-oss-120b", "weight_precision": "fp4"}, "W16A16", "MXFP4"),
        ({"model": "moonshotai/Kimi-K2.5", "weight_precision": "int4"}, "W16A16", "W4A16"),
        ({"model": "nvidia/Llama-3.1-8B-Instruct-FP8", "weight_precision": ""}, "FP8", "FP8_BLOCK"),
        ({"weight_precision": "int4", "activation_precision": "fp16"}, "W4A16", "W4A16"),
        ({"weight_precision": "int8", "activation_precision": "int8"}, "W8A8", "W8A8"),
        ({"weight_precision": "int8", "activation_precision": "fp16"}, "W8A16", "W8A16"),
        ({"weight_precision": "fp8", "gpu": "a100-sxm-80gb"}, "W8A16", "W8A16"),
        ({"weight_precision": "fp4"}, "W4A16", "W4A16"),
    ],
)
def test_checkpoints_say_their_quantization(case, changes, dense, experts):
    changes = changes | ({"gpu": "b200-sxm-180gb"} if changes.get("gpu") == "b200" else {})
    replica = case(**changes).replica
    assert (replica.quantization, replica.expert_quantization) == (
        Quantization[dense],
        Quantization[experts],
    )


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({}, CacheType.BF16),
        ({"kv_cache_precision": "fp8"}, CacheType.FP8),
        ({"kv_cache_precision": "int8"}, CacheType.INT8),
        ({"framework": "trtllm", "weight_precision": "fp8"}, CacheType.FP8),
        ({"framework": "trtllm"}, CacheType.BF16),
        ({"framework": "sglang", "weight_precision": "fp8"}, CacheType.BF16),
    ],
)
def test_caches_where_nothing_is_said(case, changes, cache):
    assert case(**changes).replica.kv_cache is cache


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_gpus": "8", "tensor_parallel": "4"}, (4, 1, 1, 2)),
        ({"num_gpus": "12", "tensor_parallel": "24"}, (12, 1, 1, 1)),
        ({"num_gpus": "", "tensor_parallel": "4", "attention_data_parallel": "2"}, (4, 2, 1, 1)),
        # 8 GPUs, counted once by tensor and once by expert parallel.
        (
            {"num_gpus": "", "tensor_parallel": "64", "expert_tensor_parallel": "8",
             "expert_parallel": "8", "model": "deepseek-v3"},
            (8, 1, 8, 1),
        ),
        (
            {"num_gpus": "", "tensor_parallel": "1", "attention_data_parallel": "64",
             "expert_tensor_parallel": "8", "expert_parallel": "8", "model": "deepseek-v3"},
            (1, 8, 8, 1),
        ),
        (
            {"num_gpus": "", "tensor_parallel": "4", "attention_data_parallel": "4",
             "expert_parallel": "16", "model": "deepseek-v3"},
            (1, 4, 4, 1),
        ),
        (
            {"num_gpus": "8", "tensor_parallel": "1", "data_parallel": "8", "expert_parallel": "8",
             "model": "deepseek-v3", "notes": "DEP8 (attention DP + expert parallel)"},
            (1, 8, 8, 1),
        ),
        # 64 requests as 4 batches of 16: replicas, or ranks of attention that share experts.
        (
            {"num_gpus": "", "tensor_parallel": "2", "concurrency": "64",
             "engine_batch_size": "16"},
            (2, 1, 1, 4),
        ),
        (
            {"num_gpus": "", "tensor_parallel": "4", "concurrency": "64",
             "engine_batch_size": "16", "model": "deepseek-v3"},
            (1, 4, 1, 1),
        ),
    ],
)  # fmt: skip
def test_layouts(case, changes, expected):
    replica = case(**changes).replica
    found = (
        replica.tensor_parallel,
        replica.attention_data_parallel,
        replica.expert_parallel,
        replica.replicas,
    )
    assert found == expected


def test_static_batches_without_concurrency_are_of_one(case):
    assert case(concurrency="").traffic.concurrency == 1
    assert case(concurrency="", mode="online").traffic.concurrency is None


@pytest.mark.parametrize(
    ("changes", "decode_rate"),
    [
        ({}, False),
        ({"notes": "output tok/s is the decode-phase rate (batch total)"}, True),
        ({"notes": "decode speed, context lengths not stated"}, True),
        ({"notes": "DECODE-ONLY, 2749 tokens/s"}, True),
        ({"input_tokens": "0"}, True),
    ],
)
def test_whether_a_rate_is_of_decoding(case, changes, decode_rate):
    assert case(**changes).decode_rate is decode_rate


@pytest.mark.parametrize(
    ("notes", "stages"),
    [
        ("multi-GPU = device_map layer split", "sequential"),
        ("generate_sequentially (layer split)", "sequential"),
        ("llama.cpp default layer split over 4 GPUs; text generation", "sequential"),
        ("llama.cpp default layer split over 4 GPUs; prompt processing of 4096", "micro_batches"),
        ("pipeline parallelism", ""),
    ],
)
def test_how_stages_work(case, notes, stages):
    assert case(pipeline_parallel="4", num_gpus="4", notes=notes).stages == stages


def test_notes_give_rates_requests_and_bounds(case):
    notes = "300 requests at ~10 sessions/s; max_num_seqs=256, max_num_batched_tokens=2048"
    found = case(mode="online", concurrency="", notes=notes)
    assert (found.traffic.request_rate, found.traffic.num_requests) == (10, 300)
    assert found.engine.scheduler.max_num_seqs == 256
    assert found.replica.max_num_batched_tokens == 2048
    rate = case(mode="online", concurrency="", notes="online serving, request rate 4 req/s")
    assert rate.traffic.request_rate == 4


def test_offloading_and_disks(case):
    found = case(notes="weights OFFLOADED to cpu; KV cache offloaded to CPU")
    assert (found.replica.weight_offload, found.replica.kv_offload) == (1, 1)
    with pytest.raises(NotPredicted, match="disk"):
        case(notes="OFFLOAD to disk")
    compressed = case(
        framework="flexgen", notes="OFFLOAD to cpu; 4-bit group compression of weights and KV"
    ).replica
    assert (compressed.weight_offload, compressed.kv_offload) == (1, 1)
    assert compressed.kv_cache is CacheType.INT4
    streamed = case(framework="deepspeed-zero-inference", notes="OFFLOAD to cpu").replica
    assert (streamed.weight_offload, streamed.kv_offload) == (1, 0)


def test_heavier_weights_read_slower(case):
    light = case(weight_precision="int4", framework="llama.cpp")
    heavy = case(weight_precision="int4", framework="llama.cpp", notes="~4.9 bit/weight, not 4")
    assert heavy.weight_scale == pytest.approx(4.9 / 8 / (0.5 + 2 / 128))
    ratio = (
        light.engine.execution.weight_bandwidth_fraction
        / heavy.engine.execution.weight_bandwidth_fraction
    )
    assert ratio == pytest.approx(heavy.weight_scale)


def test_lengths_that_nobody_states_have_defaults(case):
    found = case(input_tokens="", output_tokens="", source="FlexGen").traffic
    assert (found.input_tokens, found.output_tokens) == (512, 32)
    found = case(input_tokens="", output_tokens="").traffic
    assert (found.input_tokens, found.output_tokens) == (32, 128)


def test_disaggregated_runs_have_two_pools(case):
    found = case(**DISAGGREGATED)
    assert found.mode is Mode.DISAGGREGATED
    assert (found.prefill.workers, found.decode_workers) == (2, 1)
    noted = case(mode="online", notes="prefill/decode DISAGGREGATED 3P:2D workers")
    assert noted.mode is Mode.DISAGGREGATED
    assert (noted.prefill.workers, noted.decode_workers) == (3, 2)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "abacus"}, "unknown GPU abacus"),
        ({"gpu": ""}, "none given"),
        ({"model": "no such model"}, "unknown architecture"),
        ({"mode": "sometimes"}, "unknown mode"),
        ({"input_tokens": "0", "output_tokens": "0"}, "neither prompt nor answer"),
        ({"input_tokens": "1e12"}, "absurd"),
        ({"tensor_parallel": "1e9"}, "more GPUs than there are"),
    ],
)
def test_what_cannot_be_predicted_says_why(case, changes, reason):
    with pytest.raises(NotPredicted, match=reason):
        case(**changes)
