"""vLLM: what is written of plans, and what is read of users' commands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from round_trip import job_of, serving_jobs, stated
from serving_trip import (
    answered,
    found,
    lost_between,
    planned,
    process_of,
    value_of,
    variables_of,
    words,
)

from planner.errors import LaunchError
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob
from planner.launch.targets import target_of
from planner.launch.targets.vllm import TARGET

POOLS = {
    "mode": "disaggregated",
    "num_gpus": 8,
    "settings": {"prefill_replicas": 2, "tensor_parallel": 2, "concurrency": 64},
}


@settings(max_examples=examples(40, 5), suppress_health_check=list(HealthCheck))
@given(serving_jobs(engine="vllm"))
def test_commands_of_a_plan_tell_it_again(job: LaunchJob) -> None:
    assert lost_between(TARGET, job) == {}


def test_ranks_share_the_requests_and_the_gpus() -> None:
    job = planned(
        model="deepseek-v3",
        engine="vllm",
        num_gpus=16,
        settings={
            "tensor_parallel": 4,
            "attention_data_parallel": 4,
            "expert_parallel": 16,
            "concurrency": 64,
            "max_num_batched_tokens": 4096,
        },
    )
    draft = TARGET.make_draft(job)
    (serve,) = draft.processes
    assert (value_of(serve, "--tensor-parallel-size"), serve.num_nodes) == ("4", 2)
    assert value_of(serve, "--data-parallel-size") == "4"
    assert value_of(serve, "--max-num-seqs") == "16"
    assert value_of(serve, "--max-num-batched-tokens") == "4096"
    assert value_of(serve, "--max-model-len") == "2080"
    assert value_of(serve, "--gpu-memory-utilization") == "0.92"
    assert "--enable-expert-parallel" in words(serve)
    assert value_of(serve, "--nnodes") == "2"
    assert {"NODE_RANK", "MASTER_ADDR", "MASTER_PORT"} <= variables_of(serve)
    assert [argument.words for argument in serve.follower_arguments] == [("--headless",)]
    # The published checkpoint has the plan's fp8 blocks.
    assert "--quantization" not in words(serve)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_experts_are_over_one_or_all_gpus_of_a_stage(ranks: int) -> None:
    made = job_of(
        workload="serve", model="mixtral-8x7b", engine="vllm", num_gpus=4, gpu="h100-sxm",
        settings={"tensor_parallel": 4, "expert_parallel": ranks},
    )  # fmt: skip
    assert (made is None) == (ranks == 2)


@pytest.mark.parametrize("word", ["w4a16", "w8a8", "w4a8", "nvfp4"])
def test_a_type_that_only_a_checkpoint_can_have_is_told(word: str) -> None:
    gpu = "b200" if word == "nvfp4" else "h100-sxm"
    asked = {"quantization": word, "tensor_parallel": 8}
    job = planned(model="llama-3.1-70b", engine="vllm", gpu=gpu, settings=asked)
    draft = TARGET.make_draft(job)
    assert "MODEL" in variables_of(draft.processes[0])
    assert "--quantization" not in words(draft.processes[0])
    assert [one.value for one in draft.unexpressed] == [word]


def test_a_published_checkpoint_of_another_type_is_named_and_read_again() -> None:
    asked = {"tensor_parallel": 8, "concurrency": 8}
    job = planned(model="kimi-k2.5", engine="vllm", gpu="b200", settings=asked)
    draft = TARGET.make_draft(job)
    assert "nvidia/Kimi-K2.5-NVFP4" in words(draft.processes[0])
    assert draft.unexpressed == ()
    read = answered(TARGET, draft).values
    assert (read["quantization"], read["expert_quantization"]) == ("w16a16", "nvfp4")
    assert lost_between(TARGET, job) == {}


def test_replicas_are_servers_behind_a_router() -> None:
    job = planned(model="llama-3.1-8b", engine="vllm", settings={"concurrency": 8})
    draft = TARGET.make_draft(job)
    serve, router = draft.processes
    assert (serve.copies, serve.gpus_per_node) == (8, 1)
    assert "${PORT}" in words(serve)
    assert {f"SERVE_URL_{copy}" for copy in range(8)} == variables_of(router)
    assert "--max-concurrency" in words(draft.benchmark[0])
    assert value_of(draft.benchmark[0], "--max-concurrency") == "64"


def test_pools_hand_the_cache_on() -> None:
    draft = TARGET.make_draft(planned(model="llama-3.1-8b", engine="vllm", **POOLS))
    prefill, decode = (process_of(draft, name) for name in ("prefill", "decode"))
    roles = [
        json.loads(value_of(one, "--kv-transfer-config") or "")["kv_role"]
        for one in (prefill, decode)
    ]
    assert roles == ["kv_producer", "kv_consumer"]
    assert (prefill.copies, decode.copies) == (2, 2)
    assert prefill.port != decode.port
    router = words(process_of(draft, "router"))
    assert (router.count("--prefill"), router.count("--decode")) == (2, 2)
    # Every copy on a node listens for others at a port of its own.
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT=$((24000 + 10 * COPY))" in words(decode)
    assert "VLLM_NIXL_SIDE_CHANNEL_PORT=$((16000 + 10 * COPY))" in words(prefill)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_prompts_are_split_over_ranks(engine: str) -> None:
    layout = {"tensor_parallel": 4, "context_parallel": 2, "expert_parallel": 8, "concurrency": 8}
    job = planned(model="deepseek-v3", engine=engine, num_gpus=8, settings=layout)
    assert lost_between(target_of(engine), job) == {}


def test_attention_and_experts_on_separate_servers_are_refused(tmp_path: Path) -> None:
    vllm = """vllm serve Qwen/Qwen3-30B-A3B --additional-config '{"afd": {"role": "ffn"}}'"""
    sglang = "python -m sglang.launch_server --model-path Qwen/Qwen3-30B-A3B --afd-role attn"
    for command in (vllm, sglang):
        (tmp_path / "serve.sh").write_text(command)
        with pytest.raises(LaunchError, match="Qwen3-30B-A3B --gpus N --mode attention-ffn"):
            read_launch(tmp_path / "serve.sh")


def test_a_plan_with_attention_and_experts_on_separate_servers_is_not_written() -> None:
    asked = {"tensor_parallel": 1, "attention_data_parallel": 2, "expert_parallel": 2}
    job = planned(
        model="qwen3-30b-a3b",
        engine="vllm",
        num_gpus=6,
        mode="attention-ffn",
        settings={**asked, "concurrency": 8},
    )
    with pytest.raises(LaunchError, match="attention-ffn has no launch files"):
        TARGET.make_draft(job)


def test_a_server_fills_whole_nodes() -> None:
    job = planned(
        model="llama-3.1-70b",
        engine="vllm",
        num_gpus=12,
        settings={"tensor_parallel": 4, "pipeline_parallel": 3},
    )
    with pytest.raises(LaunchError, match="12 GPUs fills no whole nodes of 8"):
        TARGET.make_draft(job)


def test_a_cache_on_the_host_is_of_all_gpus() -> None:
    asked = {"tensor_parallel": 4, "kv_offload": 0.5, "weight_offload": 0.2, "concurrency": 64}
    alike = {"input_variation": 0.0, "output_variation": 0.0}
    job = planned(model="llama-3.1-70b", engine="vllm", settings=asked, **alike)
    draft = TARGET.make_draft(job)
    (serve, _) = draft.processes
    weights = float(value_of(serve, "--cpu-offload-gb") or 0)
    cache = float(value_of(serve, "--kv-offloading-size") or 0)
    on_host = job.row["host_memory_gib"]
    assert weights == pytest.approx(job.row["memory_weights_gib"] / 0.8 * 0.2, rel=1e-3)
    assert weights + cache / 4 == pytest.approx(on_host, rel=1e-3)
    assert [one.parameter for one in draft.unexpressed] == ["kv_offload"]
    assert lost_between(TARGET, job) == {}


def test_drafts_of_the_model_itself_or_of_another() -> None:
    for model, method in (("deepseek-v3", "mtp"), ("llama-3.1-70b", "draft_model")):
        job = planned(model=model, engine="vllm", draft_tokens=2, settings={"tensor_parallel": 8})
        (serve,) = TARGET.make_draft(job).processes
        assert value_of(serve, "--spec-method") == method
        assert value_of(serve, "--spec-tokens") == "2"
        assert ("DRAFT_MODEL" in variables_of(serve)) == (method == "draft_model")


def test_the_model_that_drafts_has_the_name_that_was_given() -> None:
    asked = {"draft_tokens": 2, "acceptance_rate": 0.7, "draft_model": "llama-3.2-1b"}
    job = planned(model="llama-3.1-70b", engine="vllm", **asked, settings={"tensor_parallel": 8})
    (serve,) = TARGET.make_draft(job).processes
    assert value_of(serve, "--spec-model") == "meta-llama/Llama-3.2-1B"
    assert variables_of(serve) == set()
    drafts = {"spec_method": "draft_model", "spec_tokens": "2"}
    named = {"spec_model": value_of(serve, "--spec-model")}
    read = TARGET.read_settings(found(TARGET, "vllm", "serve", "m", **drafts, **named))
    assert (read.values["draft_model"], read.values["draft_tokens"]) == ("llama-3.2-1b", 2)


def test_heads_that_draft_are_no_model_of_their_own() -> None:
    heads = '{"method":"eagle3","model":"org/Llama-3.1-8B-eagle","num_speculative_tokens":3}'
    read = TARGET.read_settings(found(TARGET, "vllm", "serve", "m", speculative_config=heads))
    assert (read.values["draft_tokens"], read.values["draft_method"]) == (3, "eagle3")
    assert "draft_model" not in read.values
    unsaid = '{"model":"yuhuili/EAGLE3-LLaMA3.1-Instruct-8B","num_speculative_tokens":3}'
    read = TARGET.read_settings(found(TARGET, "vllm", "serve", "m", speculative_config=unsaid))
    assert read.values["draft_method"] == "eagle3"
    ngram = '{"method":"ngram","num_speculative_tokens":5}'
    read = TARGET.read_settings(found(TARGET, "vllm", "serve", "m", speculative_config=ngram))
    assert read.values["draft_method"] == "ngram"


def test_a_method_that_has_no_model_is_written_by_its_name() -> None:
    for method, has_heads in (("eagle", True), ("ngram", False)):
        asked = {"draft_tokens": 2, "draft_method": method}
        job = planned(model="llama-3.1-8b", engine="vllm", num_gpus=1, **asked)
        (serve,) = TARGET.make_draft(job).processes
        assert value_of(serve, "--spec-method") == method
        assert ("DRAFT_MODEL" in variables_of(serve)) == has_heads


def test_a_command_with_nothing_but_a_model() -> None:
    answers = TARGET.read_settings(found(TARGET, "vllm", "serve", "Qwen/Qwen3-8B-AWQ"))
    assert answers.values["model"] == "Qwen/Qwen3-8B-AWQ"
    assert answers.values["quantization"] == "w4a16"
    assert (answers.values["num_gpus"], answers.values["concurrency"]) == (1, 256)
    assert answers.values["max_num_batched_tokens"] == 2048
    assert {"concurrency", "quantization", "max_num_batched_tokens"} <= set(answers.defaults)


@pytest.mark.parametrize(("option", "word"), [("runner", "pooling"), ("task", "score")])
def test_a_request_that_is_embedded_is_its_prompt(option: str, word: str) -> None:
    command = ("vllm", "serve", "Qwen/Qwen3-Embedding-8B")
    answers = TARGET.read_settings(found(TARGET, *command, **{option: word}))
    assert answers.values["output_tokens"] == "0"
    assert any("embedded or scored" in note for note in answers.notes)
    answering = ("vllm", "serve", "Qwen/Qwen3-8B")
    other = TARGET.read_settings(found(TARGET, *answering, **{option: "generate"}))
    assert "output_tokens" not in other.values


def test_other_ways_to_say_it() -> None:
    config = '{"method": "eagle3", "model": "x/y", "num_speculative_tokens": 3}'
    answers = TARGET.read_settings(
        found(
            TARGET,
            model="deepseek-ai/DeepSeek-R1",
            data_parallel_size="8",
            enable_expert_parallel=None,
            max_num_batched_tokens="4k",
            kv_cache_dtype="fp8_e4m3",
            speculative_config=config,
            kv_transfer_config='{"kv_connector": "NixlConnector", "kv_role": "kv_producer"}',
        )
    )
    wanted = {
        "prefill_attention_data_parallel": 8,
        "prefill_expert_parallel": 8,
        "prefill_max_num_batched_tokens": 4000,
        "prefill_kv_cache": "fp8",
        "mode": "disaggregated",
        "draft_tokens": 3,
    }
    assert wanted.items() <= answers.values.items()


def test_options_of_a_document_beside_and_alone() -> None:
    options = {
        "model": "meta-llama/Llama-3.1-70B-Instruct",
        "tensor-parallel-size": "4",
        "max-num-seqs": "64",
        "kv_cache_dtype": "fp8",
        "enable-prefix-caching": "false",
    }
    document = ParsedCommand(
        target=TARGET.name,
        name="config.yaml",
        text="",
        options={name: stated(name, text) for name, text in options.items()},
    )
    command = found(TARGET, "vllm", "serve", config="config.yaml", max_num_seqs="32")
    beside = TARGET.read_settings(replace(command, files={"config.yaml": document}))
    wanted = {"tensor_parallel": 4, "kv_cache": "fp8", "num_gpus": 4}
    assert {**wanted, "concurrency": 32}.items() <= beside.values.items()
    assert TARGET.is_of(options)
    assert {**wanted, "concurrency": 64}.items() <= TARGET.read_settings(document).values.items()
    assert not TARGET.is_of({"model": "x", "tensor_parallel_size": 4})


def test_ranks_of_a_dense_model_are_replicas() -> None:
    answers = TARGET.read_settings(
        found(TARGET, model="meta-llama/Llama-3.1-8B", data_parallel_size="4")
    )
    assert answers.values["attention_data_parallel"] == 1
    assert (answers.values["num_gpus"], answers.values["concurrency"]) == (4, 256)


def test_no_model_is_asked_for() -> None:
    assert TARGET.read_settings(found(TARGET, tensor_parallel_size="2")).missing == ("model",)


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("vllm serve x/y", True),
        ("/usr/bin/vllm serve x/y", True),
        ("python3 -m vllm.entrypoints.openai.api_server --model x", True),
        ("python -m vllm.entrypoints.cli.main serve x", True),
        ("python3 -m dynamo.vllm --model x", True),
        ("vllm bench serve --model x", False),
        ("python -m sglang.launch_server", False),
    ],
)
def test_commands_that_start_it(command: str, is_one: bool) -> None:
    assert TARGET.starts(command.split()) is is_one


def test_pools_of_one_script_and_their_nodes(tmp_path: Path) -> None:
    size = "--tensor-parallel-size 8 --pipeline-parallel-size 2 --nnodes 2"
    lines = [
        f"vllm serve deepseek-ai/DeepSeek-V3 {size} --node-rank {rank} --kv-transfer-config "
        f'\'{{"kv_connector": "NixlConnector", "kv_role": "{role}"}}\' &'
        for role in ("kv_producer", "kv_consumer")
        for rank in (0, 1)
    ]
    path = tmp_path / "serve.sh"
    path.write_text("\n".join(lines))
    values = read_launch(path).values
    assert (values["mode"], values["num_gpus"]) == ("disaggregated", 32)
    assert (values["replicas"], values["prefill_replicas"]) == (1, 1)


@pytest.mark.parametrize(
    ("variation", "tokens"),
    [
        pytest.param(0.0, 1232, id="equal lengths and a slack of 32"),
        # sigma = sqrt(ln 2) = 0.8326: 1,000 exp(3.0902 sigma - sigma**2 / 2) + 200 + 32
        pytest.param(1.0, 9497, id="all but one of 1,000 lognormal prompts"),
    ],
)
def test_a_server_takes_the_prompts_of_lengths_that_vary(variation: float, tokens: int) -> None:
    job = planned(
        model="llama-3.1-8b", engine="vllm", input_tokens=1000, output_tokens=200,
        input_variation=variation,
    )  # fmt: skip
    (serve, *_) = TARGET.make_draft(job).processes
    assert value_of(serve, "--max-model-len") == str(tokens)


def test_what_the_host_keeps_of_prefixes_is_of_all_gpus() -> None:
    sessions = {"input_tokens": 6000, "turns": 12, "think_time": 60.0, "host_cache": 2.0**36}
    asked = {"tensor_parallel": 4, "concurrency": 64}
    job = planned(model="llama-3.1-70b", engine="vllm", settings=asked, **sessions)
    (serve, _) = TARGET.make_draft(job).processes
    assert float(value_of(serve, "--kv-offloading-size") or 0) == 4 * 64
