"""Megatron-LM: ``pretrain_gpt.py`` and its arguments.

`megatron_arguments` reads these arguments, `megatron_shape` the sizes of the model among them,
`megatron_swift` commands of ms-swift that train with Megatron-LM.
"""

from __future__ import annotations

from planner.launch.option_table import (
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
        return {**shape_quantities(job.model, tensor), **split_quantities(job)}
    chunks = int(job["pipeline_parallel"]), int(job["virtual_pipeline"])
    return {**split_quantities(job), **hybrid_quantities(job.model, tensor, *chunks)}


def arguments_of(settings: OptionTexts) -> list[CommandWords]:
    """Convert options of the table to arguments; a list option has one word per value."""
    arguments = []
    for inputs in settings.options:
        argument = CommandWords.of(inputs)
        if inputs.option in _LIST_OPTIONS and inputs.text:
            argument = CommandWords(words=(inputs.option, *inputs.text.split()), note=inputs.note)
        arguments.append(argument)
    return arguments


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the Megatron-LM command of a job."""
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
