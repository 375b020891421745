"""TensorRT-LLM: what is written of plans, and what is read of users' files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from draws import examples
from hypothesis import HealthCheck, given, settings
from round_trip import found_of, job_of, lost, serving_jobs, stated
from serving_trip import found, planned, process_of, together, value_of, words

from planner.documents.shell.edits import ParsedOption
from planner.launch.read.parsed_launch import LaunchSettings, ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchDraft, LaunchJob, Process
from planner.launch.targets.tensorrt_llm import TARGET

# The target says these of the checkpoint.
OF_CHECKPOINT = {
    f"{pool}{name}" for pool in ("", "prefill_") for name in ("quantization", "expert_quantization")
}
WIDE = {"tensor_parallel": 1, "attention_data_parallel": 8, "expert_parallel": 8, "concurrency": 64}


def flat(document: Any, path: str = "") -> dict[str, ParsedOption]:
    """The options of a document by dotted path."""
    if not isinstance(document, dict):
        text = str(document).lower() if isinstance(document, bool) else str(document)
        return {path: stated(path, text)}
    options: dict[str, ParsedOption] = {}
    for key, value in document.items():
        options |= flat(value, f"{path}.{key}" if path else key)
    return options


def document_of(draft: LaunchDraft, process: Process) -> dict[str, Any]:
    """The YAML that a command of a draft reads."""
    (file,) = [one for one in draft.files if one.name == f"{process.name}.yaml"]
    loaded = yaml.safe_load(file.text)
    assert isinstance(loaded, dict)
    return loaded


def read_again(draft: LaunchDraft) -> LaunchSettings:
    answers: list[tuple[Process, LaunchSettings]] = []
    for process in draft.processes:
        if process.gpus_per_node:
            command = found_of(TARGET, draft, process)
            beside = ParsedCommand(
                target=TARGET.name, name="", text="", options=flat(document_of(draft, process))
            )
            options = dict(command.options)
            role = {"prefill": "context", "decode": "generation"}.get(process.name)
            if role:
                options["--server_role"] = stated("--server_role", role)
            files = {f"{process.name}.yaml": beside}
            read = TARGET.read_settings(replace(command, options=options, files=files))
            answers.append((process, read))
    return together(answers)


@settings(max_examples=examples(40, 5), suppress_health_check=list(HealthCheck))
@given(serving_jobs(engine="tensorrt-llm"))
def test_commands_and_files_of_a_plan_tell_it_again(job: LaunchJob) -> None:
    draft = TARGET.make_draft(job)
    told = {remark.parameter for remark in draft.unexpressed}
    assert not lost(TARGET, job, read_again(draft)).keys() - told - OF_CHECKPOINT


def test_attention_ranks_are_all_gpus_or_one() -> None:
    job = planned(model="qwen3-30b-a3b", engine="tensorrt-llm", settings=WIDE)
    draft = TARGET.make_draft(job)
    (serve,), (file,) = draft.processes, draft.files
    assert "enable_attention_dp: true" in file.text
    assert value_of(serve, "--tp_size") == "8"
    assert value_of(serve, "--max_batch_size") == "8"
    some = {**WIDE, "tensor_parallel": 2, "attention_data_parallel": 4}
    asked = {"workload": "serve", "gpu": "h100-sxm", "num_gpus": 8, "settings": some}
    assert job_of(model="qwen3-30b-a3b", engine="tensorrt-llm", **asked) is None


def test_the_memory_share_is_of_what_is_free() -> None:
    asked = {"tensor_parallel": 8}
    job = planned(model="llama-3.1-70b", engine="tensorrt-llm", settings=asked)
    (serve,) = TARGET.make_draft(job).processes
    row, size = job.row, job.gpu.allocatable_memory / 2**30
    names = ("weights", "activations", "reserved")
    free = size - sum(row[f"memory_{name}_gib"] for name in names)
    room = free - size * (1 - job.profile.memory.gpu_memory_utilization)
    share = float(value_of(serve, "--kv_cache_free_gpu_memory_fraction") or 0)
    assert share == pytest.approx(room / free, abs=1e-4)


def test_what_only_the_yaml_says() -> None:
    asked = {"tensor_parallel": 8, "pipeline_parallel": 2, "kv_offload": 0.2}
    job = planned(
        model="deepseek-v3", engine="tensorrt-llm", num_gpus=16, settings=asked,
        draft_tokens=2, prefix_cache_hit_rate=0.5,
    )  # fmt: skip
    draft = TARGET.make_draft(job)
    (serve,) = draft.processes
    document = document_of(draft, serve)
    assert document["kv_cache_config"]["enable_block_reuse"] is True
    assert document["kv_cache_config"]["host_cache_size"] > 0
    assert document["speculative_config"] == {"decoding_type": "MTP", "max_draft_len": 2}
    assert (serve.launcher, serve.num_nodes) == ("mpirun", 2)
    assert words(serve)[0] == "trtllm-llmapi-launch"


@pytest.mark.parametrize(
    ("release", "of_modules", "of_model"),
    [
        ("1.3.0rc3", {"max_draft_len": 3, "num_nextn_predict_layers": 3}, "DraftTarget"),
        ("1.3.0rc14", {"max_draft_len": 3, "num_nextn_predict_layers": 3}, "Draft_Target"),
        ("1.3.0", {"max_draft_len": 3}, "Draft_Target"),
    ],
)
def test_drafts_have_the_keys_of_the_release(
    release: str, of_modules: dict[str, int], of_model: str
) -> None:
    """1.3.0rc3 drafts one token with MTP, whatever ``max_draft_len`` is."""
    asked = {
        "engine": "tensorrt-llm", "engine_version": release, "draft_tokens": 3,
        "acceptance_rate": 0.7, "settings": {"tensor_parallel": 8},
    }  # fmt: skip
    configs = []
    for model in (
        {"model": "deepseek-v3"},
        {"model": "llama-3.1-70b", "draft_model": "llama-3.2-1b"},
    ):
        draft = TARGET.make_draft(planned(**asked, **model))
        configs.append(document_of(draft, draft.processes[0])["speculative_config"])
    assert configs[0] == {"decoding_type": "MTP", **of_modules}
    assert (configs[1]["decoding_type"], configs[1]["max_draft_len"]) == (of_model, 3)
    assert configs[1]["speculative_model"] == "meta-llama/Llama-3.2-1B"


def test_a_model_that_drafts_is_to_be_named() -> None:
    job = planned(
        model="llama-3.1-70b",
        engine="tensorrt-llm",
        draft_tokens=3,
        settings={"tensor_parallel": 8},
    )
    draft = TARGET.make_draft(job)
    document = document_of(draft, draft.processes[0])
    assert document["speculative_config"]["max_draft_len"] == 3
    assert any("DRAFT_MODEL" in remark.note for remark in draft.left)


def test_a_model_that_drafts_and_is_named_is_written() -> None:
    asked = {"draft_tokens": 3, "acceptance_rate": 0.7, "draft_model": "llama-3.2-1b"}
    job = planned(
        model="llama-3.1-70b", engine="tensorrt-llm", **asked, settings={"tensor_parallel": 8}
    )
    draft = TARGET.make_draft(job)
    config = document_of(draft, draft.processes[0])["speculative_config"]
    assert config["speculative_model"] == "meta-llama/Llama-3.2-1B"
    assert not any("DRAFT_MODEL" in remark.note for remark in draft.left)


def test_pools_are_named_to_the_server_in_front() -> None:
    asked = {"prefill_replicas": 2, "tensor_parallel": 2, "concurrency": 64}
    job = planned(model="llama-3.1-8b", engine="tensorrt-llm", mode="disaggregated", settings=asked)
    draft = TARGET.make_draft(job)
    prefill = document_of(draft, process_of(draft, "prefill"))
    assert prefill["disable_overlap_scheduler"] is True
    assert prefill["cache_transceiver_config"] == {"backend": "DEFAULT"}
    assert "disable_overlap_scheduler" not in document_of(draft, process_of(draft, "decode"))
    front = words(process_of(draft, "router"))
    lines = [line.replace("${PREFILL_HOST_1}", "node-7") for line in front[4:]]
    lines = [line.replace("${", "").replace("}", "") for line in lines]
    disaggregated = yaml.safe_load("\n".join(lines))
    assert disaggregated["context_servers"]["num_instances"] == 2
    assert disaggregated["context_servers"]["urls"][1] == "node-7:8101"
    assert len(disaggregated["generation_servers"]["urls"]) == 2


def test_the_yaml_beside_goes_before_the_command() -> None:
    text = """
    enable_attention_dp: true
    kv_cache_config: {dtype: fp8, free_gpu_memory_fraction: 0.8}
    max_batch_size: 512
    """
    beside = ParsedCommand(target=TARGET.name, name="", text="", options=flat(yaml.safe_load(text)))
    command = found(TARGET, "trtllm-serve", "deepseek-ai/DeepSeek-R1")
    options = {
        name: stated(name, value)
        for name, value in {
            "--tp_size": "8",
            "--moe_expert_parallel_size": "8",
            "--max_batch_size": "64",
            "--extra_llm_api_options": "./extra.yml",
        }.items()
    }
    answers = TARGET.read_settings(replace(command, options=options, files={"extra.yml": beside}))
    wanted = {
        "model": "deepseek-ai/DeepSeek-R1",
        "tensor_parallel": 1,
        "attention_data_parallel": 8,
        "expert_parallel": 8,
        "concurrency": 4096,
        "kv_cache": "fp8",
        "num_gpus": 8,
    }
    assert wanted.items() <= answers.values.items()


def test_a_server_without_overlap_is_no_prefill_worker() -> None:
    beside = ParsedCommand(
        target=TARGET.name, name="", text="", options=flat({"disable_overlap_scheduler": True})
    )
    command = found(TARGET, "trtllm-serve", "x/y")
    options = {"--extra_llm_api_options": stated("--extra_llm_api_options", "a.yaml")}
    answers = TARGET.read_settings(replace(command, options=options, files={"a.yaml": beside}))
    assert answers.values["mode"] == "aggregated"


def test_a_worker_of_dynamo_has_words_of_its_own() -> None:
    options = {
        "--model-path": "x/y",
        "--tensor-parallel-size": "4",
        "--disaggregation-mode": "prefill",
        "--override-engine-args": '{"kv_cache_config": {"dtype": "fp8"}, "max_num_tokens": 4096}',
    }
    command = ParsedCommand(
        target=TARGET.name,
        name="",
        text="",
        options={name: stated(name, text) for name, text in options.items()},
    )
    wanted = {
        "model": "x/y",
        "prefill_tensor_parallel": 4,
        "prefill_kv_cache": "fp8",
        "prefill_max_num_batched_tokens": 4096,
    }
    assert wanted.items() <= TARGET.read_settings(command).values.items()


def test_a_document_of_two_pools() -> None:
    text = """
    model: TinyLlama/TinyLlama-1.1B-Chat-v1.0
    context_servers: {num_instances: 2, tensor_parallel_size: 1, max_num_tokens: 4096}
    generation_servers: {num_instances: 1, tensor_parallel_size: 4, max_batch_size: 32}
    """
    options = flat(yaml.safe_load(text))
    assert TARGET.is_of(options)
    document = ParsedCommand(target=TARGET.name, name="d.yaml", text=text, options=options)
    wanted = {
        "mode": "disaggregated",
        "prefill_replicas": 2,
        "prefill_tensor_parallel": 1,
        "prefill_max_num_batched_tokens": 4096,
        "tensor_parallel": 4,
        "concurrency": 32,
        "num_gpus": 6,
    }
    assert wanted.items() <= TARGET.read_settings(document).values.items()


@pytest.mark.parametrize(
    ("command", "is_one"),
    [
        ("trtllm-serve x/y --tp_size 8", True),
        ("trtllm-serve serve x/y", True),
        ("trtllm-llmapi-launch trtllm-serve x/y", True),
        ("python3 -m dynamo.trtllm --model-path x", True),
        ("trtllm-serve disaggregated -c x.yaml", False),
        ("trtllm-bench --model x", False),
    ],
)
def test_commands_that_start_it(command: str, is_one: bool) -> None:
    assert TARGET.starts(command.split()) is is_one


@pytest.mark.parametrize(
    ("more", "drafted"),
    [
        ("speculative_config: {decoding_type: MTP, max_draft_len: 2}", 2),
        ("speculative_config: {decoding_type: MTP, num_nextn_predict_layers: 2}", 2),
        (
            "speculative_config: {decoding_type: MTP, max_draft_len: 3, "
            "num_nextn_predict_layers: 2}",
            3,
        ),
        ("max_batch_size: 8", None),
    ],
)
def test_tokens_are_drafted_where_a_file_says_so(
    tmp_path: Path, more: str, drafted: int | None
) -> None:
    (tmp_path / "e.yaml").write_text(more)
    (tmp_path / "run.sh").write_text(
        "trtllm-serve deepseek-ai/DeepSeek-V3 --tp_size 8 --extra_llm_api_options e.yaml"
    )
    assert read_launch(tmp_path / "run.sh").values.get("draft_tokens") == drafted


def test_a_server_without_graph_options_has_graphs_of_few_sequences(tmp_path: Path) -> None:
    """llm_args.py: 1 to 32 without padding; trtllm-bench pads graphs of all."""
    found = {}
    for name, command in (
        ("serve.sh", "trtllm-serve Qwen/Qwen3-8B"),
        ("bench.sh", "trtllm-bench --model Qwen/Qwen3-8B throughput --num_requests 100"),
    ):
        (tmp_path / name).write_text(f"{command}\n")
        found[name] = read_launch(tmp_path / name).values.get("captured_batch")
    assert found == {"serve.sh": 32, "bench.sh": None}
