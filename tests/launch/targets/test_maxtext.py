"""MaxText: a mesh whose axes fill the GPUs, batches that may be fractions, and back."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, reject, settings
from round_trip import found_of, job_of, lost, stated, training_jobs

from planner.errors import LaunchError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.option_lines import Status
from planner.launch.read.parsed_launch import JobResources, LaunchSettings, ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob, ShellVariable
from planner.launch.targets import target_of
from planner.launch.targets.maxtext import KEYS, maxtext_name, model_of_maxtext
from planner.launch.write.write_launch import make_launch, restrict_to_target
from planner.question.request import Request
from planner.specs.catalogue import Catalogue

TARGET = target_of("maxtext")
SOME = settings(max_examples=examples(25, 5), suppress_health_check=list(HealthCheck))
MODELS = ("llama-2-7b", "llama-65b", "mixtral-8x7b", "qwen3-30b-a3b")


def job(model: str, num_gpus: int, framework: str = "torchtitan", **more: Any) -> LaunchJob:
    asked = {"sequence_length": 2048, "global_batch_size": 512}
    asked |= {name: more.pop(name) for name in list(more) if name in asked}
    made = job_of(workload="train", framework=framework, model=model, gpu="h100-sxm",
                  num_gpus=num_gpus, settings=more, **asked)  # fmt: skip
    assert made is not None
    return made


def words(of: LaunchJob) -> dict[str, str]:
    return {each.option: each.text or "" for each in TARGET.settings(of).options}


def read(*positional: str, world: JobResources | None = None, **options: str) -> LaunchSettings:
    found = ParsedCommand(
        target=TARGET.name,
        name="run.sh",
        text="",
        options={name: stated(name, text) for name, text in options.items()},
        positional=tuple(stated("", word) for word in positional),
        resources=world or JobResources(),
    )
    return TARGET.read_settings(found)


def come_back(made: LaunchJob) -> None:
    try:
        draft = TARGET.make_draft(made)
    except LaunchError:
        reject()
    answers = TARGET.read_settings(found_of(TARGET, draft))
    wrong = lost(TARGET, made, answers, derived=True)
    # A file names the kernels that its framework runs.
    kernel = wrong.pop("attention_kernel", ("auto", "cudnn"))
    assert kernel == ("auto", "cudnn")
    # Every policy is full recomputation with what it keeps.
    policies = {
        "none": "qkv_proj+context+out_proj+mlpwi+mlpwo",
        "selective": "qkv_proj+out_proj+mlpwi+mlpwo",
        "feed_forward": "qkv_proj+context+out_proj",
    }
    if made["recompute"] in policies:
        for name in ("recompute", "saved_tensors", "offloaded_tensors"):
            wrong.pop(name, None)
        assert answers.values["recompute"] == "full"
        moves = "activations" in made["offload"]
        kept = "layer_input+" * moves + policies[made["recompute"]]
        assert answers.values["offloaded_tensors" if moves else "saved_tensors"] == kept
    if "activations" in made["offload"]:
        assert wrong.pop("offload")[0] == made["offload"]
        assert "layer_input" in answers.values["offloaded_tensors"]
        wrong.pop("offloaded_tensors", None)
    assert wrong == {}


@SOME
@given(made=training_jobs(models=MODELS))
def test_a_plan_with_whole_weights_comes_back(made: LaunchJob) -> None:
    come_back(made)


@SOME
@given(made=training_jobs(framework="maxtext", models=MODELS))
def test_a_plan_with_sharded_weights_comes_back(made: LaunchJob) -> None:
    come_back(made)


@SOME
@given(made=training_jobs(models=MODELS))
def test_axes_fill_nodes(made: LaunchJob) -> None:
    try:
        said = words(made)
    except LaunchError:
        reject()
    for kind, places in (("ici", made.gpus_per_node), ("dcn", made.num_nodes)):
        axes = [int(text) for name, text in said.items() if name.startswith(kind)]
        assert prod(axes) == places


def test_tensor_parallelism_makes_the_batch_of_a_gpu_a_fraction() -> None:
    said = words(job("llama-2-7b", 64, tensor_parallel=8, micro_batch_size=1))
    assert said["per_device_batch_size"] == "0.125"
    assert said["gradient_accumulation_steps"] == "64"


def test_what_exchanges_most_stands_within_a_node() -> None:
    said = words(job("llama-2-7b", 64, tensor_parallel=4, zero_stage=3))
    assert (said["ici_tensor_parallelism"], said["dcn_tensor_parallelism"]) == ("4", "1")
    assert (said["ici_fsdp_parallelism"], said["dcn_fsdp_parallelism"]) == ("2", "8")


def test_nodes_meet_where_jax_looks() -> None:
    (process,) = TARGET.make_draft(job("llama-2-7b", 64)).processes
    names = {word.prefix: word.name for each in process.arguments for word in each.words
             if isinstance(word, ShellVariable)}  # fmt: skip
    assert names["JAX_COORDINATOR_IP="] == "MASTER_ADDR"
    assert names["NODE_RANK="] == "NODE_RANK"
    (alone,) = TARGET.make_draft(job("llama-2-7b", 8)).processes
    assert alone.arguments[0].words[0] == "python3"


def test_it_is_told_that_no_profile_is_its_own() -> None:
    draft = TARGET.make_draft(job("llama-2-7b", 8))
    assert any("predicted as for" in note for note in map(str, draft.notes))


def test_gradients_alone_are_not_sharded() -> None:
    draft = TARGET.make_draft(job("llama-2-7b", 8, framework="deepspeed", zero_stage=2))
    assert "zero_stage" in [each.parameter for each in draft.unexpressed]


def test_a_pipeline_of_unequal_chunks_is_refused() -> None:
    made = job("deepseek-v3", 256, framework="megatron-lm", pipeline_parallel=16)
    with pytest.raises(LaunchError, match="equal chunks"):
        TARGET.make_draft(made)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("llama-3.1-405b", "llama3.1-405b"),
        ("deepseek-v3", "deepseek3-671b"),
        ("qwen3-30b-a3b", "qwen3-30b-a3b"),
        ("llama-65b", None),
    ],
)
def test_names_of_shipped_models(model: str, name: str | None) -> None:
    spec = Catalogue().load_model(model)
    assert maxtext_name(spec) == name
    if name is not None:
        known = model_of_maxtext(name)
        assert known is not None
        assert Catalogue().load_model(known) == spec


def test_a_script_of_maxtext() -> None:
    """16 nodes of 8: copies across them, shards within."""
    answers = read("src/maxtext/configs/gpu/models/llama2_7b.yml",
                   dcn_data_parallelism="16", ici_fsdp_parallelism="8",
                   per_device_batch_size="4", max_target_length="4096")  # fmt: skip
    model = answers.values["model"]
    assert Catalogue().load_model(str(model)).name == Catalogue().load_model("llama-2-7b").name
    assert answers.values["num_gpus"] == 128
    assert answers.values["zero_stage"] == 3
    assert answers.values["data_parallel_replicas"] == 16
    assert answers.values["global_batch_size"] == 512
    assert answers.values["micro_batch_size"] == 4


def test_an_axis_takes_the_rest() -> None:
    world = JobResources(num_nodes=stated("--nnodes", "2"), gpus_per_node=stated("--gpus", "8"))
    answers = read(world=world, model_name="llama3-8b", ici_tensor_parallelism="4")
    assert answers.values["tensor_parallel"] == 4
    assert answers.values["data_parallel_replicas"] == 2
    assert "global_batch_size" in answers.defaults


def test_axes_that_do_not_fill_the_gpus_are_refused() -> None:
    world = JobResources(num_nodes=stated("--nnodes", "1"), gpus_per_node=stated("--gpus", "8"))
    with pytest.raises(LaunchError, match="do not divide 8"):
        read(world=world, model_name="llama3-8b", ici_tensor_parallelism="3")
    with pytest.raises(LaunchError, match="one may be"):
        read(world=world, model_name="llama3-8b", ici_tensor_parallelism="-1")


def test_what_is_left_open_is_asked() -> None:
    answers = read(model_name="llama3-8b")
    assert set(answers.missing) == {"num_gpus", "global_batch_size"}


def test_commands_and_documents_of_others_are_not_of_it() -> None:
    assert TARGET.starts(["python3", "-m", "maxtext.trainers.pre_train.train", "base.yml"])
    assert not TARGET.starts(["pretrain_gpt.py"])
    assert TARGET.is_of({"ici_fsdp_parallelism": "8"})
    assert not TARGET.is_of({"model.tensor_model_parallel_size": "8"})


def written_and_read(folder: Path, framework: str, zero_stage: int) -> ImportedLaunch:
    """The script of a plan, as a user's file."""
    request = Request(
        workload="train",
        model="llama-3-8b",
        gpu="b200",
        num_gpus=16,
        framework=framework,
        settings={"zero_stage": zero_stage, "global_batch_size": 64},
    )
    path = folder / "train.sh"
    (script,) = (f for f in make_launch(request, "maxtext", "script").files if f.name == path.name)
    path.write_text(script.text, encoding="utf-8")
    return read_launch(path)


@pytest.mark.parametrize("stage", [1, 3])
def test_files_of_maxtext_are_judged_as_it(stage: int, tmp_path: Path) -> None:
    asked = restrict_to_target(Request(workload="train", model="llama-3-8b", num_gpus=8), "maxtext")
    assert asked.framework == "MaxText"
    back = written_and_read(tmp_path, "maxtext", stage)
    assert back.values["framework"] == "MaxText"
    assert back.values["zero_stage"] == stage


# AI-Hypercomputer/maxtext e591f30, src/maxtext/layers/decoders.py, get_remat_policy.
@pytest.mark.parametrize(
    ("options", "saved", "moved"),
    [
        ({}, None, None),
        ({"remat_policy": "full"}, None, None),
        ({"remat_policy": "save_qkv_proj"}, "qkv_proj", None),
        ({"remat_policy": "save_out_proj"}, "out_proj", None),
        ({"remat_policy": "save_dot_except_mlp"}, "qkv_proj+out_proj", None),
        ({"remat_policy": "save_dot_except_mlpwi"}, "qkv_proj+out_proj+mlpwo", None),
        (
            {"remat_policy": "save_dot_with_context_except_mlp"},
            "qkv_proj+context+out_proj",
            None,
        ),
        ({"remat_policy": "minimal"}, "qkv_proj+out_proj+mlpwi+mlpwo", None),
        ({"remat_policy": "minimal_flash"}, "qkv_proj+context+out_proj+mlpwi+mlpwo", None),
        ({"remat_policy": "qkv_proj_offloaded"}, None, "qkv_proj"),
        ({"remat_policy": "minimal_offloaded"}, None, "qkv_proj+out_proj+mlpwi+mlpwo"),
        (  # llama3_1_8b_8192 of benchmarks/maxtext_trillium_model_configs.py
            {
                "remat_policy": "custom",
                **dict.fromkeys(
                    ("decoder_layer_input", "out_proj", "query_proj", "key_proj", "value_proj"),
                    "offload",
                ),
            },
            None,
            "layer_input+qkv_proj+out_proj",
        ),
        (
            {"remat_policy": "custom", "context": "device", "mlpwo": "offload"},
            "context",
            "mlpwo",
        ),
        ({"remat_policy": "custom", "query_proj": "device", "key_proj": "remat"}, None, None),
    ],
)
def test_remat_policies_are_read_and_come_back(
    options: dict[str, str], saved: str | None, moved: str | None
) -> None:
    values = read(model_name="llama3-8b", ici_fsdp_parallelism="8", **options).values
    assert values["recompute"] == "full"
    assert (values.get("saved_tensors"), values.get("offloaded_tensors")) == (saved, moved)
    kept = {"saved_tensors": saved or "none", "offloaded_tensors": moved or "none"}
    said = words(job("llama-3-8b", 8, "maxtext", recompute="full", **kept))
    again = {name: text for name, text in said.items() if name in (*KEYS, "remat_policy")}
    values = read(model_name="llama3-8b", ici_fsdp_parallelism="8", **again).values
    assert (values.get("saved_tensors"), values.get("offloaded_tensors")) == (saved, moved)


def test_policies_and_places_that_do_not_exist_are_refused() -> None:
    with pytest.raises(LaunchError, match=r"remat_policy save_all is not one of full, save_out"):
        read(model_name="llama3-8b", remat_policy="save_all")
    with pytest.raises(LaunchError, match="out_proj is device, offload or remat, not host"):
        read(model_name="llama3-8b", remat_policy="custom", out_proj="host")


def test_adapters_are_judged_as_a_framework_that_trains_them() -> None:
    sizes = {"ici_fsdp_parallelism": "8", "lora.lora_rank": "8", "lora.enable_lora": "true"}
    adapted = read(model_name="llama2-7b", **sizes).values
    assert adapted["adapter"] == "lora"
    assert Catalogue(None).load_framework(adapted["framework"]).spec.adapters


def test_paths_leave_nothing_open(tmp_path: Path) -> None:
    back = written_and_read(tmp_path, "maxtext", 3)
    assert [line.option for line in back.lines_with_status(Status.OPEN)] == []
