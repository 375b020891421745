"""What files of the Trainer, DeepSpeed, accelerate and axolotl say, and what they refuse."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from documents import values_found
from round_trip import job_of, stated

import planner
from planner.errors import LaunchError
from planner.launch.read.hf_trainer.write_script import lora_modules
from planner.launch.read.parsed_launch import JobResources, LaunchSettings, ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchDraft, LaunchJob
from planner.launch.targets import target_of

_EIGHT = JobResources(gpus_per_node=stated("--nproc-per-node", "8"))


def _job(framework: str, **asked: Any) -> LaunchJob:
    settings = asked.pop("settings", {})
    job = job_of(
        **{
            "workload": "train",
            "model": "llama-2-7b",
            "gpu": "h100-sxm",
            "framework": framework,
            "num_gpus": 8,
            "global_batch_size": 64,
            "sequence_length": 2048,
            "settings": {"micro_batch_size": 2, **settings},
            **asked,
        }
    )
    assert job is not None
    return job


def _file(draft: LaunchDraft, name: str) -> dict[str, Any]:
    (text,) = (file.text for file in draft.files if file.name == name)
    found: dict[str, Any] = (json.loads if name.endswith(".json") else yaml.safe_load)(text)
    return found


def _words(draft: LaunchDraft) -> list[Any]:
    return [word for each in draft.processes[0].arguments for word in each.words]


def _read(target: str, values: dict[str, Any], **fields: Any) -> LaunchSettings:
    tool = target_of(target)
    return tool.read_settings(
        replace(values_found(target, values), **{"resources": _EIGHT, **fields})
    )


def _command(options: dict[str, Any], *words: str, **fields: Any) -> ParsedCommand:
    found = values_found("transformers", {f"--{name}": value for name, value in options.items()})
    positional = tuple(stated("", word) for word in words)
    return replace(found, positional=positional, **{"resources": _EIGHT, **fields})


def test_the_batch_of_deepspeed_is_its_own_product() -> None:
    job = _job("DeepSpeed", settings={"zero_stage": 3, "offload": "optimizer_weights"})
    config = _file(target_of("deepspeed").make_draft(job), "ds_config.json")
    assert config["train_batch_size"] == 64
    assert config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] == 8
    assert config["bf16"] == {"enabled": True}
    zero = config["zero_optimization"]
    assert zero["stage"] == 3
    assert zero["offload_optimizer"]["device"] == zero["offload_param"]["device"] == "cpu"


def test_ranks_that_split_tensors_count_in_the_batch_of_deepspeed() -> None:
    job = _job("DeepSpeed", settings={"tensor_parallel": 2, "zero_stage": 1})
    draft = target_of("deepspeed").make_draft(job)
    config = _file(draft, "ds_config.json")
    assert config["tensor_parallel"]["autotp_size"] == 2
    per_rank = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    assert config["train_batch_size"] == per_rank * 8
    answers = _read("deepspeed", config)
    assert answers.values["global_batch_size"] == 64
    assert answers.values["tensor_parallel"] == 2


def test_auto_is_what_the_script_says() -> None:
    config = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 2},
    }
    script = {
        "model_name_or_path": "meta-llama/Llama-2-7b-hf",
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "bf16": "True",
        "model_max_length": 2048,
        "deepspeed": "ds.json",
    }
    files = {"ds.json": values_found("deepspeed", config, "ds.json")}
    found = _command(script, "train.py", files=files)
    answers = target_of("deepspeed").read_settings(found)
    assert answers.values["micro_batch_size"] == 4
    assert answers.values["global_batch_size"] == 64
    assert answers.values["zero_stage"] == 2
    assert answers.values["precision"] == "bf16"
    assert answers.values["sequence_length"] == 2048
    assert not answers.missing


def test_auto_alone_is_one_sequence_and_a_run_of_fine_tuning() -> None:
    answers = _read("deepspeed", {"train_batch_size": "auto", "zero_optimization": {"stage": 2}})
    assert {"model", "sequence_length"} <= set(answers.missing)
    assert answers.values["micro_batch_size"] == 1
    assert answers.values["total_tokens"] == 1e9
    assert {"micro_batch_size", "total_tokens"} <= set(answers.defaults)
    assert any("train_batch_size" in note for note in answers.notes)


def test_gpus_follow_from_three_numbers_of_the_batch() -> None:
    config = {
        "train_batch_size": 256,
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 4,
        "zero_optimization": {"stage": 1},
    }
    answers = _read("deepspeed", config, resources=JobResources())
    assert answers.values["num_gpus"] == 16
    assert answers.values["global_batch_size"] == 256


@pytest.mark.parametrize(
    ("config", "script"),
    [
        ({"train_batch_size": 60, "train_micro_batch_size_per_gpu": 4}, {}),
        (
            {
                "train_batch_size": 64,
                "train_micro_batch_size_per_gpu": 4,
                "gradient_accumulation_steps": 4,
            },
            {},
        ),
        ({"train_micro_batch_size_per_gpu": 4}, {"per_device_train_batch_size": 2}),
    ],
)
def test_batches_that_contradict_are_refused(
    config: dict[str, Any], script: dict[str, Any]
) -> None:
    config = {**config, "zero_optimization": {"stage": 1}}
    files = {"ds.json": values_found("deepspeed", config, "ds.json")}
    found = _command({**script, "deepspeed": "ds.json"}, "train.py", files=files)
    with pytest.raises(LaunchError, match=r"batch|Write"):
        target_of("deepspeed").read_settings(found)


def test_what_deepspeed_lets_pass_is_told() -> None:
    config = values_found("deepspeed", {"train_batch_size": 64, "zero_optimization.stage": 1})
    found = replace(config, unknown=(stated("zero_optimisation", "1"),), resources=_EIGHT)
    notes = target_of("deepspeed").read_settings(found).notes
    assert any("zero_optimisation" in note for note in notes)


@pytest.mark.parametrize(("told", "read_as"), [(None, False), ("true", None), ("false", False)])
def test_scales_of_trl_stay_wide_unless_told(told: str | None, read_as: bool | None) -> None:
    options = {"load_in_4bit": "true", "use_peft": "true", "lora_r": 16}
    more = {"use_bnb_nested_quant": told} if told else {}
    answers = target_of("transformers").read_settings(_command({**options, **more}, "sft.py"))
    assert answers.values["adapter"] == "qlora"
    assert answers.values.get("double_quantization") is read_as
    assert ("double_quantization" in answers.defaults) == (told is None)


_QLORA = {"load_in_4bit": "true", "use_peft": "true", "lora_r": 16}
_NARROW = ("main_params_precision", "optimizer_state_precision")


def test_trl_keeps_adapters_of_4_bit_weights_in_16_bits() -> None:
    """huggingface/trl 1.9.0, trainer/sft_trainer.py; with 16-bit weights PEFT's are in 32."""
    answers = target_of("transformers").read_settings(_command(_QLORA, "sft.py"))
    assert {name: answers.values[name] for name in _NARROW} == dict.fromkeys(_NARROW, "bf16")
    assert {*_NARROW} <= answers.defaults.keys()
    wide = target_of("transformers").read_settings(
        _command({"use_peft": "true", "lora_r": 16}, "sft.py")
    )
    assert not {*_NARROW} & wide.values.keys()


def test_a_named_optimizer_says_its_states_beside_narrow_adapters() -> None:
    options = {**_QLORA, "optim": "paged_adamw_8bit"}
    answers = target_of("transformers").read_settings(_command(options, "sft.py"))
    assert answers.values["optimizer_state_precision"] == "int8"
    assert "optimizer_state_precision" not in answers.defaults


def test_narrow_adapters_take_half() -> None:
    """2 + 2 + 4 bytes for 4 + 4 + 8 of 39,976,960 parameters: rank 16 in all of Llama-2-7B."""
    asked = {"model": "llama-2-7b", "adapter": "qlora", "lora_targets": "all_linear"}
    asked |= {"gpu": "a100", "framework": "hf-trainer", "lora_rank": 16, "sequence_length": 2048}
    answers = target_of("transformers").read_settings(_command(_QLORA, "sft.py"))
    narrow = {name: answers.values[name] for name in _NARROW}
    wide, less = (
        planner.estimate(**asked, num_gpus=1, global_batch_size=8, settings=settings)
        for settings in ({}, narrow)
    )
    for name, width in (("weights", 2), ("gradients", 2), ("optimizer_states", 4)):
        of_both = (getattr(one.estimate.memory.moments[0][1], name).max() for one in (wide, less))
        before, after = of_both
        assert before - after == pytest.approx(width * 39_976_960), name


def test_a_file_that_is_not_here_is_known_by_its_name() -> None:
    answers = target_of("deepspeed").read_settings(
        _command({"per_device_train_batch_size": 1, "deepspeed": "configs/zero3_bf16.json"})
    )
    assert answers.values["zero_stage"] == 3
    assert "not found" in answers.defaults["zero_stage"]
    answers = target_of("deepspeed").read_settings(
        _command({"per_device_train_batch_size": 1, "deepspeed": "configs/mine.json"})
    )
    assert "zero_stage" in answers.missing


def test_sizes_of_accelerate_multiply_to_its_processes() -> None:
    settings = {"zero_stage": 3, "data_parallel_replicas": 2, "recompute": "full"}
    draft = target_of("accelerate").make_draft(_job("HF Trainer FSDP", settings=settings))
    config = _file(draft, "accelerate.yaml")
    sizes = config["parallelism_config"]
    product = 1
    for size in sizes.values():
        product *= size
    assert product == config["num_processes"] == 8
    assert sizes["parallelism_config_dp_replicate_size"] == 2
    assert config["fsdp_config"]["fsdp_activation_checkpointing"] is True
    words = _words(draft)
    # Both would gather every layer twice.
    assert words[words.index("--gradient_checkpointing") + 1] == "false"


def test_sizes_of_accelerate_that_are_no_product_are_refused() -> None:
    config = {
        "distributed_type": "FSDP",
        "num_processes": 8,
        "fsdp_config": {"fsdp_version": 2},
        "parallelism_config": {
            "parallelism_config_dp_shard_size": 3,
            "parallelism_config_tp_size": 2,
        },
    }
    with pytest.raises(LaunchError, match="splits 6 GPUs"):
        _read("accelerate", config, resources=JobResources())


def test_fsdp_of_the_first_version() -> None:
    config = {
        "distributed_type": "FSDP",
        "mixed_precision": "bf16",
        "num_processes": 16,
        "num_machines": 2,
        "fsdp_config": {"fsdp_sharding_strategy": "SHARD_GRAD_OP", "fsdp_offload_params": True},
    }
    answers = _read("accelerate", config, resources=JobResources())
    assert answers.values["zero_stage"] == 2
    assert answers.values["offload"] == "optimizer_weights"
    assert answers.values["num_gpus"] == 16
    assert answers.values["precision"] == "bf16"


def test_defaults_are_those_of_the_script() -> None:
    plain = {"model_name_or_path": "a/b", "per_device_train_batch_size": 2}
    of_trl = target_of("transformers").read_settings(_command(plain, "trl", "sft"))
    assert of_trl.values["recompute"] == "full"
    assert of_trl.values["sequence_length"] == 1024
    assert of_trl.values["precision"] == "bf16"
    assert {"recompute", "sequence_length", "precision"} <= set(of_trl.defaults)
    other = target_of("transformers").read_settings(_command(plain, "train.py"))
    assert other.values["recompute"] == "none"
    assert "sequence_length" in other.missing
    # Neither --bf16 nor --fp16: Transformers computes in fp32, and in tf32 where it is asked to.
    assert other.values["precision"] == "fp32"
    assert any("computes in fp32" in note for note in other.notes)
    tensor = target_of("transformers").read_settings(_command({**plain, "tf32": True}, "train.py"))
    assert tensor.values["precision"] == "tf32"


def test_what_a_variable_hides_is_one_sequence_and_not_the_default_of_the_trainer() -> None:
    found = _command({"model_name_or_path": "a/b", "max_length": 512}, "trl", "sft")
    hidden = replace(
        found,
        options={**found.options, "--per_device_train_batch_size": stated("--x", None)},
    )
    answers = target_of("transformers").read_settings(hidden)
    assert answers.values["micro_batch_size"] == 1
    assert "not given" in answers.defaults["micro_batch_size"]


@pytest.mark.parametrize(
    ("model", "targets", "modules"),
    [
        ("llama-2-7b", "query_value", ("q_proj", "v_proj")),
        ("llama-2-7b", "attention", ("q_proj", "v_proj", "k_proj", "o_proj")),
        ("gpt-3-175b", "query_value", ("c_attn",)),
        ("deepseek-v3", "attention", ("q_b_proj", "kv_b_proj", "o_proj")),
    ],
)
def test_names_of_adapted_matrices(model: str, targets: str, modules: tuple[str, ...]) -> None:
    job = _job("HF Trainer", model=model, adapter="lora", lora_targets=targets)
    assert lora_modules(job) == modules


@pytest.mark.parametrize("name", ["transformers", "deepspeed", "axolotl"])
def test_experts_that_peft_would_adapt_are_told(name: str) -> None:
    job = _job("HF Trainer", model="deepseek-v3", adapter="lora", lora_targets="all_linear")
    draft = target_of(name).make_draft(job)
    assert "lora_targets" in {remark.parameter for remark in draft.unexpressed}
    assert lora_modules(job) == ("q_b_proj", "kv_b_proj", "o_proj")


def test_one_adapter_of_joined_projections_is_told() -> None:
    job = _job("HF Trainer", model="bloom-7b1", adapter="lora", lora_targets="attention")
    assert any("one matrix" in note for note in target_of("transformers").make_draft(job).notes)
    plain = _job("HF Trainer", adapter="lora")
    notes = target_of("transformers").make_draft(plain).notes
    assert not any("one matrix" in note for note in notes)


def test_a_model_without_a_public_name_brings_its_config() -> None:
    job = replace(_job("HF Trainer FSDP", settings={"zero_stage": 3}))
    job.__dict__["hub_name"] = None
    draft = target_of("accelerate").make_draft(job)
    assert _file(draft, "config.json")["num_hidden_layers"] == 32
    words = _words(draft)
    assert words[words.index("--config_name") + 1] == "config.json"
    assert words[words.index("--block_size") + 1] == "2048"


def test_what_the_trainer_cannot_say_is_told() -> None:
    settings = {"recompute": "selective", "precision": "fp8", "zero_stage": 1}
    job = _job("HF Trainer", adapter="lora", settings=settings)
    told = {remark.parameter for remark in target_of("transformers").make_draft(job).unexpressed}
    assert {"recompute", "precision", "zero_stage"} <= told


def test_axolotl_trains_whole_models_in_16_bits_alone() -> None:
    job = _job("HF Trainer FSDP", settings={"zero_stage": 3})
    with pytest.raises(LaunchError, match="HF Trainer bf16"):
        target_of("axolotl").make_draft(job)


def test_yaml_of_axolotl() -> None:
    job = _job("HF Trainer", adapter="qlora", lora_rank=32, settings={"zero_stage": 2})
    draft = target_of("axolotl").make_draft(job)
    config = _file(draft, "axolotl.yaml")
    assert config["adapter"] == "qlora"
    assert config["load_in_4bit"] is True
    assert config["lora_target_modules"] == ["q_proj", "v_proj", "k_proj", "o_proj"]
    assert config["deepspeed"] == "ds_config.json"
    assert _file(draft, "ds_config.json")["zero_optimization"]["stage"] == 2


def test_a_public_yaml_of_axolotl() -> None:
    config = {
        "base_model": "meta-llama/Llama-2-7b-hf",
        "load_in_8bit": True,
        "sequence_len": 4096,
        "sample_packing": True,
        "adapter": "lora",
        "lora_r": 32,
        "lora_target_linear": True,
        "gradient_accumulation_steps": 4,
        "micro_batch_size": 2,
        "bf16": "auto",
        "fp16": None,
        "gradient_checkpointing": True,
        "deepspeed": None,
    }
    answers = _read("axolotl", config)
    wanted = {
        "adapter": "qlora",
        "lora_rank": 32,
        "lora_targets": "all_linear",
        "global_batch_size": 64,
        "sequence_length": 4096,
        "recompute": "full",
        "precision": "bf16",
        "zero_stage": 0,
        "framework": "HF Trainer",
    }
    assert wanted.items() <= answers.values.items()
    assert answers.values["quantization_bits"] == 8
    assert not answers.missing


def test_several_matrices_are_words_of_one_option(tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text(
        "torchrun --nproc-per-node 8 -m trl.scripts.sft --model_name_or_path "
        "meta-llama/Llama-2-7b-hf --use_peft --lora_target_modules q_proj v_proj k_proj o_proj "
        "--per_device_train_batch_size 1 --max_length 512\n",
        encoding="utf-8",
    )
    assert read_launch(path).values["lora_targets"] == "attention"


@pytest.mark.parametrize(
    "name", ["YOUR_MODEL_PATH", "<model>", "/path/to/model", "your-org/your-model"]
)
def test_a_place_to_fill_in_is_no_model(name: str, tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text(f"vllm serve '{name}' --tensor-parallel-size 2\n", encoding="utf-8")
    read = read_launch(path)
    assert "model" in read.missing_terms({})


def test_names_of_models_are_no_places_to_fill_in(tmp_path: Path) -> None:
    path = tmp_path / "serve.sh"
    path.write_text("vllm serve Qwen/QwQ-32B --tensor-parallel-size 2\n", encoding="utf-8")
    assert "model" not in read_launch(path).missing_terms({})


@pytest.mark.parametrize("size", [1, 2])
def test_a_split_beside_sharding_is_read(size: int, tmp_path: Path) -> None:
    path = tmp_path / "axolotl.yaml"
    path.write_text(
        "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nmicro_batch_size: 1\nfsdp_version: 2\n"
        "fsdp_config:\n  reshard_after_forward: true\ndp_shard_size: 4\n"
        + f"tensor_parallel_size: {size}\n",
        encoding="utf-8",
    )
    assert read_launch(path).values["tensor_parallel"] == size


@pytest.mark.parametrize(("flag", "shards"), [("false", "false"), ("true", None)])
def test_accelerate_says_whether_weights_are_sharded_as_they_load(
    tmp_path: Path, flag: str, shards: str | None
) -> None:
    (tmp_path / "z3.yaml").write_text(
        "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\n"
        f"deepspeed_config:\n  zero_stage: 3\n  zero3_init_flag: {flag}\n"
    )
    (tmp_path / "run.sh").write_text(
        "accelerate launch --config_file z3.yaml train.py --model_name_or_path "
        "Qwen/Qwen2.5-7B --bf16 --per_device_train_batch_size 1 --max_length 1024\n"
    )
    assert read_launch(tmp_path / "run.sh").values.get("zero3_init") == shards


def test_matrices_and_whole_modules_of_chinese_llama_alpaca_are_read(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "torchrun --nproc_per_node 1 run_clm_sft_with_peft.py --model_name_or_path "
        "meta-llama/Llama-2-7b-hf --per_device_train_batch_size 1 --max_seq_length 512 --fp16 "
        "--lora_rank 64 --lora_trainable q_proj,v_proj,k_proj,o_proj,gate_proj,down_proj,up_proj "
        "--modules_to_save embed_tokens,lm_head\n"
    )
    found = read_launch(tmp_path / "run.sh").values
    assert (found["adapter"], found["lora_rank"]) == ("lora", 64)
    assert found["lora_targets"] == "all_linear"
    assert found["modules_to_save"] == "embeddings"


def test_a_file_of_deepspeed_may_end_otherwise(tmp_path: Path) -> None:
    (tmp_path / "ds.conf").write_text('{"zero_optimization": {"stage": 2}}')
    path = tmp_path / "run.sh"
    path.write_text(
        "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds.conf "
        "sft.py --model_name_or_path Qwen/Qwen3-8B --bf16 --per_device_train_batch_size 1\n"
    )

    assert read_launch(path).values["zero_stage"] == 2


def test_other_files_that_end_so_are_none(tmp_path: Path) -> None:
    (tmp_path / "nginx.conf").write_text("events { worker: [ }")
    path = tmp_path / "run.sh"
    path.write_text("vllm serve Qwen/Qwen3-8B --chat-template nginx.conf\n")

    assert read_launch(path).values["model"] == "Qwen/Qwen3-8B"


@pytest.mark.parametrize(
    ("options", "evaluated"),
    [
        ("--eval_strategy steps", 8),
        ("--evaluation_strategy epoch --per_device_eval_batch_size 2", 2),
        ("--eval_strategy no --per_device_eval_batch_size 4", None),
        ("--do_eval", None),
    ],
)
def test_a_trainer_that_evaluates_takes_8_sequences_unless_it_is_given_others(
    tmp_path: Path, options: str, evaluated: int | None
) -> None:
    (tmp_path / "run.sh").write_text(
        "python train.py --model_name_or_path Qwen/Qwen2.5-7B --bf16 --max_length 1024 "
        f"--per_device_train_batch_size 1 {options}\n"
    )
    assert read_launch(tmp_path / "run.sh").values.get("eval_batch_size") == evaluated


@pytest.mark.parametrize(("held_out", "evaluated"), [("0.05", 4), ("0.0", None)])
def test_axolotl_evaluates_what_it_splits_off(
    tmp_path: Path, held_out: str, evaluated: int | None
) -> None:
    (tmp_path / "run.yaml").write_text(
        "base_model: mistralai/Mistral-7B-v0.1\nadapter: lora\nlora_r: 8\nsequence_len: 2048\n"
        f"micro_batch_size: 1\neval_batch_size: 4\nval_set_size: {held_out}\n"
    )
    assert read_launch(tmp_path / "run.yaml").values.get("eval_batch_size") == evaluated
