"""Megatron-LM: ``pretrain_gpt.py`` and its arguments."""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.launch.benchmark import training_draft
from planner.launch.option_table import OptionTexts, ParameterNote, Quantities, Words, is_command
from planner.launch.target import CommandWords, LaunchDraft, LaunchJob, LaunchTarget, ShellVariable
from planner.launch.targets.megatron_reader import is_deepspeed, is_swift_document, read_settings
from planner.launch.targets.megatron_shape import (
    PROGRAM,
    hybrid_words,
    is_hybrid,
    shape_words,
    split_words,
    strange_parts,
)

_PROGRAMS = ("pretrain_gpt.py", PROGRAM, "pretrain_mamba.py", "train_gpt.py")
# Forks and patches call theirs otherwise.
_PATCHED = re.compile(r"pretrain_(?!vlm|bert|t5|retro|ict|vision|vit)\w+\.py")
_SEVERAL = ("--recompute-modules", "--offload-modules")
"""Options whose values are words of their own."""
_DROPOUT = 0.1


def _quantities(job: LaunchJob) -> Quantities:
    """What the table turns into arguments: parameters of the plan and what follows from them."""
    tensor = int(job["tensor_parallel"])
    if is_hybrid(job.model):
        chunks = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
        return {**core_words(job), **backend_words(job), **hybrid_words(job.model, tensor, *chunks)}
    return {**shape_words(job.model, tensor), **core_words(job), **backend_words(job)}


def backend_words(job: LaunchJob) -> Words:
    """The kernel of attention where naming one would exclude the only one that fits.

    FlashAttention 2 refuses values of another width than keys, as latent attention has them.
    """
    is_latent = any(each.kv_lora_rank for each in job.model.attentions)
    if not (is_latent and job["flash_attention"]) or job["attention_kernel"] != "auto":
        return {}
    return {"flash_attention": None, "latent_backend": "auto"}


def run_words(job: LaunchJob) -> Words:
    """Those of the run that all versions and forks have: all but the model's shape."""
    return {
        "max_positions": max(int(job["sequence_length"]), job.model.max_position_embeddings or 0),
        "train_iterations": job.training_steps,
        "save_interval": save_interval(job),
        "mtp_num_layers": job["mtp_num_layers"] or 0,
        "attention_dropout": _DROPOUT if job["dropout"] else "0.0",
        "hidden_dropout": _DROPOUT if job["dropout"] else "0.0",
        **overlap_words(job),
        **precision_words(job),
    }


def core_words(job: LaunchJob) -> Words:
    """Those of the run in Megatron-Core: the split of the layers, experts and what is repeated."""
    has_experts = bool(job.model.num_experts)
    tensor, split = int(job["tensor_parallel"]), int(job["expert_tensor_parallel"])
    return {
        **run_words(job),
        **split_words(job),
        "expert_tensor_parallel": split if has_experts and max(tensor, split) > 1 else None,
        "token_dispatcher": dispatcher(job) or "alltoall" if has_experts else None,
        **recompute_words(job),
        "offload_modules": _offloaded(job),
    }


def dispatcher(job: LaunchJob) -> str | None:
    """The plan's own way of tokens to experts; None where it is the framework's."""
    named = str(job["token_dispatcher"])
    return None if named == "auto" else named


def save_interval(job: LaunchJob) -> int:
    """Steps between checkpoints, as goodput was predicted."""
    interval, step = job.row.get("checkpoint_interval_s"), job.row.get("step_time_s")
    return max(round(interval / step), 1) if interval and step else 1000


def recompute_words(job: LaunchJob) -> Words:
    """How, and of how many layers, activations are computed again."""
    kind, layers = job["recompute"], int(job["recompute_num_layers"] or 0)
    if kind == "full":
        chunks = max(int(job["virtual_pipeline"]), 1)
        each = max(layers // chunks, 1) if layers else 1
        method = "block" if layers else "uniform"
        return {
            "recompute_method": method, "recompute_num_layers": each, "recompute_modules": None,
        }  # fmt: skip
    modules = " ".join(_modules(job, kind)) or None
    return {"recompute_modules": modules, "recompute_num_layers": None}


def _modules(job: LaunchJob, kind: str) -> list[str]:
    groups = job.model.layer_groups
    if kind == "feed_forward":
        dense = any(group.feed_forward and not group.num_experts for group in groups)
        return ["mlp"] * dense + ["moe"] * bool(job.model.num_experts)
    if kind != "selective":
        return []
    if (named := str(job["recompute_modules"])) != "none":
        return named.split("+")
    if not job["flash_attention"] or not (
        job.model.num_experts and bool(job.profile.execution.selective_outputs)
    ):
        return ["core_attn"]
    is_latent = any(each.kv_lora_rank for each in job.model.attentions)
    return ["layernorm", "moe_act", *(["mla_up_proj"] if is_latent else [])]


def overlap_words(job: LaunchJob) -> dict[str, bool]:
    """What the prediction has beside the computation."""
    overlap, ranks = job.profile.overlap, int(job["data_parallel"] * job["context_parallel"])
    gradients = ranks > 1 and overlap.data_parallel > 0
    sharded = int(job["zero_stage"]) > 0
    return {
        "overlap_gradients": gradients,
        "overlap_weights": gradients and sharded and overlap.weight_gather > 0,
        "gradients_in_fp32": job["precision"] == "fp16",
    }


def recipe_of(job: LaunchJob, usual: str) -> str | None:
    """The scaling of products in 8 bits: that of the plan, else of the GPU; None without them."""
    if job["precision"] != "fp8":
        return None
    if job["fp8_recipe"] != "auto":
        return str(job["fp8_recipe"])
    return "mxfp8" if job.gpu.architecture == "blackwell" else usual


def precision_words(job: LaunchJob) -> Words:
    """Format and scaling of products in 8 bit, as kernels of the GPU take them."""
    # Delayed scaling cannot repeat norms and activation functions of experts.
    repeats = job["recompute"] == "selective" and bool(job.model.num_experts)
    recipe = recipe_of(job, "tensorwise" if repeats else "delayed")
    if recipe is None:
        return {}
    return {"fp8_format": "e4m3" if recipe == "mxfp8" else "hybrid", "scaling": recipe}


def _offloaded(job: LaunchJob) -> str | None:
    if "activations" not in job["offload"]:
        return None
    experts = job.model.num_experts and job["recompute"] != "feed_forward"
    return "qkv_linear core_attn attn_proj" + (" expert_fc1 moe_act" if experts else "")


def words_of(settings: OptionTexts) -> list[CommandWords]:
    """Options of the table as arguments; those with several values get a word for each."""
    found = []
    for setting in settings.options:
        argument = CommandWords.of(setting)
        if setting.option in _SEVERAL and setting.text:
            argument = CommandWords(
                words=(setting.option, *setting.text.split()), note=setting.note
            )
        found.append(argument)
    return found


def user_arguments(job: LaunchJob) -> list[CommandWords]:
    """What only the user knows."""
    tokenizer = ShellVariable(
        name="TOKENIZER_MODEL",
        meaning="ORG/NAME or folder of the tokenizer on Hugging Face",
        default=job.hub_name,
    )
    data = ShellVariable(
        name="DATA_PATH", meaning="prefix of the data set that preprocess_data.py made"
    )
    checkpoints = ShellVariable(name="CHECKPOINT_PATH", meaning="folder of the checkpoints")
    rate = ShellVariable(name="LEARNING_RATE", meaning="the highest learning rate, such as 1.5e-4")
    return [
        CommandWords(words=("--tokenizer-model", tokenizer)),
        CommandWords(words=("--data-path", data)),
        CommandWords(words=("--split", "100,0,0"), note="no evaluation"),
        CommandWords(words=("--lr", rate)),
        CommandWords(words=("--lr-decay-style", "cosine")),
        CommandWords(words=("--save", checkpoints)),
        CommandWords(words=("--load", checkpoints)),
    ]


def environment_of(job: LaunchJob) -> dict[str, str]:
    """What the plan assumes of a process's environment."""
    found = {}
    is_split = job["tensor_parallel"] > 1 or job["context_parallel"] > 1
    if is_split and int(job["zero_stage"]) <= 1:
        found["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if "activations" in job["offload"]:
        # Transformer Engine from 2.10 on would offload weights too.
        found["NVTE_CPU_OFFLOAD_V1"] = "1"
    return found


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    program = ShellVariable(
        name="MEGATRON_PATH",
        meaning="folder of a checkout of NVIDIA/Megatron-LM",
        suffix=f"/{PROGRAM if is_hybrid(job.model) else _PROGRAMS[0]}",
    )
    return training_draft(
        job,
        "megatron-lm",
        (CommandWords(words=(program,)), *words_of(settings), *user_arguments(job)),
        environment=environment_of(job),
        unexpressed=(*strange_parts(job.model), *uneven_blocks(job)),
        left=left_of(job),
    )


def left_of(job: LaunchJob) -> tuple[ParameterNote, ...]:
    """What the plan does not say and Megatron-Core decides."""
    if not job.model.num_experts:
        return ()
    fullest = float(job["expert_imbalance"] or 1)
    work = "equal work for all experts" if fullest == 1 else f"{fullest:g} x the mean on one rank"
    losses = f"predicted with {work}; the router's losses are the user's"
    weights = (
        "expert groups and the scaling of their weights (--moe-router-num-groups, "
        "--moe-router-group-topk, --moe-router-topk-scaling-factor) are not in the plan: take them "
        "from the model's config.json; neither time nor memory depends on them"
    )
    return (
        ParameterNote(parameter="--moe-router-load-balancing-type", value="", note=losses),
        ParameterNote(parameter="router", value="", note=weights),
    )


def uneven_blocks(job: LaunchJob) -> tuple[ParameterNote, ...]:
    """Layers to repeat that chunks cannot share equally."""
    layers, chunks = int(job["recompute_num_layers"] or 0), int(job["virtual_pipeline"])
    if not layers or layers % chunks == 0:
        return ()
    note = f"is given for each chunk, and a stage has {chunks}: nearest, not equal"
    return (ParameterNote(parameter="recompute_num_layers", value=str(layers), note=note),)


def _starts(words: Sequence[str]) -> bool:
    names = [word.rpartition("/")[2] for word in words[:3]]
    if is_command("megatron-swift", words):
        return True
    is_program = any(name in _PROGRAMS or _PATCHED.fullmatch(name) for name in names)
    return is_program and not is_deepspeed(words)


TARGET = LaunchTarget.of(
    "megatron-lm",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
    starts=_starts,
    is_of=is_swift_document,
)
