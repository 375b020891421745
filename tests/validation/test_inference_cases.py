"""What a row of inference is taken to mean: engines, precisions, layouts, conventions."""

import pytest
from rows import each
from sample_inference import DISAGGREGATED, run_of

from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.confidence.profile_rules import engine_rule
from planner.validation.inference.cases import Mode, inference_case, inference_choices
from planner.validation.run_tables import read_runs
from planner.validation.spec_library import NotPredicted


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


@each(
    ("engine", "version", "year", "gpu", "profile"),
    [
        ("trtllm", "1.0.0rc3", None, "h100-sxm-80gb", "tensorrt-llm-1.0"),
        ("tensorrt-llm", "0.21.0", 2025, "h100-sxm-80gb", "tensorrt-llm-1.0"),
        ("trtllm", "1.1.0rc2", None, "b200-sxm-180gb", "tensorrt-llm-1.1"),
        ("trtllm", "1.2.0rc6", None, "b200-sxm-180gb", "tensorrt-llm"),
        ("trtllm", "", 2025, "h100-sxm-80gb", "tensorrt-llm"),
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
        ("vllm-rocm", "0.9.0.1", 2025, "mi300x-192gb", "vllm-rocm"),
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
    rate = {"mode": "online", "request_rate": "4"}
    offered = inference_case(run_of(concurrency="", **rate), library).traffic.workload
    assert (offered.request_rate, offered.num_requests) == (4.0, None)
    held = inference_case(run_of(concurrency="8", **rate), library).traffic.workload
    assert held.request_rate is None
    assert held.num_requests is None


@each(
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


BLOCKS = {"weight_precision": "fp8", "gemm_precision": "fp8_block"}


@pytest.mark.parametrize(
    ("changes", "cache"),
    [
        ({}, CacheType.BF16),
        ({"kv_cache_precision": "fp8"}, CacheType.FP8),
        ({"kv_cache_precision": "int8"}, CacheType.INT8),
        ({"framework": "trtllm", "weight_precision": "fp8"}, CacheType.FP8),
        ({"framework": "trtllm"}, CacheType.BF16),
        ({**BLOCKS, "framework": "trtllm", "tuned": "1"}, CacheType.FP8),
        ({**BLOCKS, "framework": "trtllm"}, CacheType.BF16),
        ({"framework": "sglang", "weight_precision": "fp8"}, CacheType.BF16),
    ],
)
def test_caches_where_nothing_is_said(case, changes, cache):
    assert case(**changes).replica.kv_cache is cache


def test_only_vendors_benchmarks_choose_a_narrow_cache_without_a_word(case):
    served = {"framework": "vllm", "weight_precision": "fp8"}
    assert case(**served, tuned="1").replica.narrow_cache
    assert not case(**served).replica.narrow_cache


@pytest.mark.parametrize(("version", "share"), [("0.11.0", 0.9), ("0.21.0", 0.92), ("", 0.92)])
def test_a_run_has_the_memory_of_its_release(case, version, share):
    engine = case(framework="vllm", framework_version=version, year="2026").engine
    assert engine.memory.gpu_memory_utilization == share


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"num_gpus": "8", "tensor_parallel": "4"}, (4, 1, 1, 2)),
        ({"num_gpus": "", "tensor_parallel": "4", "attention_data_parallel": "2"}, (4, 2, 1, 1)),
        (
            {"num_gpus": "24", "tensor_parallel": "1", "attention_data_parallel": "8",
             "expert_parallel": "8", "model": "deepseek-v3"},
            (1, 8, 8, 3),
        ),
        # Ranks of experts that do not divide the replica's GPUs.
        (
            {"num_gpus": "8", "tensor_parallel": "8", "expert_parallel": "12",
             "model": "deepseek-v3"},
            (8, 1, 4, 1),
        ),
        ({"num_gpus": "8", "tensor_parallel": "8", "expert_parallel": "8"}, (8, 1, 1, 1)),
        # Ranks of attention that are not counted: experts stand on the same GPUs.
        (
            {"num_gpus": "32", "tensor_parallel": "2", "expert_parallel": "16",
             "model": "deepseek-v3"},
            (2, 8, 16, 2),
        ),
        (
            {"num_gpus": "", "tensor_parallel": "4", "expert_tensor_parallel": "2",
             "expert_parallel": "2", "model": "deepseek-v3"},
            (4, 1, 2, 1),
        ),
        (
            {"num_gpus": "8", "tensor_parallel": "4", "expert_parallel": "16",
             "model": "deepseek-v3"},
            (4, 1, 4, 2),
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


def test_memory_of_cards_is_that_of_the_row(case):
    assert case(gpu="a10-24gb", gpu_memory_gib="20").gpu.memory_capacity == 20 * 2**30
    assert case(gpu="a10-24gb").gpu.memory_capacity == 24 * 2**30


@pytest.mark.parametrize(
    ("changes", "decode_rate"),
    [({}, False), ({"decode_rate": "1"}, True), ({"input_tokens": "0"}, True)],
)
def test_whether_a_rate_is_of_decoding(case, changes, decode_rate):
    assert case(**changes).decode_rate is decode_rate


@pytest.mark.parametrize(
    ("changes", "stages"),
    [
        ({}, ""),
        ({"stages": "micro_batches"}, "micro_batches"),
        ({"framework": "llama.cpp"}, "sequential"),
        ({"framework": "llama.cpp", "stages": "together"}, ""),
    ],
)
def test_stages_work_as_the_row_says_or_as_usual_for_the_engine(case, changes, stages):
    assert case(pipeline_parallel="4", num_gpus="4", **changes).stages == stages
    assert case(**changes).stages == ""


@pytest.mark.parametrize(("version", "logit_bytes"), [("4.44.2", 6), ("4.46", 0), ("", 0)])
def test_early_transformers_compute_the_logits_of_whole_prompts(case, version, logit_bytes):
    found = case(framework="hf-transformers", framework_version=version)
    assert found.logit_bytes == logit_bytes


def test_columns_set_the_scheduler(case):
    given = {"max_num_seqs": "7", "max_num_batched_tokens": "999", "stream_interval": "3",
             "poll_interval": "4", "batch_wait": "5"}  # fmt: skip
    found = case(**given)
    settings = vars(found.engine.scheduler)
    assert {name: str(settings[name]) for name in given} == given
    pool = case(**DISAGGREGATED, max_num_seqs="7", decode_max_num_seqs="9")
    assert (pool.replica.max_num_seqs, pool.prefill.deployment.max_num_seqs) == (9, 7)


def test_offloading(case):
    def shares(**changes):
        replica = case(**changes).replica
        return replica.weight_offload, replica.kv_offload

    assert shares() == shares(offload="none") == (0, 0)
    assert shares(offload="weights") == (1, 0)
    assert shares(offload="kv_cache") == (0, 1)
    assert shares(offload="weights+kv_cache") == (1, 1)


def test_heavier_weights_read_slower(case):
    light = case(weight_precision="int4", framework="llama.cpp")
    heavy = case(weight_precision="int4", framework="llama.cpp", bits_per_weight="4.9")
    assert heavy.weight_scale == pytest.approx(4.9 / 8 / (0.5 + 2 / 128))
    ratio = (
        light.engine.execution.weight_bandwidth_fraction
        / heavy.engine.execution.weight_bandwidth_fraction
    )
    assert ratio == pytest.approx(heavy.weight_scale)


def test_lengths_that_nobody_states_are_short(case):
    found = case(input_tokens="", output_tokens="").traffic
    assert (found.input_tokens, found.output_tokens) == (32, 128)


def test_lengths_and_prompts_are_as_the_row_says(case):
    found = case(length_scale="0.5", equal_lengths="1", equal_prompts="1").traffic.workload
    assert (found.input_tokens, found.equal_lengths, found.equal_prompts) == (256, True, True)
    assert not case().traffic.workload.equal_lengths


def test_how_lengths_vary_and_what_caches_hold_is_as_the_row_says(case):
    columns = {"input_variation": 0.7, "output_variation": 1.1, "prefix_cache_hit_rate": 0.3}
    found = case(**{name: str(value) for name, value in columns.items()})
    assert {name: getattr(found.traffic.workload, name) for name in columns} == columns
    assert found.group != case().group
    with pytest.raises(NotPredicted, match="prefix_cache_hit_rate must be from 0 to"):
        case(prefix_cache_hit_rate="1")


def test_what_requests_have_in_common_is_as_the_row_says(case):
    columns = {"draft_tokens": 3, "acceptance_rate": 0.6, "shared_prefix_tokens": 100,
               "lora_rank": 16, "max_loras": 4}  # fmt: skip
    found = case(**{name: str(value) for name, value in columns.items()})
    assert {name: getattr(found.traffic.workload, name) for name in columns} == columns
    assert found.group != case(draft_tokens="3").group
    assert case(draft_tokens="3").traffic.workload.acceptance_rate == 0.75
    with pytest.raises(NotPredicted, match="shared_prefix_tokens are more than a prompt"):
        case(shared_prefix_tokens="1000000")


def test_the_memory_share_is_that_of_the_row(case):
    own, told = case(framework="vllm"), case(framework="vllm", gpu_memory_utilization="0.5")
    assert (own.replica.gpu_memory_utilization, told.replica.gpu_memory_utilization) == (0, 0.5)
    with pytest.raises(NotPredicted, match="gpu_memory_utilization must be from 0 to 1"):
        case(gpu_memory_utilization="5")


def test_eager_steps_are_launched_like_those_with_prompts(case):
    eager = case(framework="vllm", enforce_eager="1").engine.execution
    captured = case(framework="vllm").engine.execution
    assert captured.decode_launch_time < captured.prefill_launch_time
    assert eager.decode_launch_time == eager.prefill_launch_time > captured.prefill_launch_time


def test_disaggregated_runs_have_two_pools(case):
    found = case(**DISAGGREGATED)
    assert found.mode is Mode.DISAGGREGATED
    assert (found.prefill.workers, found.decode_workers) == (2, 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "abacus"}, "unknown GPU abacus"),
        ({"gpu": ""}, "not specified"),
        ({"model": "no such model"}, "unknown architecture"),
        ({"mode": "sometimes"}, "unknown mode"),
        ({"input_tokens": "0", "output_tokens": "0"}, "neither prompt nor answer"),
        ({"input_tokens": "1e12"}, "number of tokens is out of range"),
        ({"tensor_parallel": "1e9"}, "more GPUs than there are"),
        ({"tensor_parallel": "4"}, "a replica of 4 GPUs does not fit on 1"),
        ({"offload": "disk"}, "weights on disk are not modelled yet"),
        ({"offload": "experts"}, "offload of experts is not modelled yet"),
        ({"pipeline_parallel": "2", "num_gpus": "2", "stages": "odd"}, "stages 'odd' are not"),
    ],
)
def test_what_cannot_be_predicted_says_why(case, changes, reason):
    with pytest.raises(NotPredicted, match=reason):
        case(**changes)


def test_graphs_and_sequences_follow_the_row(tmp_path, library):
    row = {"framework": "vllm", "model": "llama-3.1-8b", "gpu": "h100-sxm-80gb", "mode": "online",
           "input_tokens": "100", "output_tokens": "100", "concurrency": "4",
           "measured_time_per_output_token_s": "0.01"}  # fmt: skip

    def engine_of(**more):
        cells = row | more
        path = tmp_path / "runs.csv"
        path.write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n", encoding="utf-8")
        (run,) = read_runs(path).rows
        return inference_case(run, library).engine

    plain, told = engine_of(), engine_of(enforce_eager="1", max_num_seqs="24")
    assert plain.execution.decode_launch_time == 0
    assert told.execution.decode_launch_time == plain.without_graphs.layer_launch_time
    assert (told.scheduler.max_num_seqs, told.memory.profiled_seqs) == (24, 24)


@each(
    ("changes", "assumed"),
    [
        (DISAGGREGATED, False),
        ({**DISAGGREGATED, "prefill_num_workers": ""}, True),
        ({"prefill_num_workers": ""}, False),
    ],
)
def test_prefill_workers_are_assumed_where_a_run_of_two_pools_states_none(case, changes, assumed):
    choices = [*inference_choices(run_of(**changes), case(**changes))]
    assert ("enough prefill workers to keep up" in choices) == assumed
