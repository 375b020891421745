"""LLaMA-Factory's YAML has its own defaults, and changes of it are in its own words."""

from pathlib import Path

import pytest

from planner.errors import LaunchError, SpecError
from planner.launch.read.option_lines import Status
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import target_of

ADAPTER = """\
model_name_or_path: Qwen/Qwen2.5-7B-Instruct
stage: sft
finetuning_type: lora
lora_target: all
template: qwen
per_device_train_batch_size: 2
bf16: true
"""
WHOLE = ADAPTER.replace("lora\nlora_target: all", "full")


def read(folder: Path, text: str, name: str = "lf.yaml") -> dict[str, object]:
    (folder / name).write_text(text)
    return dict(read_launch(folder / name).values)


def test_every_layer_is_repeated_unless_it_is_disabled(tmp_path: Path) -> None:
    """`prepare_model_for_training` of LLaMA-Factory reads disable_gradient_checkpointing alone."""
    assert read(tmp_path, ADAPTER)["recompute"] == "full"
    assert read(tmp_path, f"{ADAPTER}gradient_checkpointing: false\n")["recompute"] == "full"
    off = read(tmp_path, f"{ADAPTER}disable_gradient_checkpointing: true\n")
    assert off["recompute"] == "none"


def test_unsloth_repeats_layers_whatever_is_disabled(tmp_path: Path) -> None:
    """`get_unsloth_peft_model` of LLaMA-Factory asks for its checkpoints."""
    text = f"{ADAPTER}disable_gradient_checkpointing: true\nuse_unsloth: true\n"
    found = read(tmp_path, text)
    names = ("framework", "recompute", "offload")
    assert [found[name] for name in names] == ["Unsloth", "full", "activations"]


@pytest.mark.parametrize("more", ["quantization_bit: 4\n", ""])
def test_a_default_that_is_stated_changes_nothing(tmp_path: Path, more: str) -> None:
    found = read(tmp_path, ADAPTER + more)
    stated = "packing: false\nlora_rank: 8\ncutoff_len: 2048\nflash_attn: auto\n"
    assert read(tmp_path, ADAPTER + more + stated) == found
    assert found["adapter"] == ("qlora" if more else "lora")
    assert (found["lora_rank"], found["sequence_length"]) == (8, 2048)
    assert found["lora_targets"] == "all_linear"


def test_without_a_type_an_adapter_is_trained(tmp_path: Path) -> None:
    text = ADAPTER.replace("finetuning_type: lora\nlora_target: all\n", "")
    found = read(tmp_path, text)
    assert (found["adapter"], found["lora_targets"]) == ("lora", "all_linear")
    assert read(tmp_path, WHOLE)["adapter"] == "none"


def test_names_of_matrices_stand_between_commas(tmp_path: Path) -> None:
    text = ADAPTER.replace("lora_target: all", "lora_target: q_proj,v_proj")
    more = "additional_target: embed_tokens,lm_head\n"
    found = read(tmp_path, text + more)
    assert found["lora_targets"] == "query_value"
    assert found["modules_to_save"] == "embeddings"


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ("flash_attn: fa2\n", "attention_kernel", "fa2"),
        ("flash_attn: sdpa\n", "attention_kernel", "sdpa"),
        ("flash_attn: disabled\n", "flash_attention", "false"),
        ("enable_liger_kernel: true\n", "loss_kernel", "linear"),
        ("use_unsloth_gc: true\n", "offload", "activations"),
        ("max_samples: 500\n", "num_samples", 500),
        ("fp8: true\n", "precision", "fp8"),
        ("use_muon: true\n", "optimizer", "muon"),
        ("ray_num_workers: 4\n", "num_gpus", 4),
    ],
)
def test_keys_of_its_own_are_read(tmp_path: Path, more: str, name: str, value: object) -> None:
    assert read(tmp_path, ADAPTER + more).get(name) == value


def test_its_command_reads_the_file_and_what_replaces_its_keys(tmp_path: Path) -> None:
    (tmp_path / "lf.yaml").write_text(ADAPTER)
    command = "CUDA_VISIBLE_DEVICES=0,1 llamafactory-cli train lf.yaml cutoff_len=4096\n"
    found = read(tmp_path, command, "run.sh")
    assert (found["sequence_length"], found["num_gpus"]) == (4096, 2)
    assert (found["recompute"], found["micro_batch_size"]) == ("full", 2)


@pytest.mark.parametrize(("key", "layers"), [("", 2), ("freeze_trainable_layers: 6\n", 6)])
def test_freezing_all_but_the_last_layers_is_read(tmp_path: Path, key: str, layers: int) -> None:
    text = ADAPTER.replace("finetuning_type: lora\n", f"finetuning_type: freeze\n{key}")
    found = read(tmp_path, text)
    assert (found["adapter"], int(str(found["trained_layers"]))) == ("none", layers)


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        (
            "finetuning_type: lora",
            "finetuning_type: freeze\nfreeze_trainable_modules: mlp",
            "freeze_trainable_modules",
        ),
        (
            "finetuning_type: lora",
            "finetuning_type: freeze\nfreeze_trainable_layers: -2",
            "freeze_trainable_layers",
        ),
        ("stage: sft", "stage: sft\nuse_galore: true", "use_galore"),
        ("stage: sft", "stage: sft\nmixture_of_depths: convert", "mixture_of_depths"),
        ("stage: sft", "stage: sft\nuse_kt: true", "use_kt"),
        ("bf16: true", "bf16: true\noptim: galore_adamw", "galore_adamw"),
    ],
)
def test_what_trains_other_parameters_is_refused(
    tmp_path: Path, old: str, new: str, what: str
) -> None:
    with pytest.raises(SpecError, match=what) as caught:
        read(tmp_path, ADAPTER.replace(old, new))
    assert caught.value.exit_code == 2
    assert "lf.yaml" in str(caught.value)


def test_none_of_its_keys_is_unknown(tmp_path: Path) -> None:
    more = "quantization_bit: 4\ndataset: identity\noverwrite_cache: true\nplot_loss: true\n"
    (tmp_path / "lf.yaml").write_text(ADAPTER + more)
    assert not read_launch(tmp_path / "lf.yaml").lines_with_status(Status.UNKNOWN)


def test_a_change_is_in_words_that_the_program_honours(tmp_path: Path) -> None:
    (tmp_path / "lf.yaml").write_text(f"{WHOLE}deepspeed: z3.json\n")
    found = _found(tmp_path / "lf.yaml")
    own, beside = target_of("transformers").honoured(
        found,
        {
            "fsdp_config.activation_checkpointing": None,
            "fsdp_config.reshard_after_forward": ("false",),
            "max_length": ("1024",),
        },
    )
    assert own == {"disable_gradient_checkpointing": ("true",), "cutoff_len": ("1024",)}
    assert beside == {"zero_optimization.stage": ("2",)}


def test_deepspeed_honours_no_key_of_fsdp(tmp_path: Path) -> None:
    text = (
        "model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 4\n"
        "deepspeed: z3.json\nbf16: true\nmax_length: 4096\ngradient_checkpointing: false\n"
    )
    more = "fsdp_config:\n  activation_checkpointing: true\n"
    assert read(tmp_path, text + more)["recompute"] == "none"
    own, _ = target_of("transformers").honoured(
        _found(tmp_path / "lf.yaml"), {"fsdp_config.activation_checkpointing": ("true",)}
    )
    assert own == {"gradient_checkpointing": ("true",)}


def _found(path: Path) -> ParsedCommand:
    return read_launch(path).command


def test_options_of_its_command_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "NPROC_PER_NODE=2 llamafactory-cli train --stage sft --do_train True --template llama3 "
        "--model_name_or_path meta-llama/Llama-3.1-8B --finetuning_type lora --cutoff_len 4096 "
        "--per_device_train_batch_size 1 --dataset own --output_dir out\n"
    )
    found = read_launch(tmp_path / "run.sh")
    assert (found.values["adapter"], found.values["num_gpus"]) == ("lora", 2)
    assert not found.lines_with_status(Status.UNKNOWN)


def test_what_an_adapter_begins_from_costs_nothing(tmp_path: Path) -> None:
    found = read(tmp_path, ADAPTER)
    more = "pissa_init: true\npissa_iter: 16\nuse_rslora: true\nloraplus_lr_ratio: 16.0\n"
    assert read(tmp_path, ADAPTER + more) == found
    assert not read_launch(tmp_path / "lf.yaml").lines_with_status(Status.UNKNOWN)


def test_norms_of_dora_are_said_to_be_left_out(tmp_path: Path) -> None:
    for more, is_said in (("use_dora: true\n", True), ("use_dora: false\n", False)):
        (tmp_path / "lf.yaml").write_text(ADAPTER + more)
        found = read_launch(tmp_path / "lf.yaml")
        assert any("DoRA" in note for note in found.notes) is is_said
        assert not found.lines_with_status(Status.UNKNOWN)


def test_keys_of_megatron_split_the_model(tmp_path: Path) -> None:
    """8 GPUs: 2 x 2 hold a copy, whose 2 ranks take 2 sequences of a micro-batch 4 times."""
    more = (
        "tensor_model_parallel_size: 2\npipeline_model_parallel_size: 2\nray_num_workers: 8\n"
        "gradient_accumulation_steps: 4\nsequence_parallel: true\nrecompute_granularity: full\n"
        "use_distributed_optimizer: true\n"
    )
    found = read(tmp_path, WHOLE + more)
    told = ("framework", "tensor_parallel", "pipeline_parallel", "sequence_parallel", "recompute")
    assert [found[name] for name in told] == ["Megatron-LM", 2, 2, "true", "full"]
    assert (found["zero_stage"], found["global_batch_size"]) == ("1", 2 * 4 * 2)
    assert read(tmp_path, ADAPTER + more)["framework"] == "Megatron-Bridge"


@pytest.mark.parametrize(("name", "stage"), [("full_fsdp2.yaml", 3), ("full.yaml", 0)])
def test_arguments_called_after_fsdp_are_sharded(tmp_path: Path, name: str, stage: int) -> None:
    assert read(tmp_path, WHOLE, name)["zero_stage"] == stage


def test_a_file_stands_where_its_command_is_started(tmp_path: Path) -> None:
    own, beside = tmp_path / "examples" / "extras", tmp_path / "examples" / "accelerate"
    own.mkdir(parents=True)
    beside.mkdir()
    (own / "lf.yaml").write_text(ADAPTER)
    (beside / "one.yaml").write_text(
        "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_sharding_strategy: 1\n"
    )
    found = read(
        own,
        "accelerate launch --config_file examples/accelerate/one.yaml src/train.py "
        "examples/extras/lf.yaml\n",
        "run.sh",
    )
    assert (found["num_gpus"], found["zero_stage"], found["adapter"]) == (4, 3, "lora")


V1 = "model: Qwen/Qwen3-4B\ntrain_dataset: data/a.yaml\nmicro_batch_size: 2\n"


@pytest.mark.parametrize(
    ("more", "name", "value"),
    [
        ("", "adapter", "none"),
        ("", "zero_stage", 0),
        ("", "sequence_length", 2048),
        ("", "recompute", "full"),
        ("enable_activation_checkpointing: false\n", "recompute", "none"),
        ("bf16: false\n", "precision", "fp32"),
        ("dist_config: {name: fsdp2}\n", "zero_stage", 3),
        ("dist_config: {name: fsdp2, reshard_after_forward: false}\n", "zero_stage", 2),
        ("dist_config: {name: fsdp2, offload_params: true}\n", "offload", "optimizer_weights"),
        ("dist_config: {name: deepspeed, config_file: ds_z2.json}\n", "zero_stage", 2),
        ("dist_config: {name: fsdpturbo, ep_size: 4}\n", "expert_parallel", 4),
        ("peft_config: {name: lora}\n", "lora_rank", 8),
        ("peft_config: {name: lora, r: 32}\nquant_config: {name: bnb, quantization_bit: 4}\n",
         "adapter", "qlora"),
        ("cp_size: 2\n", "context_parallel", 2),
        ("optim_config: {name: muon}\n", "optimizer", "muon"),
        ("kernel_config: {name: liger_kernel}\n", "loss_kernel", "linear"),
        ("pref_loss: sigmoid\n", "training_objective", "dpo"),
    ],
)  # fmt: skip
def test_keys_of_its_v1_are_read(tmp_path: Path, more: str, name: str, value: object) -> None:
    assert read(tmp_path, V1 + more)[name] == value
    assert not read_launch(tmp_path / "lf.yaml").lines_with_status(Status.UNKNOWN)


def test_a_command_of_its_v1_says_what_is_trained(tmp_path: Path) -> None:
    """A batch of 32 on 4 GPUs of which pairs share a sequence: 8 steps of 2 on 2 ranks."""
    (tmp_path / "lf.yaml").write_text(f"{V1}global_batch_size: 32\ncp_size: 2\n")
    command = "USE_V1=1 NPROC_PER_NODE=4 llamafactory-cli rm lf.yaml\n"
    found = read(tmp_path, command, "run.sh")
    assert (found["training_objective"], found["num_gpus"]) == ("rm", 4)
    assert (found["global_batch_size"], found["micro_batch_size"]) == (32, 2)


def test_what_its_v1_freezes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="freeze"):
        read(tmp_path, f"{V1}peft_config: {{name: freeze}}\n")


def test_a_change_is_in_words_of_its_v1(tmp_path: Path) -> None:
    (tmp_path / "lf.yaml").write_text(V1)
    target, found = target_of("transformers"), _found(tmp_path / "lf.yaml")
    own, _ = target.honoured(found, {"max_length": ("1024",), "gradient_checkpointing": ("false",)})
    assert own == {"cutoff_len": ("1024",), "enable_activation_checkpointing": ("false",)}
    with pytest.raises(LaunchError, match="packing"):
        target.honoured(found, {"packing": ("true",)})


def test_max_samples_is_an_upper_limit_of_each_data_set(tmp_path: Path) -> None:
    """Time and cost of a cap of 100,000 were those of 100,000 samples, of a data set of 11,000."""
    (tmp_path / "lf.yaml").write_text(
        ADAPTER + "dataset: identity,alpaca_en_demo\nmax_samples: 1000\n"
    )
    found = read_launch(tmp_path / "lf.yaml")

    assert found.values["num_samples"] == 2000
    assert "upper limits" in found.defaults["num_samples"]
