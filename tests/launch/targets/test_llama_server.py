"""llama.cpp: what is written of plans, and what is read of users' commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from round_trip import found_of, job_of, lost, stated
from serving_trip import found, value_of

from planner.errors import LaunchError
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob, ShellVariable
from planner.launch.targets.llama_server import TARGET
from planner.question.request import Request
from planner.workloads.make_plan import evaluate, make_single_plan

OF_FILE = {"quantization", "expert_quantization"}


def planned(**settings: object) -> LaunchJob:
    num_gpus = settings.pop("num_gpus", 1)
    model = settings.pop("model", "llama-3.1-8b")
    asked = {"workload": "inference", "engine": "llama.cpp", "gpu": "h100-sxm"}
    job = job_of(model=model, num_gpus=num_gpus, settings=settings, **asked)
    assert job is not None
    return job


@st.composite
def jobs(draw: st.DrawFn) -> LaunchJob:
    several = st.sampled_from
    tp, pp = draw(several(((1, 1), (2, 1), (4, 1), (1, 2), (1, 4))))
    return planned(
        num_gpus=tp * pp,
        model=draw(several(("llama-3.1-8b", "qwen3-30b-a3b"))),
        tensor_parallel=tp,
        pipeline_parallel=pp,
        concurrency=draw(several((1, 4, 32))),
        max_num_batched_tokens=draw(several((512, 2048))),
        quantization=draw(several(("w16a16", "w8a16", "w4a16", "q6_k", "iq2_xs"))),
        kv_cache=draw(several(("bf16", "int8", "int4"))),
    )


@settings(max_examples=examples(30, 6), suppress_health_check=list(HealthCheck))
@given(jobs())
def test_commands_of_a_plan_tell_it_again(job: LaunchJob) -> None:
    draft = TARGET.make_draft(job)
    (serve,) = draft.processes
    command = found_of(TARGET, draft, serve)
    wrong = lost(TARGET, job, TARGET.read_settings(command)).keys() - OF_FILE
    told = {remark.parameter for remark in draft.unexpressed}
    assert wrong <= ({"tensor_parallel", "pipeline_parallel"} if told else set())
    assert told <= {"both_splits"}


def test_gpus_split_matrices_or_layers() -> None:
    for tp, pp, word in ((2, 1, "row"), (1, 2, "layer")):
        job = planned(num_gpus=tp * pp, tensor_parallel=tp, pipeline_parallel=pp)
        draft = TARGET.make_draft(job)
        assert value_of(draft.processes[0], "--split-mode") == word
        assert not draft.unexpressed


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"quantization": "fp8"}, "quantization"),
        ({"kv_cache": "fp8"}, "kv_cache"),
        ({"tensor_parallel": 2, "pipeline_parallel": 2}, "engine"),
        ({"attention_data_parallel": 2}, "engine"),
        ({"expert_parallel": 2, "tensor_parallel": 2}, "engine"),
    ],
)
def test_what_it_has_no_option_of_is_no_plan_of_it(settings: dict[str, Any], rule: str) -> None:
    splits_experts = {"attention_data_parallel", "expert_parallel"} & {*settings}
    model = "qwen3-30b-a3b" if splits_experts else "llama-3.1-8b"
    request = Request(
        workload="inference", model=model, gpu="h100-sxm", num_gpus=4, engine="llama.cpp",
        settings={"concurrency": 8, **settings},
    )  # fmt: skip
    assert evaluate(make_single_plan(request)).rejected_by == rule


@pytest.mark.parametrize(
    ("name", "model", "word"),
    [
        ("models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "llama-3.1-8b", "q4_k_m"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL.gguf", "qwen3-30b-a3b", "q4_k_m"),
        ("Qwen3-8B-Q8_0-00001-of-00002.gguf", "qwen3-8b", "q8_0"),
        ("Qwen3-8B-BF16.gguf", "qwen3-8b", "w16a16"),
        ("Qwen3-8B-Q6_K.gguf", "qwen3-8b", "q6_k"),
        ("Qwen3-8B-IQ1_S.gguf", "qwen3-8b", "iq1_s"),
        ("Qwen3-8B-IQ2_XXS.gguf", "qwen3-8b", "iq2_xxs"),
        ("Qwen3-8B-Q3_K_M.gguf", "qwen3-8b", "q3_k_m"),
        ("Qwen3-8B.gguf", "qwen3-8b", "w4a16"),
    ],
)
def test_the_name_of_the_file_tells_model_and_type(name: str, model: str, word: str) -> None:
    answers = TARGET.read_settings(found(TARGET, "llama-server", model=name))
    assert (answers.values["model"], answers.values["quantization"]) == (model, word)
    assert "quantization" in answers.defaults


def test_a_repository_with_its_type_behind() -> None:
    answers = TARGET.read_settings(found(TARGET, hf_repo="ggml-org/gpt-oss-20b-GGUF:MXFP4"))
    names = ("model", "quantization", "expert_quantization")
    assert [answers.values[name] for name in names] == ["gpt-oss-20b", "q8_0", "mxfp4"]


def test_layers_and_devices_of_a_command() -> None:
    options = {
        "--model": "Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf",
        "--n-gpu-layers": "20",
        "--parallel": "8",
        "--ctx-size": "16384",
    }
    command = ParsedCommand(
        target=TARGET.name,
        name="run.sh",
        text="",
        options={name: stated(name, text) for name, text in options.items()},
        environment={"CUDA_VISIBLE_DEVICES": stated("CUDA_VISIBLE_DEVICES", "0,1")},
    )
    answers = TARGET.read_settings(command)
    assert answers.workload == "inference"
    assert (answers.values["num_gpus"], answers.values["pipeline_parallel"]) == (2, 2)
    assert answers.values["weight_offload"] == pytest.approx(13 / 33, abs=1e-4)
    assert any("2,048 for prompt and answer" in note for note in answers.notes)


def test_commands_that_start_it() -> None:
    assert TARGET.starts(["./build/bin/llama-server", "-m", "x.gguf"])
    assert not TARGET.starts(["llama-quantize", "x.gguf"])


def test_more_slots_than_it_has_are_refused() -> None:
    TARGET.make_draft(planned(concurrency=256))
    with pytest.raises(LaunchError, match="--set concurrency=256"):
        TARGET.make_draft(planned(concurrency=257))


@pytest.mark.parametrize(
    ("option", "number"), [("--tensor-split 3,0,1", 2), ("--device CUDA0,CUDA1,CUDA2", 3)]
)
def test_gpus_with_a_share_are_used(tmp_path: Path, option: str, number: int) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f"CUDA_VISIBLE_DEVICES=0,1,2,3 llama-server -m a-8B-Q8_0.gguf {option}\n")
    assert read_launch(script).values["num_gpus"] == number


def test_the_file_that_drafts_is_the_planned_model() -> None:
    asked = {"workload": "inference", "engine": "llama.cpp", "gpu": "h100-sxm", "draft_tokens": 3}
    for name, meaning in (
        (None, "GGUF file of the model that drafts"),
        ("llama-3.2-1b", "GGUF file of Llama 3.2 1B, which drafts"),
    ):
        job = job_of(model="llama-3.1-8b", num_gpus=1, settings={}, draft_model=name, **asked)
        assert job is not None
        (serve,) = TARGET.make_draft(job).processes
        words = [word for argument in serve.arguments for word in argument.words]
        variable = words[words.index("--spec-draft-model") + 1]
        assert isinstance(variable, ShellVariable)
        assert (variable.name, variable.meaning) == ("DRAFT_MODEL", meaning)
