"""A framework's shortest launch file and its name alone are one question, with one verdict."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from planner import estimate, read_launch
from planner.show.presenters.search import estimate_command

_MODEL = "meta-llama/Llama-3.1-8B"
_SFT = "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=1)).train()"
_UNSLOTH = f"""from unsloth import FastLanguageModel
from trl import SFTTrainer, SFTConfig
model, tok = FastLanguageModel.from_pretrained("{_MODEL}", max_seq_length=2048, load_in_4bit=FOUR)
model = FastLanguageModel.get_peft_model(model, r=16)
{_SFT}
"""
_PEFT = """import torch
from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
LOAD
model = get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj", "v_proj"]))
Trainer(model=model, args=TrainingArguments("o", per_device_train_batch_size=1, bf16=True)).train()
"""
_IN_16_BITS = f'model = AutoModelForCausalLM.from_pretrained("{_MODEL}")'
_IN_4_BITS = f"""bits = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_use_double_quant=True)
model = AutoModelForCausalLM.from_pretrained("{_MODEL}", quantization_config=bits)
model = prepare_model_for_kbit_training(model)"""
_SHAPE = """--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
--seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 8 --bf16 \
--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 \
--use-rotary-position-embeddings --attention-dropout 0 --hidden-dropout 0"""
_VERL = """python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=64 \
actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.rollout.n=8 trainer.nnodes=1 \
actor_rollout_ref.rollout.name=vllm trainer.n_gpus_per_node=8"""
_FILES = {
    "unsloth qlora": ("Unsloth", "t.py", _UNSLOTH.replace("FOUR", "True")),
    "unsloth lora": ("Unsloth", "t.py", _UNSLOTH.replace("FOUR", "False")),
    "peft lora": ("HF Trainer", "t.py", _PEFT.replace("LOAD", _IN_16_BITS)),
    "peft qlora": ("HF Trainer", "t.py", _PEFT.replace("LOAD", _IN_4_BITS)),
    "mlx": ("MLX", "t.sh", f"mlx_lm.lora --model {_MODEL} --train --batch-size 8"),
    "maxtext": (
        "MaxText",
        "t.sh",
        "python3 -m maxtext.trainers.pre_train.train base.yml model_name=llama3.1-8b "
        "max_target_length=2048 per_device_batch_size=1",
    ),
    "torchtitan": (
        "torchtitan",
        "t.sh",
        "torchrun --nproc_per_node 8 -m torchtitan.train --module llama3 --config llama3_8b",
    ),
    "megatron-lm": (
        "Megatron-LM",
        "t.sh",
        f"torchrun --nproc_per_node 8 pretrain_gpt.py {_SHAPE} --normalization RMSNorm "
        "--group-query-attention --num-query-groups 8",
    ),
    "megatron-deepspeed": (
        "Megatron-DeepSpeed",
        "t.sh",
        f"deepspeed --num_gpus 8 pretrain_gpt.py --deepspeed {_SHAPE} --normalization rmsnorm "
        "--num-key-value-heads 8",
    ),
    "megatron-bridge": (
        "Megatron-Bridge",
        "t.sh",
        "python scripts/performance/run_recipe.py --recipe llama3_8b_pretrain_config "
        "model.tensor_model_parallel_size=1 model.pipeline_model_parallel_size=1 "
        "train.micro_batch_size=1 train.global_batch_size=8 dataset.seq_length=4096",
    ),
    "nemo-automodel": (
        "NeMo AutoModel",
        "t.yaml",
        "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
        "model: {_target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained,"
        f" pretrained_model_name_or_path: {_MODEL}}}\n"
        "step_scheduler: {global_batch_size: 8, local_batch_size: 1}\n"
        "distributed: {strategy: fsdp2}\npacked_sequence: {packed_sequence_size: 2048}\n",
    ),
}
_OF_RL = {
    "verl": ("verl", _VERL),
    "verl on Megatron": (
        "verl Megatron",
        f"{_VERL} --config-name=ppo_megatron_trainer actor_rollout_ref.actor.strategy=megatron "
        "actor_rollout_ref.actor.megatron.tensor_model_parallel_size=4",
    ),
}
# What a file starts: splits, sharding, batches; and torch.compile, which is shown as assumed.
_STARTED = ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "zero_stage",
            "torch_compile", "context_parallel", "cp_comm_type")  # fmt: skip
_TRAINED = ("adapter", "lora_rank", "lora_targets", "training_objective", "sequence_length",
            "global_batch_size", "model", "framework", "mtp_num_layers", "expert_adapters",
            "double_quantization", "trained_layers")  # fmt: skip
_DEFAULTS = ("recompute", "recompute_num_layers", "offload", "offloaded_tensors",
             "flash_attention", "sequence_parallel", "optimizer")  # fmt: skip


def _asked(base, names, **more):
    """The same question by flags: what is trained, and how many ranks share it."""
    asked = {name: value for name in names if (value := getattr(base, name)) is not None}
    settings = {name: base.settings[name] for name in _STARTED if name in base.settings}
    return {**asked, "settings": settings, **more}


@pytest.mark.parametrize("case", _FILES)
def test_shortest_file_and_framework_name_agree(case, tmp_path):
    framework, name, text = _FILES[case]
    path = Path(tmp_path, name)
    path.write_text(text)
    gpus = {"gpu": "m3-ultra" if case == "mlx" else "h200", "num_gpus": 1 if case == "mlx" else 8}
    base = read_launch(path, **gpus)
    assert base.framework == framework
    read = estimate(base=base)
    flags = estimate(**_asked(base, _TRAINED, **gpus))
    mine, other = read.candidates.row, flags.candidates.row
    assert {n: mine[n] for n in _DEFAULTS} == {n: other[n] for n in _DEFAULTS}
    assert mine["peak_memory_gib"] == pytest.approx(other["peak_memory_gib"])
    assert read.rejected_by == flags.rejected_by


@pytest.mark.parametrize("case", _OF_RL)
def test_shortest_file_of_reinforcement_learning_and_name_agree(case, tmp_path):
    framework, text = _OF_RL[case]
    path = Path(tmp_path, "t.sh")
    path.write_text(text)
    base = read_launch(path, workload="rl", gpu="h200")
    assert base.framework == framework
    names = ("model", "framework", "num_gpus", "input_tokens", "output_tokens", "output_cap",
             "prompts_per_step", "samples_per_prompt", "algorithm",
             "global_batch_size")  # fmt: skip
    flags = estimate(**_asked(base, names, workload="rl", gpu="h200"))
    read = estimate(base=base).candidates.row
    assert {n: read[n] for n in _DEFAULTS} == {n: flags.candidates.row[n] for n in _DEFAULTS}


def test_defaults_of_a_framework_hold_together_and_are_named():
    asked = {"model": "qwen2.5-72b", "framework": "unsloth", "gpu": "a800-sxm-80gb", "num_gpus": 1}
    asked |= {"adapter": "qlora", "sequence_length": 24576, "global_batch_size": 1}
    found = estimate(**asked)
    row = found.candidates.row
    assert (row["recompute"], row["offload"]) == ("full", "activations")
    assert not found.rejected_by
    assert row["peak_memory_gib"] == pytest.approx(51, rel=0.05)
    assert "Unsloth" in found.plan.defaults["recompute"]
    # Layers that keep everything have no inputs to move to the host.
    kept = estimate(**asked, settings={"recompute": "none"}).candidates.row
    assert (kept["recompute"], kept["offload"]) == ("none", "none")


@pytest.mark.parametrize(("settings", "is_noted"), [({}, True), ({"zero_stage": 0}, False)])
def test_sharding_that_nobody_sets_is_listed_as_assumed(settings, is_noted):
    """A Megatron-LM file without --use-distributed-optimizer shards nothing; the name does."""
    asked = {"model": "llama-3.1-8b", "framework": "megatron-lm", "gpu": "h200", "num_gpus": 8}
    found = estimate(**asked, sequence_length=2048, global_batch_size=8, settings=settings)
    assert found.candidates.row["zero_stage"] == (1 if is_noted else 0)
    assert ("zero_stage" in found.plan.defaults) == is_noted


@pytest.mark.parametrize("settings", [{}, {"recompute": "none"}, {"offload": "none"}])
def test_printed_command_repeats_a_plan_of_a_framework_with_defaults(settings, planner):
    """The command names what differs from the framework's defaults."""
    asked = {"model": "llama-3.1-8b", "framework": "unsloth", "gpu": "h100", "num_gpus": 1}
    asked |= {"adapter": "lora", "sequence_length": 2048, "global_batch_size": 8}
    found = estimate(**asked, settings=settings)
    row = found.candidates.row
    words = shlex.split(estimate_command(found.plan, row))[1:]
    (again,) = json.loads(planner(*words, "--json", "-", "--quiet").out)["rows"]
    assert {n: again[n] for n in _DEFAULTS} == {n: row[n] for n in _DEFAULTS}


_LONG = """python src/train.py --stage sft --do_train \\
  --model_name_or_path meta-llama/Meta-Llama-3-8B --dataset d \\
  --template llama3 --cutoff_len LENGTH --finetuning_type lora \\
  --lora_target q_proj,v_proj --output_dir o --per_device_train_batch_size 1 \\
  --gradient_accumulation_steps 4 --fp16 --flash_attn fa2 --use_unsloth --quantization_bit 4
"""


@pytest.mark.slow
def test_what_a_release_of_the_software_decides_may_not_fit(planner, tmp_path) -> None:
    """65,536 tokens filled 80 GB and 102,400 ran out, in May 2024: hiyouga/LlamaFactory#3638."""
    file = tmp_path / "run.sh"
    file.write_text(_LONG.replace("LENGTH", "102400"), encoding="utf-8")
    asked = ("estimate", "--from", str(file), "--gpu", "a100-sxm-80gb")
    verdict = " ".join(planner(*asked).out.split())
    assert verdict.startswith("May not fit: peak ")
    assert "as Unsloth from 2025.8 on; does not fit with fused, before." in verdict
    known = " ".join(planner(*asked, "--loss-kernel", "chunked").out.split())
    assert known.startswith("Fits: peak ")
    file.write_text(_LONG.replace("LENGTH", "65536"), encoding="utf-8")
    full = " ".join(planner(*asked, "--loss-kernel", "fused").out.split())
    peak = float(full.partition("peak ")[2].split()[0])
    assert peak == pytest.approx(80, abs=3)


def test_recipes_of_torchtune_recompute_by_flags_too():
    """LoRA of Llama 3 8B on 24 GB runs with 2,048 and 4,096 tokens: meta-pytorch/torchtune#856."""
    asked = {"model": "llama-3-8b", "framework": "torchtune", "gpu": "rtx4090", "num_gpus": 1}
    asked |= {"adapter": "lora", "global_batch_size": 1}
    for length in (2048, 4096):
        found = estimate(**asked, sequence_length=length)
        assert found.candidates.row["recompute"] == "full"
        assert not found.rejected_by
    litgpt = estimate(**{**asked, "framework": "litgpt"}, sequence_length=1024)
    assert litgpt.candidates.row["recompute"] == "none"


@pytest.mark.parametrize(
    ("words", "loss"),
    [
        ("trl sft", "linear"),  # trl 1.6 on: chunked_nll, since 1.16 called nll
        ("trl sft --loss_type nll", None),
        ("trl sft --max_seq_length 2048", None),  # an option of releases before 0.20
        ("trl dpo", None),
        ("trl sft --use_liger_kernel true", "linear"),
    ],
)
def test_trl_computes_the_loss_of_sft_in_parts(
    tmp_path: Path, words: str, loss: str | None
) -> None:
    script = tmp_path / "t.sh"
    script.write_text(f"{words} --model_name_or_path {_MODEL} --per_device_train_batch_size 1")
    assert read_launch(script).settings.get("loss_kernel") == loss
