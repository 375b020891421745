"""Megatron-DeepSpeed: ``pretrain_gpt.py`` of the fork, with its ``ds_config.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    Quantities,
)
from planner.launch.read.hf_trainer.write_script import json_file, nest_options
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader, ParsedCommand, parse_int
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchTarget,
    ShellVariable,
    user_arguments,
)
from planner.launch.targets import megatron_lm
from planner.launch.targets.megatron_arguments import has_deepspeed_options, read_megatron_arguments
from planner.launch.targets.megatron_shape import shape_quantities, unexpressed_parts
from planner.launch.write.benchmark import training_draft

_PROGRAMS = ("pretrain_gpt.py", "finetune_llama.py", "pretrain_llama.py")
_DIALECT = OptionAliasTable.load("megatron-deepspeed")
_OFFLOADED = ("cpu", "nvme")
_FEWEST_EXPERTS = 2
_DEFAULT_EXPERT_INTERVAL = 2


def matches_command(words: Sequence[str]) -> bool:
    """Return whether a command starts a fork of Megatron-DeepSpeed with its options.

    >>> matches_command(["finetune_llama.py", "--deepspeed_config", "ds.json", "--model_name", "x"])
    False
    """
    is_program = any(word.rpartition("/")[2] in _PROGRAMS for word in words[:3])
    # With a checkpoint of Hugging Face the options do not set the model's sizes.
    return is_program and has_deepspeed_options(words) and "--model_name" not in words


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of a Megatron-DeepSpeed command and its ``ds_config.json``.

    Raises LaunchError if its options contradict each other, or the number of GPUs.
    """
    command = reading.command
    config = _config_options(command)
    options = _translate_arguments(command, config)
    inner = OptionReader.of(replace(command, options=options), OptionTable.load("megatron-lm"))
    settings = read_megatron_arguments(inner, "Megatron-DeepSpeed")
    table, notes = OptionTable.load("megatron-deepspeed"), list(settings.notes)
    values = {
        name: value for name, value in settings.values.items() if table.can_express(name, value)
    }
    values["zero_stage"], zero_notes = _read_zero_stage(reading, config, str(values["precision"]))
    values["flash_attention"] = str("--use-flash-attn" in options).lower()
    if kernel := reading.value("attention_kernel"):
        values["attention_kernel"] = kernel
    values["offload"] = _read_offload(reading, config)
    if str(values.get("context_parallel", 1)) != "1":
        values["cp_comm_type"] = "a2a"  # --ds-sequence-parallel-size
    defaults = {
        name: text for name, text in settings.defaults.items() if name not in _SET_BY_DEEPSPEED
    }
    return replace(
        settings,
        values=values,
        defaults=defaults,
        used_options=settings.used_options
        | ((_DIALECT.names("is") | _DIALECT.names("used")) & frozenset(command.options)),
        notes=(*notes, *zero_notes),
    )


_SET_BY_DEEPSPEED = ("zero_stage", "flash_attention")


def _config_options(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    """Return the options of ``ds_config.json`` by key; {} if the file is missing."""
    option = command.options.get("--deepspeed_config") or command.options.get("--deepspeed-config")
    text = option.texts[0] if option is not None and option.texts else None
    document = command.files.get(text) if text is not None else None
    return {} if document is None else document.options


def _translate_arguments(
    command: ParsedCommand, config: Mapping[str, ParsedOption]
) -> dict[str, ParsedOption]:
    """Translate options to Megatron-LM's; ``config`` sets what the command does not."""
    options: dict[str, ParsedOption] = {}
    renamed = _DIALECT.of("is")
    for option in (*command.options.values(), *command.unknown):
        name = renamed.get(option.option, option.option)
        options[name] = replace(option, option=name)
    for key, name in _DIALECT.of("config").items():
        if key in config and name not in options:
            options[name] = replace(config[key], option=name)
    for precision in ("bf16", "fp16"):
        is_open = not {"--bf16", "--fp16"} & set(options)
        if is_open and _is_true(config.get(f"{precision}.enabled")):
            options[f"--{precision}"] = _flag(f"--{precision}")
    for name in ("--fp8-hybrid", "--fp8-e4m3"):
        if name in options:
            format_option = replace(options[name], option="--fp8-format")
            options["--fp8-format"] = format_option.with_value(name.removeprefix("--fp8-"))
    groups = options.get("--num-key-value-heads")
    if groups is not None:
        options["--num-query-groups"] = replace(groups, option="--num-query-groups")
        options["--group-query-attention"] = _flag("--group-query-attention")
    _correct_renamed_options(options)
    layers = parse_int(options.get("--num-layers"))
    expert_interval = (
        parse_int(options.get("--expert-interval")) or _DEFAULT_EXPERT_INTERVAL
    )  # second one has experts
    if "--num-experts" in options and layers and expert_interval > 1:
        name = "--moe-layer-freq"
        options[name] = implied_option(
            name, f"([0]*{expert_interval - 1}+[1]*1)*{layers // expert_interval}"
        )
    return options


def _correct_renamed_options(options: dict[str, ParsedOption]) -> None:
    """Change, in place, options that mean something else in Megatron-LM."""
    experts = parse_int(options.get("--num-experts"))
    if experts is not None and experts < _FEWEST_EXPERTS:
        del options["--num-experts"]
    norm = options.get("--normalization")
    if norm is not None and norm.texts:
        spelled = "RMSNorm" if norm.texts[0] == "rmsnorm" else "LayerNorm"
        options["--normalization"] = replace(norm, texts=(spelled,))
    rotary = {"--use-rotary-position-embeddings", "--position-embedding-type"}
    if "--no-position-embedding" in options and not rotary & set(options):
        name = "--position-embedding-type"
        options[name] = implied_option(name, "none")
    if "--enable-expert-tensor-parallelism" not in options:
        name = "--expert-tensor-parallel-size"
        options[name] = implied_option(name, "1")
    if "--topk" not in options and "--num-experts" in options:
        name = "--moe-router-topk"
        options.setdefault(name, implied_option(name, "1"))


def _flag(name: str) -> ParsedOption:
    return ParsedOption(option=name, texts=(), line=1, spans=(), full_span=None)


def _text(option: ParsedOption | None) -> str:
    return "" if option is None else option.single or ""


def _is_true(option: ParsedOption | None) -> bool:
    return _text(option).lower() == "true"


def _read_zero_stage(
    reading: OptionReader, config: Mapping[str, ParsedOption], precision: str
) -> tuple[str, tuple[str, ...]]:
    """Return the ZeRO stage, from the configuration or the argument, and notes on it."""
    stage_text = _text(config.get("zero_optimization.stage")) or _text(
        reading.command.options.get("--zero-stage")
    )
    notes: tuple[str, ...] = ()
    if stage_text.isdecimal():
        stage = stage_text
    else:
        stage, notes = "1", ("ZeRO stage unknown: 1 is assumed.",)
    if stage == "0" and precision == "bf16" and reading.has("--deepspeed"):
        note = "Stage 0 with bf16: predicted as ZeRO 1, as DeepSpeed's BF16_Optimizer shards."
        return "1", (*notes, note)
    return stage, notes


def _read_offload(reading: OptionReader, config: Mapping[str, ParsedOption]) -> str:
    """Return which of optimizer, weights and activations the options move off the GPU, or none."""

    def is_moved(key: str) -> bool:
        return _text(config.get(f"zero_optimization.{key}.device")) in _OFFLOADED

    checkpoints = _is_true(config.get("activation_checkpointing.cpu_checkpointing"))
    activations = checkpoints or reading.has("--checkpoint-in-cpu")
    if is_moved("offload_param") or reading.text("--remote-device") in _OFFLOADED:
        return "optimizer_weights"
    if is_moved("offload_optimizer") or reading.has("--cpu-optimizer"):
        return "optimizer_activations" if activations else "optimizer"
    return "activations" if activations else "none"


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
        environment=megatron_lm.environment_variables(job),
        files=(json_file(_CONFIG, document, "how DeepSpeed shards"),),
        unexpressed=unexpressed_parts(job.model, "Megatron-DeepSpeed"),
    )


TARGET = LaunchTarget.of(
    "megatron-deepspeed",
    quantities=_quantities,
    draft=_draft,
    answers=read_settings,
    starts=matches_command,
)
