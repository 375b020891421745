"""Megatron-DeepSpeed: arguments with a ds_config.json, and scripts of its forks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from round_trip import found_of, job_of, lost, stated, training_jobs

from planner.errors import LaunchError
from planner.launch.read.parsed_launch import JobResources, LaunchSettings, ParsedCommand
from planner.launch.target import LaunchJob
from planner.launch.targets import target_of

TARGET = target_of("megatron-deepspeed")
MODELS = ("llama-2-7b", "llama-65b", "gpt-3-175b", "mixtral-8x7b")
CONFIG = "ds_config.json"
BLOOM = {
    "--num-layers": "70",
    "--hidden-size": "14336",
    "--num-attention-heads": "112",
    "--seq-length": "2048",
    "--micro-batch-size": "2",
    "--global-batch-size": "2048",
    "--train-samples": "220_000_000",
    "--tensor-model-parallel-size": "4",
    "--pipeline-model-parallel-size": "12",
    "--position-embedding-type": "alibi",
    "--pad-vocab-size-to": "250880",
    "--bf16": None,
    "--checkpoint-activations": None,
    "--embed-layernorm": None,
    "--deepspeed": None,
    "--deepspeed_config": CONFIG,
}


def job(model: str, num_gpus: int, **more: Any) -> LaunchJob:
    made = job_of(workload="train", framework="megatron-deepspeed", model=model, gpu="a100",
                  num_gpus=num_gpus, sequence_length=2048, global_batch_size=512,
                  settings=more)  # fmt: skip
    assert made is not None
    return made


def read(
    options: dict[str, str | None], config: dict[str, str], world: JobResources | None = None
) -> LaunchSettings:
    document = ParsedCommand(
        target="deepspeed",
        name="run.slurm",
        text="",
        options={key: stated(key, text) for key, text in config.items()},
    )
    found = ParsedCommand(
        target=TARGET.name,
        name="run.slurm",
        text="",
        options={n: stated(n, *([] if t is None else [t])) for n, t in options.items()},
        files={CONFIG: document},
        resources=world or JobResources(),
    )
    return TARGET.read_settings(found)


@settings(max_examples=examples(50, 4), suppress_health_check=list(HealthCheck))
@given(made=training_jobs(framework="megatron-deepspeed", gpu="a100", models=MODELS))
def test_a_plan_comes_back(made: LaunchJob) -> None:
    draft = TARGET.make_draft(made)
    assert lost(TARGET, made, TARGET.read_settings(found_of(TARGET, draft))) == {}


def test_the_configuration_agrees_with_the_arguments() -> None:
    made = job("llama-65b", 64, tensor_parallel=8, pipeline_parallel=4, sequence_parallel=True)
    (file,) = TARGET.make_draft(made).files
    config = json.loads(file.text)
    assert config["train_batch_size"] == 512
    assert config["train_micro_batch_size_per_gpu"] == 1
    assert config["zero_optimization"] == {"stage": 1}
    assert config["bf16"] == {"enabled": True}
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}


def test_a_pipeline_of_one_stage_is_none() -> None:
    of = {each.option for each in TARGET.settings(job("llama-65b", 64, tensor_parallel=8)).options}
    assert "--no-pipeline-parallel" in of


def test_bf16_shards_even_without_zero() -> None:
    made = job("llama-65b", 64, tensor_parallel=8, zero_stage=0)
    assert [each.parameter for each in TARGET.make_draft(made).unexpressed] == ["zero_stage"]


def test_models_that_would_be_others_are_refused() -> None:
    with pytest.raises(LaunchError, match="latent attention"):
        TARGET.make_draft(job("deepseek-v3", 256, pipeline_parallel=16))


def test_a_script_of_bigscience() -> None:
    config = {"zero_optimization.stage": "0", "bf16.enabled": "true", "train_batch_size": "2048"}
    world = JobResources(
        num_nodes=stated("--nnodes", "48"), gpus_per_node=stated("--nproc_per_node", "8")
    )
    answers = read(BLOOM, config, world)
    assert answers.values["num_gpus"] == 384
    assert answers.values["zero_stage"] == "1"
    assert any("BF16_Optimizer" in note for note in answers.notes)
    assert answers.values["recompute"] == "full"
    assert answers.values["flash_attention"] == "false"
    assert answers.values["total_tokens"] == 220_000_000 * 2048.0
    assert answers.shape is not None
    assert answers.shape["position_embedding"] == "alibi"
    assert answers.shape["vocab_size"] == 250880
    assert answers.missing == ()


def test_the_configuration_tells_what_arguments_do_not() -> None:
    options = {
        name: text for name, text in BLOOM.items() if name not in ("--bf16", "--global-batch-size")
    }
    config = {
        "zero_optimization.stage": "3",
        "zero_optimization.offload_optimizer.device": "cpu",
        "fp16.enabled": "true",
        "train_batch_size": "1024",
    }
    answers = read(options, config)
    assert answers.values["zero_stage"] == "3"
    assert answers.values["precision"] == "fp16"
    assert answers.values["offload"] == "optimizer"
    assert answers.values["global_batch_size"] == "1024"


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        ({"--num-experts": "1"}, "num_experts", None),
        ({"--num-experts": "64"}, "num_experts_per_tok", 1),
        ({"--num-experts": "64"}, "num_dense_layers", 35),
        ({"--num-experts": "64", "--expert-interval": "1"}, "num_dense_layers", 0),
        ({"--num-key-value-heads": "8"}, "num_key_value_heads", 8),
        ({"--normalization": "rmsnorm"}, "norm_bias", False),
        ({"--normalization": "layernorm"}, "norm_bias", True),
    ],
)
def test_names_that_mean_something_else_here(
    options: dict[str, str | None], name: str, value: Any
) -> None:
    shape = read({**BLOOM, **options}, {}).shape
    assert shape is not None
    assert shape.get(name) == value


def test_the_fork_is_told_from_megatron_lm() -> None:
    fork = ["pretrain_gpt.py", "--num-layers", "2", "--deepspeed_config=x.json"]
    plain = ["pretrain_gpt.py", "--num-layers", "2"]
    assert TARGET.starts(fork)
    assert not TARGET.starts(plain)
    assert target_of("megatron-lm").starts(plain)
    assert not target_of("megatron-lm").starts(fork)
