"""What axolotl trains beside whole models and adapters of modules, and its experts."""

from pathlib import Path

import pytest
import yaml
from round_trip import job_of
from worked.asked import job
from worked.trainers import hugging_face

from planner.errors import LaunchError, SpecError
from planner.launch.read.import_launch import ImportedLaunch
from planner.launch.read.read_launch import read_launch
from planner.launch.targets.axolotl import TARGET

CONFIG = "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 4096\nmicro_batch_size: 1\nbf16: true\n"
LORA = f"{CONFIG}adapter: lora\nlora_r: 8\nlora_target_modules: [q_proj, v_proj]\n"


def read(folder: Path, text: str, name: str = "a.yaml") -> ImportedLaunch:
    (folder / name).write_text(text)
    return read_launch(folder / name)


def test_experts_and_shards_are_all_of_its_gpus(tmp_path: Path) -> None:
    """``_resolve_ep_group`` of its plugin takes no world of another size than their product."""
    found = read(tmp_path, f"{CONFIG}expert_parallel_size: 4\n").values
    assert (found["num_gpus"], found["expert_parallel"], found["zero_stage"]) == (4, 4, 0)
    sharded = "expert_parallel_size: 4\ndp_shard_size: 2\nfsdp_version: 2\nfsdp_config: {a: 1}\n"
    assert read(tmp_path, CONFIG + sharded).values["num_gpus"] == 4 * 2
    read(tmp_path, f"{CONFIG}expert_parallel_size: 4\n")
    with pytest.raises(LaunchError, match="splits 4 GPUs"):
        read(tmp_path, "accelerate launch --num_processes 8 -m axolotl.cli.train a.yaml\n", "a.sh")


def test_adapters_of_parameters_are_those_of_experts(tmp_path: Path) -> None:
    more = "lora_target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]\n"
    plain, both = (read(tmp_path, LORA + part).values for part in ("", more))
    assert (plain["lora_targets"], plain.get("expert_adapters")) == ("query_value", None)
    assert (both["lora_targets"], both["expert_adapters"]) == ("all_linear", "each")


@pytest.mark.parametrize("part", ["unfrozen_parameters: [model.layers.4.mlp]", "lisa_n_layers: 4"])
def test_a_part_of_the_parameters_is_refused(tmp_path: Path, part: str) -> None:
    with pytest.raises(SpecError, match=part.partition(":")[0]):
        read(tmp_path, f"{CONFIG}{part}\n")


def test_all_of_a_language_model_leaves_its_tower(tmp_path: Path) -> None:
    text = CONFIG.replace("Qwen3-30B-A3B", "Qwen2.5-VL-7B-Instruct")
    found = read(tmp_path, f"{text}unfrozen_parameters: [model.language_model.*, lm_head]\n")
    assert found.values["freeze_vision_tower"] is True


@pytest.mark.parametrize(
    ("more", "word"), [("qat: {weight_dtype: int8}\n", "qat"), ("peft_use_dora: true\n", "DoRA")]
)
def test_what_is_not_in_the_prediction_is_told(tmp_path: Path, more: str, word: str) -> None:
    notes = [" ".join(read(tmp_path, LORA + part).notes) for part in ("", more)]
    assert [word in note for note in notes] == [False, True]


def test_an_objective_that_nothing_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="ebft"):
        read(tmp_path, f"{CONFIG}rl: ebft\n")
    found = read(tmp_path, f"{CONFIG}rl: gdpo\ntrl: {{beta: 0.1}}\n").values
    assert found["training_objective"] == "grpo"


@pytest.mark.parametrize(
    ("framework", "stage", "has_file"),
    [("deepspeed", 0, True), ("deepspeed", 3, True), ("hf-trainer", 0, False),
     ("hf-trainer", 3, True)],
)  # fmt: skip
def test_deepspeed_has_its_file_even_where_it_shards_nothing(
    framework: str, stage: int, has_file: bool
) -> None:
    job = job_of(
        model="llama-3.1-8b", gpu="h200", num_gpus=8, framework=framework, adapter="lora",
        sequence_length=2048, global_batch_size=16,
        settings={"zero_stage": stage, "micro_batch_size": 1},
    )  # fmt: skip
    assert job is not None
    assert ("ds_config.json" in [file.name for file in TARGET.make_draft(job).files]) == has_file


def test_activations_are_offloaded_where_checkpoints_keep_them() -> None:
    """Axolotl's schema refuses activation_offloading without gradient_checkpointing."""
    plan = {"micro_batch_size": 2, "zero_stage": 3, "framework": "hf-bf16"}
    plan |= {"offload": "activations", "recompute": "full"}
    draft = TARGET.make_draft(job(hugging_face("llama-2-7b", 8, 64, **plan)))
    document = yaml.safe_load(draft.files[0].text)
    assert document["activation_offloading"]
    assert document["gradient_checkpointing"]
    assert "activation_checkpointing" not in document["fsdp_config"]
    plan |= {"recompute": "none"}
    with pytest.raises(LaunchError, match="--set recompute=full, or offload=none"):
        TARGET.make_draft(job(hugging_face("llama-2-7b", 8, 64, **plan)))
