"""Plans as torchtitan's overrides and configuration functions, and back."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from documents import values_found
from draws import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from make_public_launches import FOLDER
from round_trip import found_of, job_of, lost, stated, training_jobs

from planner.errors import LaunchError
from planner.launch.read.parsed_launch import JobResources
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob
from planner.launch.targets import target_of
from planner.launch.write.torchtitan_config import split_layers
from planner.launch.write.write_launch import make_launch
from planner.specs.catalogue import load_model

TARGET = target_of("torchtitan")
MODELS = ("llama-2-7b", "llama-65b", "deepseek-v3", "qwen3-30b-a3b", "llama-3.1-405b")


def _can_deal_experts(job: LaunchJob) -> bool:
    copies = job["data_parallel_replicas"] if job["zero_stage"] else job["data_parallel"]
    ranks = job["data_parallel"] // copies * job["context_parallel"] * job["tensor_parallel"]
    return bool(ranks % job["expert_parallel"] == 0)


@given(data=st.data())
@settings(max_examples=examples(30, 3), suppress_health_check=[HealthCheck.filter_too_much])
def test_round_trip(data: st.DataObject) -> None:
    job = data.draw(training_jobs(framework="torchtitan", models=MODELS))
    assume(job.num_gpus % job.gpus_per_node == 0)
    assume(job["data_parallel"] % job["data_parallel_replicas"] == 0)
    assume(_can_deal_experts(job))
    # What it cannot say then is told: see below.
    assume(job["zero_stage"] or job["context_parallel"] == 1)
    draft = TARGET.make_draft(job)
    answers = TARGET.read_settings(found_of(TARGET, draft))
    assert lost(TARGET, job, answers) == {}
    told = {remark.parameter for remark in draft.unexpressed}
    for name in ("num_gpus", "micro_batch_size", "zero_stage", "virtual_pipeline"):
        if name not in told and name not in answers.missing:
            assert int(answers.values.get(name, 1)) == job[name], name
    for file in draft.files:
        ast.parse(file.text)


def _job(model: str, **asked: Any) -> LaunchJob:
    settings_ = {"micro_batch_size": 1, "zero_stage": 3, **asked.pop("settings", {})}
    job = job_of(
        **{
            "workload": "train",
            "model": model,
            "gpu": "h100-sxm",
            "framework": "torchtitan",
            "sequence_length": 2048,
            "global_batch_size": 64,
            "num_gpus": 64,
            "settings": settings_,
            **asked,
        }
    )
    assert job is not None
    return job


def _words(job: LaunchJob) -> list[Any]:
    return [word for each in TARGET.make_draft(job).processes[0].arguments for word in each.words]


def test_recomputation_is_the_last_word() -> None:
    words = _words(_job("llama-3.1-8b", settings={"recompute": "full"}))
    assert words[-1] == "activation-checkpoint:full"
    assert words[words.index("--config") + 1] == "llama3_8b"
    assert not TARGET.make_draft(_job("llama-3.1-8b")).files


@pytest.mark.parametrize(
    ("layers", "stages", "first", "last", "sizes"),
    [
        (80, 20, 0, 0, [4] * 20),
        (10, 4, 1, 1, [2, 3, 3, 2]),
        (126, 8, 1, 1, [15, *[16] * 6, 15]),
        # 34 with embedding and output: the first two of four stages have nine of them.
        (32, 4, 1, 1, [8, 9, 8, 7]),
        (14, 4, 0, 0, [4, 4, 3, 3]),
        (2, 4, 0, 0, []),
    ],
)
def test_layers_are_dealt_as_torchtitan_does(
    layers: int, stages: int, first: int, last: int, sizes: list[int]
) -> None:
    assert split_layers(layers, stages, first, last) == sizes


def test_8_bits_and_sizes_of_ones_own_are_a_function() -> None:
    job = _job("llama-65b", settings={"precision": "fp8"})
    (file,) = TARGET.make_draft(job).files
    assert file.name == "planned_config.py"
    assert "def llama_65b_float8():" in file.text
    assert "Float8LinearConverter" in file.text
    assert "LAYERS = 80\nHIDDEN = 8192\nHEADS = 64" in file.text
    answers = TARGET.read_settings(found_of(TARGET, TARGET.make_draft(job)))
    assert answers.values["precision"] == "fp8"
    assert load_model(answers.values["model"]) == load_model("llama-65b")


def test_a_model_of_another_kind_is_refused() -> None:
    with pytest.raises(LaunchError, match="ships no model of its kind"):
        TARGET.make_draft(_job("mixtral-8x7b"))


def test_what_context_parallelism_shards_is_told() -> None:
    job = _job("llama-3.1-8b", settings={"zero_stage": 0, "context_parallel": 2})
    assert "zero_stage" in {remark.parameter for remark in TARGET.make_draft(job).unexpressed}


def test_defaults_are_those_of_the_configuration() -> None:
    found = values_found("torchtitan", {"--module": "llama3", "--config": "llama3_70b"})
    world = JobResources(gpus_per_node=stated("--nproc", "8"), num_nodes=stated("--nnodes", "4"))
    answers = TARGET.read_settings(replace(found, resources=world))
    wanted = {
        "model": "llama-3.1-70b",
        "tensor_parallel": 8,
        "sequence_parallel": True,
        "sequence_length": 8192,
        "micro_batch_size": 8,
        "global_batch_size": 32,
        "recompute": "full",
        "zero_stage": 3,
    }
    assert wanted.items() <= answers.values.items()
    assert {"tensor_parallel", "sequence_length", "recompute"} <= set(answers.defaults)


def test_a_file_of_an_earlier_version_is_read_and_told() -> None:
    table = {
        "model": {"name": "llama3", "flavor": "70B"},
        "training": {"batch_size": 2, "seq_len": 4096, "tensor_parallel_degree": 8},
        "experimental": {"pipeline_parallel_degree": 4},
        "activation_checkpoint": {"mode": "full"},
    }
    world = JobResources(gpus_per_node=stated("--nproc", "8"), num_nodes=stated("--nnodes", "8"))
    answers = TARGET.read_settings(replace(values_found("torchtitan", table), resources=world))
    assert answers.values["model"] == "llama-3.1-70b"
    assert answers.values["tensor_parallel"] == 8
    assert answers.values["pipeline_parallel"] == 4
    assert any("TOML" in note for note in answers.notes)


def test_gpus_that_are_no_product_are_refused() -> None:
    options = {"--config": "llama3_8b", "--parallelism.data_parallel_shard_degree": 3}
    world = JobResources(num_gpus=stated("--n", "8"))
    with pytest.raises(LaunchError, match="8 GPUs are not"):
        TARGET.read_settings(replace(values_found("torchtitan", options), resources=world))


def test_the_script_reads_back(tmp_path: Path) -> None:
    """Flags stand without values, and the last word is no value of one."""
    job = _job("llama-3.1-8b", settings={"recompute": "full", "tensor_parallel": 2})
    for file in make_launch(job.saved_plan.request(), "torchtitan", "script").files:
        (tmp_path / file.name).write_text(file.text, encoding="utf-8")
    imported = read_launch(tmp_path / "train.sh")
    wanted = {"recompute": "full", "num_gpus": 64, "tensor_parallel": 2, "micro_batch_size": 1}
    assert wanted.items() <= imported.values.items()
    assert not imported.values["sequence_parallel"]
    assert not any("TOML" in note for note in imported.notes)


@pytest.mark.parametrize(
    ("config", "options", "compiled"),
    [
        ("llama3_8b", "", "false"),  # compile.enable is False in CompileConfig and in this function
        ("llama3_8b", "--compile.enable", "auto"),
        ("llama3_405b", "", "auto"),  # compile=CompileConfig(enable=True)
    ],
)
def test_a_run_that_enables_no_compile_is_predicted_eager(
    tmp_path: Path, config: str, options: str, compiled: str
) -> None:
    script = tmp_path / "train.sh"
    script.write_text(
        "torchrun --nproc_per_node=8 -m torchtitan.train --module llama3 "
        f"--config {config} {options}\n",
        encoding="utf-8",
    )
    found = read_launch(script)
    assert found.answers.values["torch_compile"] == compiled
    assert ("torch_compile" in found.answers.defaults) is (compiled == "false")


def test_a_function_that_changes_another_has_what_that_sets() -> None:
    values = read_launch(FOLDER / "torchtitan-registry" / "config_registry.py", 3).values

    assert (values["tensor_parallel"], values["pipeline_parallel"]) == (8, 2)
    assert (values["precision"], values["recompute"]) == ("fp8", "full")
    assert (values["micro_batch_size"], values["torch_compile"]) == (4, "auto")


@pytest.mark.parametrize(
    ("spec", "model"),
    [("model_registry('70B')", "llama-3.1-70b"), ("replace(model_registry('70B'), model=m)", None)],
)
def test_a_model_that_a_function_makes_is_none_of_its_folder(
    spec: str, model: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from torchtitan.models.llama3 import model_registry\n"
        "from torchtitan.models.llama3.config_registry import llama3_8b\n"
        "def own():\n"
        "    config = llama3_8b()\n"
        f"    config.model_spec = {spec}\n"
        "    return config\n"
    )

    assert read_launch(path).values.get("model") == model
