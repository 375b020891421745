"""ms-swift commands and documents that train with Megatron-LM (``megatron sft``)."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from planner.base.training_aliases import TrainingObjective, nearest_adapter_targets
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.launch.option_table import (
    MutableQuantities,
    OptionAliasTable,
    OptionTable,
    ParserOptions,
    is_command,
    is_document,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.hf_trainer.option_sources import (
    DISTILLATION,
    TEACHER_NOTE,
    objective_of_word,
    refuse_unknown_training,
)
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
)
from planner.launch.targets.megatron_arguments import EXPERT_SPLIT, TABLE, read_megatron_arguments

_CONVERTED_SUFFIX = re.compile(r"[-_](mcore|megatron)$", re.IGNORECASE)
_MODEL_OPTION = "--model-parallel-size"
"""Megatron-LM's parser takes ms-swift's ``--model`` for the short form of this option."""
_ADAPTER_OPTIONS = ("tuner_type", "train_type")
_SECTION = "train."
_OTHER_SECTIONS = ("rollout.", "teacher.", "ref.", "colocate_groups")
_DIALECT = OptionAliasTable.load("megatron-swift")


def is_swift_command(command: ParsedCommand) -> bool:
    """Whether the command is one of ms-swift."""
    return is_command("megatron-swift", command.words)


def with_document_options(command: ParsedCommand) -> ParsedCommand:
    """Return the command with options of its ms-swift document; else the command as it is.

    Where Ray starts training, its options are in a section of their own. Source:
    modelscope/ms-swift, ``swift/cli/main.py`` (``parse_yaml_args``) and ``swift/ray``.
    """
    words = command.words
    files = command.files.values()
    documents = (file for file in files if is_document("megatron-swift", file.options))
    document = next(documents, None)
    is_standalone = not words and is_document("megatron-swift", command.options)
    if not (is_standalone or (document and is_command("megatron-swift", words))):
        return command
    accepted = ParserOptions.of(("megatron-lm-0.19.2",), TABLE)
    options: dict[str, ParsedOption] = {}
    unknown = [*command.unknown]
    document_options = command.options if document is None else document.options
    resources = command.resources
    if num_gpus := document_options.get(f"{_SECTION}gpus"):
        resources = replace(resources, num_gpus=num_gpus)
    for key, parsed in document_options.items():
        name = key.removeprefix(_SECTION)
        option = accepted.find(f"--{name.replace('_', '-')}")
        if option is None:
            unknown.append(replace(parsed, option=f"--{name}"))
        elif not option.is_flag:
            options[option.name] = replace(parsed, option=option.name)
        elif parsed.single == "true":
            options[option.name] = replace(parsed, option=option.name, texts=(), spans=())
    positional = command.positional or tuple(
        implied_option("", word) for word in ("megatron", "sft")
    )
    command_options = {} if is_standalone else command.options
    return replace(
        command,
        options={**options, **command_options},
        unknown=tuple(unknown),
        positional=positional,
        resources=resources,
    )


def read_swift_arguments(written: ParsedCommand, command: ParsedCommand) -> LaunchSettings:
    """Read the settings of an ms-swift command that trains with Megatron-LM.

    ``written`` is the command as the file has it, ``command`` the one that
    `with_document_options` returns for it.
    Raises LaunchError if options contradict each other, or the number of GPUs.
    Raises SpecError if it trains something that is not predicted.
    """
    action = command.words[1]
    megatron_command, model = _split_model_option(command)
    reading = OptionReader.of(megatron_command, TABLE)
    swift_options = {
        option.option.lstrip("-").replace("-", "_"): option for option in megatron_command.unknown
    }
    megatron = read_megatron_arguments(reading, "Megatron-LM")
    settings = SettingsBuilder.of(megatron)
    for row in _DIALECT.defaults:
        if not reading.has(row.into):
            settings.values[row.term], settings.defaults[row.term] = row.word, row.note
    settings.notes = [note for note in megatron.notes if "--bf16" not in note]
    swift = OptionReader(command=replace(command, options=swift_options), meanings={})
    quantities = _quantities(swift_options, action, command.name)
    # The folder of converted weights is called after the model.
    folder = (reading.text("--load") or "").rstrip("/").rpartition("/")[2]
    quantities["named_model"] = model or _CONVERTED_SUFFIX.sub("", folder) or None
    apply_read_rows(swift, OptionTable.load("megatron-swift"), settings, quantities)
    if _text(swift_options, "rlhf_type") == DISTILLATION:
        settings.notes.append(TEACHER_NOTE)
    trains_language_model = _text(swift_options, "freeze_llm") == "false"
    used = _all_spellings(
        megatron.used_options
        | (TABLE.options & {*megatron_command.options})
        | _option_names(swift_options, _DIALECT.names("used"))
        | {"--load", "--model"}
    )
    ignored_names = {*_DIALECT.names("ignored"), *(["freeze_llm"] * trains_language_model)}
    ignored = _all_spellings(
        megatron.ignored_options
        | _option_names(swift_options, ignored_names)
        | {name for name in written.options if name.startswith(_OTHER_SECTIONS)}
    )
    document_names = megatron_command.options if command is not written else ()
    settings.missing = [name for name in megatron.missing if name not in settings.values]
    return settings.build(
        shape=megatron.shape,
        used_options=used,
        ignored_options=ignored - used,
        unread=_all_spellings({*megatron.unread, *document_names}),
    )


def _all_spellings(names: Collection[str]) -> frozenset[str]:
    """Option names as commands and as documents spell them."""
    bare = [name.lstrip("-").replace("-", "_") for name in names]
    return frozenset((*names, *bare, *(f"{_SECTION}{name}" for name in (*bare, "gpus"))))


def _quantities(options: dict[str, ParsedOption], action: str, name: str) -> MutableQuantities:
    """Return the objective, kind of training and LoRA targets that rows of the table use.

    Raises LaunchError or SpecError if that is not predicted.
    """
    kinds = (_text(options, option) for option in _ADAPTER_OPTIONS)
    kind = next(filter(None, kinds), "full")
    refuse_unknown_training(kind, name)
    objective = TrainingObjective.SFT if action == "sft" else None
    if word := _text(options, "rlhf_type"):
        objective = objective_of_word(word, name)
    modules = (_text(options, "target_modules") or "all-linear").split()
    return {
        "kind": kind,
        "objective": None if objective is None else str(objective),
        "on_rollouts": objective is not None and objective.needs_rollouts,
        "targets": str(nearest_adapter_targets(modules)),
    }


def _split_model_option(command: ParsedCommand) -> tuple[ParsedCommand, str | None]:
    """Return the command with options as ms-swift reads them, and the model or None.

    ms-swift does not split experts unless an option does. Its flags take a word, those of
    Megatron-LM do not. Its ``--model`` is the short form of another option there.
    """
    model = command.options.get(_MODEL_OPTION)
    off = {
        name
        for name, option in command.options.items()
        if not option.texts
        and re.search(rf"--{name[2:].replace('-', '[-_]')}[\s\\=]+false\b", command.text)
    }
    options = {
        name: option
        for name, option in command.options.items()
        if name not in {*off, _MODEL_OPTION}
    }
    if EXPERT_SPLIT not in options:
        options[EXPERT_SPLIT] = implied_option(EXPERT_SPLIT, "1", command.line)
    return replace(command, options=options), None if model is None else model.texts[0]


def _text(options: dict[str, ParsedOption], name: str) -> str | None:
    """All values of an option, joined by blanks; None where it is absent or empty."""
    option = options.get(name)
    texts = [text for text in option.texts if text] if option is not None else []
    return " ".join(texts) or None


def _option_names(options: dict[str, ParsedOption], names: Collection[str]) -> set[str]:
    """The listed options that are set, as the file spells them."""
    return {option.option for name, option in options.items() if name in names}
