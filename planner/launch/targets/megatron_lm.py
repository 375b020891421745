"""Megatron-LM: ``pretrain_gpt.py`` and its arguments.

`megatron_arguments` reads these arguments, `megatron_shape` the sizes of the model among them,
`megatron_swift` commands of ms-swift that train with Megatron-LM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from planner.launch.option_table import (
    MutableQuantities,
    OptionTexts,
    ParameterNote,
    Quantities,
    is_command,
)
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader
from planner.launch.target import CommandWords, LaunchDraft, LaunchJob, LaunchTarget, ShellVariable
from planner.launch.targets.megatron_arguments import has_deepspeed_options, read_megatron_arguments
from planner.launch.targets.megatron_shape import (
    PROGRAM,
    hybrid_quantities,
    is_hybrid,
    shape_quantities,
    split_quantities,
    unexpressed_parts,
)
from planner.launch.targets.megatron_swift import (
    is_swift_command,
    is_swift_document,
    read_swift_arguments,
    with_document_options,
)
from planner.launch.write.benchmark import training_draft

_PROGRAMS = ("pretrain_gpt.py", PROGRAM, "pretrain_mamba.py", "train_gpt.py")
# Names of the program in forks and patches.
_FORK_PROGRAM = re.compile(r"pretrain_(?!vlm|bert|t5|retro|ict|vision|vit)\w+\.py")
_LIST_OPTIONS = ("--recompute-modules", "--offload-modules")
"""Options with several values, each a word of its own."""
_DROPOUT = 0.1


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values that Megatron-LM's options write for a planned job, by parameter."""
    tensor = int(job["tensor_parallel"])
    if is_hybrid(job.model):
        chunks = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
        return {
            **core_quantities(job),
            **backend_quantities(job),
            **hybrid_quantities(job.model, tensor, *chunks),
        }
    return {
        **shape_quantities(job.model, tensor),
        **core_quantities(job),
        **backend_quantities(job),
    }


def backend_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the attention backend option "auto" for latent attention; {} for other models.

    FlashAttention 2 refuses values of another width than keys, as latent attention has them.
    """
    is_latent = any(attention.kv_lora_rank for attention in job.model.attentions)
    if not (is_latent and job["flash_attention"]) or job["attention_kernel"] != "auto":
        return {}
    return {"flash_attention": None, "latent_backend": "auto"}


def run_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the option values of the run in all versions and forks, without model shape."""
    return {
        "max_positions": max(int(job["sequence_length"]), job.model.max_position_embeddings or 0),
        "train_iterations": job.training_steps,
        "save_interval": save_interval(job),
        "mtp_num_layers": job["mtp_num_layers"] or 0,
        "attention_dropout": _DROPOUT if job["dropout"] else "0.0",
        "hidden_dropout": _DROPOUT if job["dropout"] else "0.0",
        **overlap_quantities(job),
        **precision_quantities(job),
    }


def core_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the option values of a run in Megatron-Core: split, experts, recomputation."""
    has_experts = bool(job.model.num_experts)
    tensor, split = int(job["tensor_parallel"]), int(job["expert_tensor_parallel"])
    return {
        **run_quantities(job),
        **split_quantities(job),
        "expert_tensor_parallel": split if has_experts and max(tensor, split) > 1 else None,
        "token_dispatcher": dispatcher(job) or "alltoall" if has_experts else None,
        **recompute_quantities(job),
        "offload_modules": _offload_modules(job),
    }


def dispatcher(job: LaunchJob) -> str | None:
    """The token dispatcher that the plan sets; None where it is the framework's default."""
    token_dispatcher = str(job["token_dispatcher"])
    return None if token_dispatcher == "auto" else token_dispatcher


def save_interval(job: LaunchJob) -> int:
    """Steps between checkpoints: the interval that the prediction of goodput assumes."""
    interval, step = job.row.get("checkpoint_interval_s"), job.row.get("step_time_s")
    return max(round(interval / step), 1) if interval and step else 1000


def recompute_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the option values of recomputation: method, layers per chunk, or modules."""
    recompute, layers = job["recompute"], int(job["recompute_num_layers"] or 0)
    if recompute == "full":
        chunks = max(int(job["virtual_pipeline"]), 1)
        layers_per_chunk = max(layers // chunks, 1) if layers else 1
        method = "block" if layers else "uniform"
        return {
            "recompute_method": method,
            "recompute_num_layers": layers_per_chunk,
            "recompute_modules": None,
        }
    modules = " ".join(_recompute_modules(job, recompute)) or None
    return {"recompute_modules": modules, "recompute_num_layers": None}


def _recompute_modules(job: LaunchJob, kind: str) -> list[str]:
    """Return Megatron-LM's names of the modules that a recomputation of this kind recomputes."""
    groups = job.model.layer_groups
    if kind == "feed_forward":
        dense = any(group.feed_forward and not group.num_experts for group in groups)
        return ["mlp"] * dense + ["moe"] * bool(job.model.num_experts)
    if kind != "selective":
        return []
    if (module_words := str(job["recompute_modules"])) != "none":
        return module_words.split("+")
    if not job["flash_attention"] or not (
        job.model.num_experts and bool(job.profile.execution.selective_outputs)
    ):
        return ["core_attn"]
    is_latent = any(attention.kv_lora_rank for attention in job.model.attentions)
    return ["layernorm", "moe_act", *(["mla_up_proj"] if is_latent else [])]


def overlap_quantities(job: LaunchJob) -> dict[str, bool]:
    """Return which communication the prediction overlaps with computation, by option."""
    overlap, ranks = job.profile.overlap, int(job["data_parallel"] * job["context_parallel"])
    gradients = ranks > 1 and overlap.data_parallel > 0
    sharded = int(job["zero_stage"]) > 0
    return {
        "overlap_gradients": gradients,
        "overlap_weights": gradients and sharded and overlap.weight_gather > 0,
        "gradients_in_fp32": job["precision"] == "fp16",
    }


def fp8_recipe_of(job: LaunchJob, default: str) -> str | None:
    """Return the FP8 recipe of the plan, or the GPU's default if "auto"; None without FP8."""
    if job["precision"] != "fp8":
        return None
    if job["fp8_recipe"] != "auto":
        return str(job["fp8_recipe"])
    return "mxfp8" if job.gpu.architecture == "blackwell" else default


def precision_quantities(job: LaunchJob) -> MutableQuantities:
    """Return FP8 format and recipe that the GPU's kernels take; {} without FP8."""
    # Delayed scaling cannot recompute norms and activation functions of experts.
    repeats = job["recompute"] == "selective" and bool(job.model.num_experts)
    recipe = fp8_recipe_of(job, "tensorwise" if repeats else "delayed")
    if recipe is None:
        return {}
    return {"fp8_format": "e4m3" if recipe == "mxfp8" else "hybrid", "scaling": recipe}


def _offload_modules(job: LaunchJob) -> str | None:
    if "activations" not in job["offload"]:
        return None
    has_experts = job.model.num_experts and job["recompute"] != "feed_forward"
    return "qkv_linear core_attn attn_proj" + (" expert_fc1 moe_act" if has_experts else "")


def arguments_of(settings: OptionTexts) -> list[CommandWords]:
    """Convert options of the table to arguments; a list option has one word per value."""
    arguments = []
    for inputs in settings.options:
        argument = CommandWords.of(inputs)
        if inputs.option in _LIST_OPTIONS and inputs.text:
            argument = CommandWords(words=(inputs.option, *inputs.text.split()), note=inputs.note)
        arguments.append(argument)
    return arguments


def user_arguments(job: LaunchJob) -> list[CommandWords]:
    """Return arguments that the user fills in: tokenizer, data, learning rate, checkpoints."""
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


def environment_variables(job: LaunchJob) -> dict[str, str]:
    """Return the environment variables that the prediction assumes, by name."""
    environment = {}
    is_split = job["tensor_parallel"] > 1 or job["context_parallel"] > 1
    if is_split and int(job["zero_stage"]) <= 1:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    if "activations" in job["offload"]:
        # Transformer Engine from 2.10 on would offload weights too.
        environment["NVTE_CPU_OFFLOAD_V1"] = "1"
    return environment


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the Megatron-LM command of a job, with environment and notes."""
    program = ShellVariable(
        name="MEGATRON_PATH",
        meaning="folder of a checkout of NVIDIA/Megatron-LM",
        suffix=f"/{PROGRAM if is_hybrid(job.model) else _PROGRAMS[0]}",
    )
    return training_draft(
        job,
        "megatron-lm",
        (CommandWords(words=(program,)), *arguments_of(settings), *user_arguments(job)),
        environment=environment_variables(job),
        unexpressed=(*unexpressed_parts(job.model), *uneven_recompute_notes(job)),
        left=left_to_user(job),
    )


def left_to_user(job: LaunchJob) -> tuple[ParameterNote, ...]:
    """Return notes on options of the expert router, which the user sets; () for dense models."""
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


def uneven_recompute_notes(job: LaunchJob) -> tuple[ParameterNote, ...]:
    """Return a note if a stage's chunks cannot share the recomputed layers equally; else ()."""
    layers, chunks = int(job["recompute_num_layers"] or 0), int(job["virtual_pipeline"])
    if not layers or layers % chunks == 0:
        return ()
    note = f"is given for each chunk, and a stage has {chunks}: nearest, not equal"
    return (ParameterNote(parameter="recompute_num_layers", value=str(layers), note=note),)


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a Megatron-LM command, or of ms-swift that trains with it.

    Raises LaunchError if options contradict each other, or the number of GPUs.
    Raises SpecError if it trains something that is not predicted.
    """
    command = with_document_options(reading.command)
    if is_swift_command(command):
        return read_swift_arguments(reading.command, command)
    return read_megatron_arguments(reading, "Megatron-LM")


def matches_command(words: Sequence[str]) -> bool:
    """Return whether words start Megatron-LM, one of its forks, or ms-swift with it."""
    names = [word.rpartition("/")[2] for word in words[:3]]
    if is_command("megatron-swift", words):
        return True
    is_program = any(name in _PROGRAMS or _FORK_PROGRAM.fullmatch(name) for name in names)
    return is_program and not has_deepspeed_options(words)


TARGET = LaunchTarget.of(
    "megatron-lm",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
    starts=matches_command,
    is_of=is_swift_document,
)
