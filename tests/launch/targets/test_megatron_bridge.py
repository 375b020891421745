"""Overrides of Megatron-Bridge: what is written, and what those of NeMo and Primus say."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from draws import examples
from hypothesis import HealthCheck, given, settings
from round_trip import found_of, job_of, round_trip, stated, training_jobs

from planner.errors import LaunchError
from planner.launch.model_shape import find_model_of_name
from planner.launch.read.option_lines import Status
from planner.launch.read.parsed_launch import JobResources, LaunchSettings, ParsedCommand
from planner.launch.read.read_launch import read_launch
from planner.launch.target import LaunchJob, ShellVariable
from planner.launch.targets import target_of

TARGET = target_of("megatron-bridge")
SOME = settings(max_examples=examples(50, 6), suppress_health_check=list(HealthCheck))


def job(model: str, num_gpus: int, framework: str = "megatron-bridge", **more: Any) -> LaunchJob:
    asked: dict[str, Any] = {"gpu": "h100-sxm", "sequence_length": 2048, "global_batch_size": 512}
    names = (*asked, "adapter", "lora_rank", "lora_targets", "mtp_num_layers")
    asked |= {name: more.pop(name) for name in list(more) if name in names}
    made = job_of(workload="train", framework=framework, model=model, num_gpus=num_gpus,
                  settings=more, **asked)  # fmt: skip
    assert made is not None
    return made


def words(of: LaunchJob) -> dict[str, str]:
    return {each.option: each.text or "" for each in TARGET.settings(of).options}


def read(*positional: str, world: JobResources | None = None, **options: str) -> LaunchSettings:
    """What these keys say: `__` stands for the dot."""
    named = {name.replace("__", "."): text for name, text in options.items()}
    found = ParsedCommand(
        target=TARGET.name,
        name="run.yaml",
        text="",
        options={name: stated(name, text) for name, text in named.items()},
        positional=tuple(stated("", word) for word in positional),
        resources=world or JobResources(),
    )
    return TARGET.read_settings(found)


@SOME
@given(made=training_jobs(framework="megatron-bridge", adapters=("none", "lora")))
def test_a_plan_comes_back_from_its_overrides(made: LaunchJob) -> None:
    assert round_trip(TARGET, made) == {}


def test_the_program_is_python_that_has_the_model_s_name_as_an_argument() -> None:
    draft = TARGET.make_draft(job("llama-3-8b", 8))
    (program,) = draft.files
    tree = ast.parse(program.text)
    assert "pretrain" in {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    first = draft.processes[0].arguments[0].words
    assert first[0] == program.name
    assert first[1] == "meta-llama/Meta-Llama-3-8B"
    assert "model.num_layers" not in words(job("llama-3-8b", 8))


def test_a_model_that_is_nowhere_else_is_described() -> None:
    said = words(job("gpt-3-175b", 64, tensor_parallel=8, pipeline_parallel=8))
    assert said["model.num_layers"] == "96"
    assert said["model.position_embedding_type"] == "learned_absolute"
    assert said["model.share_embeddings_and_output_weights"] == "true"


def test_adapters_are_trained_of_frozen_weights() -> None:
    made = job("llama-3-8b", 8, adapter="lora", lora_rank=16, lora_targets="attention")
    draft = TARGET.make_draft(made)
    assert words(made)["peft.dim"] == "16"
    assert words(made)["peft.target_modules"] == "[linear_qkv,linear_proj]"
    assert "finetune(config" in draft.files[0].text
    variables = [
        word.prefix
        for each in draft.processes[0].arguments
        for word in each.words
        if isinstance(word, ShellVariable)
    ]
    assert "checkpoint.pretrained_checkpoint=" in variables
    assert "dataset.dataset_root=" in variables


def test_what_fused_matrices_cannot_say_is_told() -> None:
    made = job("llama-3-8b", 8, adapter="lora", lora_rank=16, lora_targets="query_value")
    assert [each.parameter for each in TARGET.make_draft(made).unexpressed] == ["lora_targets"]


def test_what_each_profile_assumes_is_written() -> None:
    of = {"expert_parallel": 8, "tensor_parallel": 2, "sequence_parallel": True}
    bridge, nemo = (
        job("mixtral-8x7b", 16, framework=name, gpu="b200", **of)
        for name in ("megatron-bridge", "nemo")
    )
    assert words(bridge)["model.moe_flex_dispatcher_backend"] == "hybridep"
    assert words(nemo)["model.moe_flex_dispatcher_backend"] == "deepep"
    # Its recipes of models with experts leave the exchange of tensor parallelism as it is.
    assert "comm_overlap.tp_comm_overlap" not in words(nemo)
    dense = {name: value for name, value in of.items() if name != "expert_parallel"}
    of_dense = words(job("llama-3-8b", 16, framework="nemo", **dense))
    assert of_dense["comm_overlap.tp_comm_overlap"] == "true"
    assert words(nemo)["mixed_precision.grad_reduce_in_fp32"] == "false"
    environment = TARGET.make_draft(bridge).processes[0].environment
    assert environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"


def test_attention_in_8_bit_has_an_option_here() -> None:
    said = words(job("llama-2-7b", 8, precision="fp8", fp8_attention=True))
    assert said["mixed_precision.fp8_dot_product_attention"] == "true"


def test_a_layout_is_quoted_for_hydra() -> None:
    said = words(job("deepseek-v3", 256, pipeline_parallel=16, expert_parallel=8, mtp_num_layers=1))
    assert said["model.pipeline_model_parallel_layout"].startswith("'Et")


def test_nothing_is_saved_by_a_benchmark() -> None:
    (measured,) = TARGET.make_draft(job("llama-3-8b", 8)).benchmark
    saved = [
        word.prefix
        for each in measured.arguments
        for word in each.words
        if isinstance(word, ShellVariable) and word.prefix.startswith("checkpoint.")
    ]
    assert saved == []


def test_a_recipe_names_the_model() -> None:
    recipe = {"--recipe": stated("--recipe", "llama31_405b_pretrain_256gpu_h100_bf16_config")}
    found = ParsedCommand(target=TARGET.name, name="run.sh", text="", options=recipe)
    answers = TARGET.read_settings(found)
    assert answers.values["model"] == "llama-3.1-405b"
    assert answers.values["zero_stage"] == "1"
    assert any("recipe" in note for note in answers.notes)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("qwen25_7b", "qwen-2.5-7b"),
        ("deepseek_v3.yaml", "deepseek-v3"),
        ("llama3.1_405B.yaml", "llama3.1-405b"),
        ("nosuch_7b", None),
        ("x" * 1000, None),
    ],
)
def test_models_by_the_names_of_recipes(name: str, model: str | None) -> None:
    assert find_model_of_name(name) == model


@pytest.mark.parametrize(
    ("graphs", "framework"),
    [("transformer_engine", "NeMo"), ("full_iteration", "Megatron-Bridge")],
)
def test_graphs_of_parts_of_layers_are_predicted_as_such(graphs: str, framework: str) -> None:
    sizes = {"train__global_batch_size": "256", "train__micro_batch_size": "1"}
    found = read("run_recipe.py", model__cuda_graph_impl=graphs, model__seq_length="4096", **sizes,
                 __recipe="qwen3_30b_a3b_pretrain_config")  # fmt: skip
    assert found.values["framework"] == framework


def test_a_configuration_of_nemo() -> None:
    answers = read(
        **{
            "trainer__num_nodes": "4",
            "trainer__devices": "8",
            "trainer__precision": "bf16",
            "model__tensor_model_parallel_size": "4",
            "model__pipeline_model_parallel_size": "2",
            "model__virtual_pipeline_model_parallel_size": "null",
            "model__micro_batch_size": "1",
            "model__global_batch_size": "256",
            "model__encoder_seq_length": "4096",
            "model__num_layers": "32",
            "model__hidden_size": "4096",
            "model__ffn_hidden_size": "11008",
            "model__num_attention_heads": "32",
            "model__activation": "fast-swiglu",
            "model__normalization": "rmsnorm",
            "model__bias": "False",
            "model__position_embedding_type": "rope",
            "model__share_embeddings_and_output_weights": "False",
            "model__sequence_parallel": "True",
            "model__activations_checkpoint_granularity": "selective",
            "model__optim.name": "distributed_fused_adam",
            "model__hidden_dropout": "0.0",
            "model__attention_dropout": "0.0",
            "model__fp8": "False",
            "model__fp8_hybrid": "True",
        }
    )
    assert answers.values["framework"] == "NeMo"
    assert answers.values["precision"] == "bf16"
    assert answers.values["num_gpus"] == 32
    assert answers.values["recompute"] == "selective"
    assert answers.values["zero_stage"] == "1"
    assert answers.values["sequence_parallel"] == "true"
    assert answers.values["dropout"] == "false"
    assert "virtual_pipeline" not in answers.values
    assert answers.shape is not None
    assert (answers.shape["gated"], answers.shape["norm_bias"]) == (True, False)
    assert (answers.shape["mlp_bias"], answers.shape["tie_word_embeddings"]) == (False, False)


def test_a_configuration_of_primus() -> None:
    prefix = "modules.pre_trainer.overrides."
    keys = {
        "modules.pre_trainer.model": "llama3.1_405B.yaml",
        prefix + "tensor_model_parallel_size": "8",
        prefix + "pipeline_model_parallel_size": "8",
        prefix + "sequence_parallel": "1",
        prefix + "micro_batch_size": "1",
        prefix + "global_batch_size": "256",
        prefix + "seq_length": "8192",
        prefix + "lr_decay_iters": "null",
        prefix + "fp8": "hybrid",
    }
    assert TARGET.is_of(keys)
    answers = read(**keys)
    assert answers.values["model"] == "llama3.1-405b"
    assert answers.values["tensor_parallel"] == "8"
    assert answers.values["sequence_parallel"] == "true"
    assert answers.values["precision"] == "fp8"
    assert "num_gpus" in answers.missing


def test_commands_and_documents_of_others_are_not_of_it() -> None:
    assert TARGET.starts(["scripts/training/run_recipe.py", "--model", "llama3_8b"])
    assert not TARGET.starts(["pretrain_gpt.py"])
    assert not TARGET.is_of({"zero_optimization.stage": "3"})


def test_gpus_that_the_split_does_not_divide_are_refused() -> None:
    world = JobResources(gpus_per_node=stated("--nproc_per_node", "8"))
    with pytest.raises(LaunchError, match="multiples of 16"):
        read("bridge_train.py", "meta-llama/Meta-Llama-3-8B", world=world,
             model__tensor_model_parallel_size="16")  # fmt: skip


def test_what_a_plan_writes_names_its_model() -> None:
    made = job("llama-3-8b", 8)
    answers = TARGET.read_settings(found_of(TARGET, TARGET.make_draft(made)))
    assert answers.values["model"] == "meta-llama/Meta-Llama-3-8B"
    assert answers.shape is None


def test_primus_spells_arguments_of_megatron(tmp_path: Path) -> None:
    path = tmp_path / "pretrain.yaml"
    path.write_text(
        "exp_name: run\n"
        "modules:\n"
        "  pre_trainer:\n"
        "    framework: megatron\n"
        "    config: pre_trainer.yaml\n"
        "    model: llama3.1_70B.yaml\n"
        "    overrides:\n"
        "      tensor_model_parallel_size: 2\n"
        "      max_position_embeddings: 8192\n"
        "      lr: 1.0e-4\n"
        "      save_interval: 100\n"
        "      lerning_rate: 1.0e-4\n",
        encoding="utf-8",
    )
    back = read_launch(path)
    of = {line.option.rpartition(".")[2]: line.status for line in back.lines}
    assert of.pop("lerning_rate") is Status.UNKNOWN
    ignored = {"exp_name", "lr"}
    assert {name for name, status in of.items() if status is Status.IGNORED} == ignored
    others = {status for name, status in of.items() if name not in ignored}
    assert others == {Status.UNDERSTOOD}


def test_latent_attention_leaves_the_kernel_open() -> None:
    latent = job("deepseek-v3", 256, pipeline_parallel=16, expert_parallel=8, mtp_num_layers=1)
    assert words(latent)["model.attention_backend"] == "auto"
    assert words(job("llama-3-8b", 8))["model.attention_backend"] == "flash"


def test_no_stages_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(
        "python run_recipe.py --recipe llama3_8b --pipeline_model_parallel_size 0 --num_gpus 8"
    )

    with pytest.raises(
        LaunchError, match=r"--pipeline-model-parallel-size '0' is not a number from 1"
    ):
        read_launch(tmp_path / "run.sh")


def test_the_llama_program_of_nemo_has_the_blocks_of_its_configuration(tmp_path: Path) -> None:
    """Sizes of NVIDIA-NeMo/Speech issue 8059, whose file was refused: 13B on 8 A100."""
    (tmp_path / "t.sh").write_text(
        "torchrun --nproc_per_node=8 nemo/examples/nlp/language_modeling/"
        "megatron_llama_pretraining.py trainer.precision=bf16 trainer.devices=8 "
        "trainer.num_nodes=1 model.num_layers=40 model.hidden_size=5120 "
        "model.ffn_hidden_size=13824 model.num_attention_heads=40 model.micro_batch_size=1 "
        "model.global_batch_size=32 model.tensor_model_parallel_size=4 "
        "model.sequence_parallel=True model.activations_checkpoint_granularity=selective "
        "model.encoder_seq_length=4096\n"
    )
    values = read_launch(tmp_path / "t.sh").values

    assert (values["model"], values["dropout"]) == ("Llama 2 13B", "false")
    assert (values["tensor_parallel"], values["recompute"]) == ("4", "selective")
