"""SGLang: what is written of plans, and what is read of users' commands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from round_trip import job_of, serving_jobs, stated
from serving_trip import found, lost_between, planned, process_of, value_of, variables_of, words

from planner.errors import LaunchError
from planner.launch.read.parsed_launch import JobResources, ParsedCommand
from planner.launch.target import LaunchJob
from planner.launch.targets.sglang import TARGET

WIDE = {
    "tensor_parallel": 4,
    "attention_data_parallel": 4,
    "expert_parallel": 16,
    "concurrency": 64,
    "max_num_batched_tokens": 4096,
}


@settings(max_examples=examples(40, 5), suppress_health_check=list(HealthCheck))
@given(serving_jobs(engine="sglang"))
def test_commands_of_a_plan_tell_it_again(job: LaunchJob) -> None:
    assert lost_between(TARGET, job) == {}


def test_attention_ranks_are_inside_the_tensor_parallel_group() -> None:
    job = planned(model="deepseek-v3", engine="sglang", num_gpus=16, settings=WIDE)
    (serve,) = TARGET.make_draft(job).processes
    assert value_of(serve, "--tp-size") == "16"
    assert value_of(serve, "--attn-dp-size") == "4"
    assert value_of(serve, "--ep-size") == "16"
    # The engine divides the chunk by the attention ranks, and the requests too.
    assert value_of(serve, "--chunked-prefill-size") == str(4 * 4096)
    assert value_of(serve, "--max-running-requests") == "64"
    assert (value_of(serve, "--nnodes"), serve.num_nodes) == ("2", 2)
    assert "${MASTER_ADDR}:20000" in words(serve)


def test_the_memory_share_is_that_of_weights_and_cache() -> None:
    job = planned(model="llama-3.1-70b", engine="sglang", settings={"tensor_parallel": 8})
    (serve,) = TARGET.make_draft(job).processes
    beside = job.row["memory_activations_gib"] + job.row["memory_reserved_gib"]
    size = job.gpu.allocatable_memory / 2**30
    share = job.profile.memory.gpu_memory_utilization - beside / size
    assert float(value_of(serve, "--mem-fraction-static") or 0) == pytest.approx(share, abs=1e-4)


def test_drafted_tokens_and_the_verified_one() -> None:
    asked = {"tensor_parallel": 8, "quantization": "fp8"}
    for model, method in (("deepseek-v3", "NEXTN"), ("llama-3.1-70b", "STANDALONE")):
        job = planned(
            model=model, engine="sglang", draft_tokens=3, num_gpus=16 if method == "NEXTN" else 8,
            settings={**asked, **({"pipeline_parallel": 2} if method == "NEXTN" else {})},
        )  # fmt: skip
        (serve,) = TARGET.make_draft(job).processes
        assert value_of(serve, "--speculative-algorithm") == method
        assert value_of(serve, "--speculative-num-draft-tokens") == "4"
        assert value_of(serve, "--speculative-num-steps") == "3"
        assert value_of(serve, "--speculative-eagle-topk") == "1"
        assert ("DRAFT_MODEL" in variables_of(serve)) == (method == "STANDALONE")


def test_a_tree_is_as_deep_as_its_steps() -> None:
    tree = {"num_steps": "5", "eagle_topk": "8", "num_draft_tokens": "64"}
    options = {f"speculative_{name}": text for name, text in tree.items()}
    read = TARGET.read_settings(
        found(TARGET, "x", model="m", speculative_algorithm="EAGLE3", **options)
    )
    told = ("draft_tokens", "draft_steps", "draft_method")
    assert [read.values[name] for name in told] == [63, 5, "eagle3"]
    chain = {**options, "speculative_eagle_topk": "1", "speculative_num_draft_tokens": "6"}
    read = TARGET.read_settings(
        found(TARGET, "x", model="m", speculative_algorithm="EAGLE", **chain)
    )
    assert (read.values["draft_tokens"], read.values["draft_method"]) == (5, "eagle")
    assert "draft_steps" not in read.values
    job = planned(
        model="llama-3.1-8b", engine="sglang", draft_tokens=63, draft_steps=5,
        draft_method="eagle3", num_gpus=1,
    )  # fmt: skip
    (serve,) = TARGET.make_draft(job).processes
    written = {name: value_of(serve, f"--speculative-{name.replace('_', '-')}") for name in tree}
    assert written == tree
    assert value_of(serve, "--speculative-algorithm") == "EAGLE3"
    assert "DRAFT_MODEL" in variables_of(serve)


def test_a_cache_that_it_does_not_have_is_no_plan_of_it() -> None:
    asked = {"tensor_parallel": 8, "kv_cache": "int8"}
    assert job_of(
        workload="serve", model="llama-3.1-70b", engine="sglang", num_gpus=8, gpu="h100-sxm",
        settings=asked,
    ) is None  # fmt: skip


def test_host_memory_is_in_whole_units() -> None:
    asked = {"tensor_parallel": 8, "weight_offload": 0.1, "kv_offload": 0.2, "concurrency": 64}
    job = planned(model="llama-3.1-70b", engine="sglang", settings=asked)
    draft = TARGET.make_draft(job)
    gib = int(value_of(draft.processes[0], "--cpu-offload-gb") or 0)
    weights = job.row["memory_weights_gib"] / 0.9 * 0.1
    assert weights <= gib < weights + 1
    assert "--enable-hierarchical-cache" in words(draft.processes[0])
    assert {one.parameter for one in draft.unexpressed} == {"weight_offload", "kv_offload"}


def test_pools_have_modes_and_ports_to_meet() -> None:
    asked = {"prefill_replicas": 2, "tensor_parallel": 2, "concurrency": 64}
    job = planned(model="llama-3.1-8b", engine="sglang", mode="disaggregated", settings=asked)
    draft = TARGET.make_draft(job)
    prefill, decode = (process_of(draft, name) for name in ("prefill", "decode"))
    assert value_of(prefill, "--disaggregation-mode") == "prefill"
    assert value_of(decode, "--disaggregation-mode") == "decode"
    assert "$((5000 + 1 * COPY))" in words(prefill)
    router = words(process_of(draft, "router"))
    assert router[router.index("${PREFILL_URL_1}") + 1] == "5001"
    assert router.count("--decode") == decode.copies == 2


def test_the_older_words_for_attention_ranks() -> None:
    command = {"model_path": "deepseek-ai/DeepSeek-V3", "tp_size": "16", "dp_size": "8"}
    answers = TARGET.read_settings(
        found(TARGET, enable_dp_attention=None, chunked_prefill_size="8192", **command)
    )
    wanted = {
        "tensor_parallel": 2,
        "attention_data_parallel": 8,
        "num_gpus": 16,
        "max_num_batched_tokens": 1024,
        "quantization": "fp8_block",
    }
    assert wanted.items() <= answers.values.items()
    replicas = TARGET.read_settings(found(TARGET, **command))
    assert replicas.values["attention_data_parallel"] == 1
    assert replicas.values["num_gpus"] == 128


def test_a_prefill_worker_answers_for_its_pool() -> None:
    answers = TARGET.read_settings(
        found(TARGET, model_path="x/y-70b-FP8", tp_size="4", disaggregation_mode="prefill")
    )
    wanted = {
        "prefill_tensor_parallel": 4,
        "prefill_quantization": "fp8",
        "prefill_max_num_batched_tokens": 2048,
        "mode": "disaggregated",
    }
    assert wanted.items() <= answers.values.items()
    assert "prefill_max_num_batched_tokens" in answers.defaults


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("python3 -m sglang.launch_server --model-path x", True),
        ("sglang serve --model-path x", True),
        ("python -m dynamo.sglang --model-path x", True),
        ("python -m sglang.bench_serving --model x", False),
        ("vllm serve x", False),
    ],
)
def test_commands_that_start_it(command: str, is_one: bool) -> None:
    assert TARGET.starts(command.split()) is is_one


def test_gpus_that_are_no_whole_servers_are_refused() -> None:
    command = found(TARGET, model_path="x/y", tp_size="16")
    world = JobResources(num_gpus=stated("--gpus", "8"))
    with pytest.raises(LaunchError, match="a server takes 16 GPUs, and --gpus gives 8"):
        TARGET.read_settings(replace(command, resources=world))
    more = TARGET.read_settings(
        replace(command, resources=JobResources(num_gpus=stated("--gpus", "32")))
    )
    assert more.values["num_gpus"] == 32


WHOLE_STEPS = {"h100-sxm-80gb": 8192, "l40s-48gb": 4096, "b200-sxm-180gb": 16384}


@pytest.mark.parametrize("gpu", WHOLE_STEPS)
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_flags_and_a_launch_file_have_the_same_step(gpu: str, ranks: int) -> None:
    """The default is that of all ranks of attention, from flags and from a file."""
    layout = {"tensor_parallel": 4 // ranks, "attention_data_parallel": ranks, "concurrency": 8}
    job = planned(
        model="mixtral-8x7b", engine="sglang", gpu=gpu, num_gpus=4, settings=layout,
        precision="w8a8",
    )  # fmt: skip
    assert job["max_num_batched_tokens"] * ranks == WHOLE_STEPS[gpu]
    (serve,) = TARGET.make_draft(job).processes
    assert value_of(serve, "--chunked-prefill-size") == str(WHOLE_STEPS[gpu])
    options = {"tp_size": "4", "model_path": "x/mixtral-8x7b"}
    if ranks > 1:
        options |= {"dp_size": str(ranks), "enable_dp_attention": None}
    asked = replace(found(TARGET, **options), resources=JobResources(gpu=gpu))
    assert (
        TARGET.read_settings(asked).values["max_num_batched_tokens"]
        == job["max_num_batched_tokens"]
    )


@pytest.mark.parametrize("pool", ["prefill", "decode"])
def test_a_share_in_the_cache_is_asked_of_decode_workers(pool: str) -> None:
    texts = {"--model-path": "meta-llama/Llama-3.1-8B", "--disaggregation-mode": pool}
    options = {name: stated(name, text) for name, text in texts.items()}
    command = ParsedCommand(target="sglang", name="x", text="", options=options)
    told = " ".join(TARGET.read_settings(command).notes)
    assert ("Prefix caching is on" in told) == (pool == "decode")
