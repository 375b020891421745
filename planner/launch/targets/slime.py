"""slime: a training step on rollouts, from the arguments of ``train.py`` and ``train_async.py``.

Source: THUDM/slime at 624b824, ``slime/utils/arguments.py`` (options, and what follows from them),
``slime/backends/megatron_utils/arguments.py`` (what it sets of Megatron-LM's), and
``slime/backends/sglang_utils/arguments.py``: options of SGLang begin with ``--sglang-``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.documents.shell.edits import implied_option
from planner.launch.option_table import OptionTable
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.parsed_launch import (
    JobResources,
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    number,
    with_unknown_options,
)
from planner.launch.target import LaunchTarget
from planner.launch.targets.megatron_arguments import read_megatron_arguments
from planner.launch.targets.rl_reader_writer import (
    apply_step_rows,
    reader_of_steps,
    set_dynamic_sampling,
    set_lengths,
)
from planner.launch.targets.training_reader import (
    classify_unused_options,
    set_objective,
    set_token_budget,
)

_PROMPT, _ANSWER = "--rollout-max-prompt-len", "--rollout-max-response-len"
_IMPLIED_OPTIONS = {
    "--bf16": "true",
    "--use-distributed-optimizer": "true",
    "--micro-batch-size": "1",
}
"""Defaults of slime for options of Megatron-LM."""
_READ_HERE = ("model", "global_batch_size", "sequence_length")
"""Terms that slime sets by options of its own."""


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of slime's weight update (training without generation).

    Raises LaunchError if the command's split of the model does not divide its GPUs.
    """
    command, table = with_unknown_options(reading.command), OptionTable.load("slime")
    implied = {name: implied_option(name, text) for name, text in _IMPLIED_OPTIONS.items()}
    options = {**implied, **command.options}
    if "--fp16" in options:
        del options["--bf16"]
    num_gpus = command.resources.requested_gpus or _train_gpus(replace(reading, command=command))
    gpus_option = implied_option("num_gpus", str(num_gpus))
    resources = JobResources(num_gpus=gpus_option, gpu=command.resources.gpu)
    reading = OptionReader.of(replace(command, options=options, resources=resources), table)
    megatron = read_megatron_arguments(reading, "Megatron-LM")
    settings = SettingsBuilder(
        values={**megatron.values, "adapter": "none"},
        defaults={**megatron.defaults},
        missing=[name for name in megatron.missing if name not in _READ_HERE],
        notes=[*megatron.notes],
    )
    settings.require("model", reading.text("--hf-checkpoint"))
    if reading.text("--loss-type") == "sft_loss":
        settings.values["training_objective"] = "sft"
        settings.require("sequence_length", number(reading, "--seq-length"))
    else:
        _set_rollout_update(reading, settings)
    used = table.used | table.options | megatron.used_options
    return settings.build(used_options=used, **classify_unused_options(reading, ("--",), used))


def _train_gpus(reading: OptionReader) -> int:
    """GPUs that train; one node by default."""
    nodes = number(reading, "--actor-num-nodes") or 1
    return nodes * (number(reading, "--actor-num-gpus-per-node") or 8)


def _set_rollout_update(reading: OptionReader, settings: SettingsBuilder) -> None:
    """Set the sequences of an update, the longest sequence and the micro-batch."""
    quantities: dict[str, Any] = {}
    apply_read_rows(reading, OptionTable.load("slime"), settings, quantities)
    settings.values.pop("total_tokens", None)  # a rollout is not one iteration of Megatron-LM
    settings.require("sequence_length", quantities.get("max_length"))
    settings.require("global_batch_size", quantities.get("answers_per_update"))
    if budget := quantities.get("token_budget"):
        set_token_budget(settings, budget, quantities.get("sequences_per_rank"))
    set_objective(settings, bool(quantities["has_reference"]), bool(quantities["has_critic"]))


def _add_step_settings(
    reading: OptionReader, update: LaunchSettings, settings: SettingsBuilder
) -> None:
    """Set what the option table reads for a step, and its lengths."""
    if reading.has("--dynamic-sampling-filter-path"):
        set_dynamic_sampling(settings)
    if (length := update.values.get("sequence_length")) is None:
        settings.mark_missing("output_cap")
    else:
        set_lengths(settings, int(length), number(reading, _ANSWER), number(reading, _PROMPT))
    # train_async.py generates the answers of the next step while this one trains.
    programs = [argument.single or "" for argument in reading.command.positional]
    quantities: dict[str, Any] = {
        "is_async_program": any(program.endswith("train_async.py") for program in programs),
        "file_trainers": _train_gpus(reading),
        "user_gpus": reading.command.resources.requested_gpus,
    }
    apply_step_rows(reading, "slime", settings, quantities)


TARGET = reader_of_steps(
    LaunchTarget.of("slime", answers=read_settings),
    profiles=("slime",),
    add_step_settings=_add_step_settings,
    complete_command=with_unknown_options,
)
