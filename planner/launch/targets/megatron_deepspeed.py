"""Megatron-DeepSpeed: ``pretrain_gpt.py`` of the fork, with its ``ds_config.json``."""

from __future__ import annotations

from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.errors import LaunchError
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    Quantities,
)
from planner.launch.read.expression_rows import apply_read_rows, derive_options
from planner.launch.read.hf_trainer.write_script import json_file, nest_options
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    SettingsBuilder,
    parse_int,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    ShellVariable,
    user_arguments,
)
from planner.launch.targets.megatron_arguments import read_megatron_arguments
from planner.launch.targets.megatron_shape import shape_quantities
from planner.launch.write.benchmark import training_draft

_DIALECT = OptionAliasTable.load("megatron-deepspeed")
_CONFIG_OPTIONS = ("--deepspeed_config", "--deepspeed-config")
_DEFAULT_EXPERT_INTERVAL = 2


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a Megatron-DeepSpeed command and its ``ds_config.json``.

    Raises LaunchError if its options contradict each other, or the number of GPUs.
    """
    command, table = reading.command, OptionTable.load("megatron-deepspeed")
    config_option = next(filter(None, map(command.options.get, _CONFIG_OPTIONS)), None)
    document = command.files.get((config_option and config_option.single) or "")
    options = {} if document is None else {**document.options}
    renamed = _DIALECT.of("is")
    for option in (*command.options.values(), *command.unknown):
        name = renamed.get(option.option, option.option)
        options[name] = replace(option, option=name)
    derive_options(options, _DIALECT)
    experts = options.get("--num-experts")
    if experts is not None and len({*experts.texts}) > 1:
        raise LaunchError(
            f"{command.name}:{experts.line}: --num-experts gives layers different numbers of "
            "experts, which planner does not predict. Give one number."
        )
    if experts is not None and experts.texts[:1] == ("1",):  # its default: dense layers
        del options["--num-experts"]
    layers, interval = map(parse_int, map(options.get, ("--num-layers", "--expert-interval")))
    interval = interval or _DEFAULT_EXPERT_INTERVAL
    if "--num-experts" in options and layers and interval > 1:
        name, pattern = "--moe-layer-freq", f"([0]*{interval - 1}+[1]*1)*{layers // interval}"
        options[name] = implied_option(name, pattern)
    inner = OptionReader.of(replace(command, options=options), OptionTable.load("megatron-lm"))
    megatron = read_megatron_arguments(inner, "Megatron-DeepSpeed")
    settings = SettingsBuilder.of(megatron)
    settings.values = {
        name: value for name, value in settings.values.items() if table.can_express(name, value)
    }
    settings.set("attention_kernel", reading.value("attention_kernel"))
    apply_read_rows(inner, table, settings, {})
    used = (_DIALECT.names("is") | _DIALECT.names("used")) & frozenset(command.options)
    return settings.build(shape=megatron.shape, used_options=megatron.used_options | used)


_PROGRAM = "pretrain_gpt.py"
_CONFIG = "ds_config.json"


def _quantities(job: LaunchJob) -> Quantities:
    """Return the option values of the model's shape."""
    return shape_quantities(job.model, int(job["tensor_parallel"]))


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the Megatron-DeepSpeed command of a job and its ``ds_config.json``."""
    path = ShellVariable(
        name="MEGATRON_PATH",
        meaning="folder of a checkout of deepspeedai/Megatron-DeepSpeed",
        suffix=f"/{_PROGRAM}",
    )
    flags = [option for option in settings.options if option.option.startswith("--")]
    document = nest_options(
        {option.option: option.text for option in settings.options if option not in flags}
    )
    arguments = (
        CommandWords(words=(path,)),
        *map(CommandWords.of, flags),
        *user_arguments("megatron-deepspeed", job),
    )
    return training_draft(
        job,
        "megatron-deepspeed",
        arguments,
        files=(json_file(_CONFIG, document, "how DeepSpeed shards"),),
    )


TARGET = LaunchTarget.of(
    "megatron-deepspeed",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
)
