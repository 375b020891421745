"""slime: a training step on rollouts, from the arguments of ``train.py`` and ``train_async.py``.

Source: THUDM/slime at 624b824, ``slime/utils/arguments.py`` (options, and what follows from them),
``slime/backends/megatron_utils/arguments.py`` (what it sets of Megatron-LM's), and
``slime/backends/sglang_utils/arguments.py``: options of SGLang begin with ``--sglang-``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from planner.documents.shell.edits import implied_option
from planner.launch.option_table import OptionTable, ParserOptions, tool_row
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
from planner.launch.targets.rl_reader_writer import reader_of_steps
from planner.launch.targets.training_reader import classify_unused_options, complete_update

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
    actors = replace(reading, command=command)
    nodes = number(actors, "--actor-num-nodes") or 1
    per_node = number(actors, "--actor-num-gpus-per-node") or 8
    num_gpus = command.resources.requested_gpus or nodes * per_node
    gpus_option = implied_option("num_gpus", str(num_gpus))
    resources = JobResources(num_gpus=gpus_option, gpu=command.resources.gpu)
    reading = OptionReader.of(replace(command, options=options, resources=resources), table)
    megatron = read_megatron_arguments(reading, "Megatron-LM")
    settings = SettingsBuilder(
        values={**_without_slime_terms(megatron.values), "adapter": "none"},
        defaults=_without_slime_terms(megatron.defaults),
        missing=[*_without_slime_terms(dict.fromkeys(megatron.missing))],
        notes=[*megatron.notes],
    )
    complete_update(reading, table, settings)
    if settings.values.get("training_objective") != "sft":
        settings.values.pop("total_tokens", None)  # a rollout is not one iteration of Megatron-LM
    used = table.used | table.options | megatron.used_options
    names = {"--*", *table.unread, *_accepted("megatron-lm")}
    names |= {f"--sglang-{name.removeprefix('--')}" for name in _accepted("sglang")}
    return settings.build(used_options=used, **classify_unused_options(reading, names, used))


def _accepted(tool: str) -> Iterable[str]:
    """The options of a tool's parser, which slime passes on."""
    stems = tool_row(tool)["accepted"].split("|")
    parser = ParserOptions.of(stems, OptionTable.load(tool))
    return {*parser.options, *parser.aliases}


def _without_slime_terms(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of terms that slime does not set by options of its own."""
    return {name: value for name, value in values.items() if name not in _READ_HERE}


TARGET = reader_of_steps(
    LaunchTarget.of("slime", answers=read_settings),
    profiles=("slime",),
    facts=lambda reading: {"user_gpus": reading.command.resources.requested_gpus},
)
