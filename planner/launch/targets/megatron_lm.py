"""Megatron-LM: ``pretrain_gpt.py`` and its arguments.

`megatron_arguments` reads these arguments, `megatron_shape` the sizes of the model among them,
`megatron_swift` commands of ms-swift that train with Megatron-LM.
"""

from __future__ import annotations

from planner.launch.option_table import (
    MutableQuantities,
    OptionTexts,
    Quantities,
)
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    ShellVariable,
    user_arguments,
)
from planner.launch.targets.megatron_arguments import read_megatron_arguments
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
    read_swift_arguments,
    with_document_options,
)
from planner.launch.write.benchmark import training_draft

_LIST_OPTIONS = ("--recompute-modules", "--offload-modules")
"""Options with several values, each a word of its own."""


def _quantities(job: LaunchJob) -> Quantities:
    """Return the values that Megatron-LM's options write for a planned job, by parameter."""
    tensor = int(job["tensor_parallel"])
    if not is_hybrid(job.model):
        return {**shape_quantities(job.model, tensor), **core_quantities(job)}
    chunks = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    return {**core_quantities(job), **hybrid_quantities(job.model, tensor, *chunks)}


def core_quantities(job: LaunchJob) -> MutableQuantities:
    """Return the values of Megatron-Core that no row computes: split, recomputation, attention.

    FlashAttention 2 refuses values of another width than keys, as latent attention has them.
    """
    is_latent = any(attention.kv_lora_rank for attention in job.model.attentions)
    takes_default_kernel = job["flash_attention"] and job["attention_kernel"] == "auto"
    return {
        **split_quantities(job),
        "recompute_modules": " ".join(_recompute_modules(job, job["recompute"])) or None,
        "latent_backend": "auto" if is_latent and takes_default_kernel else None,
    }


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


def arguments_of(settings: OptionTexts) -> list[CommandWords]:
    """Convert options of the table to arguments; a list option has one word per value."""
    arguments = []
    for inputs in settings.options:
        argument = CommandWords.of(inputs)
        if inputs.option in _LIST_OPTIONS and inputs.text:
            argument = CommandWords(words=(inputs.option, *inputs.text.split()), note=inputs.note)
        arguments.append(argument)
    return arguments


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
        suffix="/" + (PROGRAM if is_hybrid(job.model) else "pretrain_gpt.py"),
    )
    return training_draft(
        job,
        "megatron-lm",
        (
            CommandWords(words=(program,)),
            *arguments_of(settings),
            *user_arguments("megatron-lm", job),
        ),
        environment=environment_variables(job),
        unexpressed=unexpressed_parts(job.model),
    )


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a Megatron-LM command, or of ms-swift that trains with it.

    Raises LaunchError if options contradict each other, or the number of GPUs.
    Raises SpecError if it trains something that is not predicted.
    """
    command = with_document_options(reading.command)
    if is_swift_command(command):
        return read_swift_arguments(reading.command, command)
    return read_megatron_arguments(reading, "Megatron-LM")


TARGET = LaunchTarget.of(
    "megatron-lm",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
)
