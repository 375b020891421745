"""Axolotl: its YAML, with DeepSpeed's file if DeepSpeed shards."""

from __future__ import annotations

import re
from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.documents.yaml_writer import yaml_text
from planner.errors import SpecError
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    Quantities,
)
from planner.launch.read.expression_rows import apply_read_rows
from planner.launch.read.hf_trainer.option_sources import (
    OptionSources,
    apply_program_defaults,
    keep_loaded_weights,
    text_of,
)
from planner.launch.read.hf_trainer.read_script import build_settings, gather_options
from planner.launch.read.hf_trainer.write_script import (
    OUTPUT,
    RATE,
    adapter_notes,
    adapter_quantities,
    expert_adapter_notes,
    fill_quantities,
    nest_options,
    optimizer_name,
    unnamed_optimizer,
)
from planner.launch.read.parsed_launch import (
    LaunchSettings,
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
)
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    without_framework,
)
from planner.launch.targets.hf_trainer import DEEPSPEED, deepspeed_file
from planner.launch.write.benchmark import training_draft
from planner.question.request import Request

_DIALECT = OptionAliasTable.load("axolotl")


def read_settings(reading: OptionReader) -> LaunchSettings:
    """Read the settings of an axolotl YAML and the files that it names.

    Raises LaunchError if its values contradict each other.
    Raises SpecError if it trains something that is not predicted.
    """
    command = reading.command
    sources = OptionSources(name=command.name)
    sources.worlds.append(command.resources)
    documents = [
        command,
        *(file for file in command.files.values() if "base_model" in file.options),
    ]
    for document in documents:
        _translate(document, sources)
    for file in command.files.values():
        if file not in documents:
            gather_options(file, sources)
    unfrozen = text_of_key(documents, _UNFROZEN) or ""
    # All of the language model with embedding and logits; the vision tower is frozen.
    trains_language_model = _LANGUAGE in unfrozen and not _LAYERS.search(unfrozen)
    partial_key = next(
        (key for key in _PARTIAL_TRAINING_KEYS if text_of_key(documents, key) not in _EMPTY_TEXTS),
        None,
    )
    if partial_key is not None and not (partial_key == _UNFROZEN and trains_language_model):
        raise SpecError(
            f"{command.name}: axolotl's {partial_key} is not predicted, as it trains a part of the "
            "parameters. Training all of them, or adapters, is."
        )
    # Further adapters of parameters that are no modules, such as fused experts.
    if parameter_option := sources.script.get("--lora_target_parameters"):
        modules = f"{sources.text('--lora_target_modules') or ''} {text_of(parameter_option) or ''}"
        sources.script["--lora_target_modules"] = parameter_option.with_value(modules.strip())
    defaults = apply_program_defaults(sources, _DIALECT)
    if sources.text("--bf16") == "true":
        keep_loaded_weights(sources, "axolotl")
    settings = build_settings(sources, is_supervised=False)
    builder = SettingsBuilder.of(settings)
    builder.defaults |= {
        name: reason for name, reason in defaults.items() if name in builder.values
    }
    if trains_language_model:
        builder.values["freeze_vision_tower"] = True
    options = {
        name: option
        for document in reversed(documents)
        for name, option in document.options.items()
    }
    merged = OptionReader(command=replace(command, options=options), meanings={})
    apply_read_rows(merged, OptionTable.load("axolotl"), builder, {})
    return replace(
        settings,
        values=builder.values,
        defaults=builder.defaults,
        notes=tuple(builder.notes),
        ignored_options=settings.ignored_options | (options.keys() & _DIALECT.names("ignored")),
    )


# Keys that train a part of the parameters.
_UNFROZEN, _LANGUAGE = "unfrozen_parameters", "language_model"
_PARTIAL_TRAINING_KEYS = (_UNFROZEN, "lisa_n_layers")
_LAYERS = re.compile("layers|blocks")
_EMPTY_TEXTS = (None, "", "null", "0")


def text_of_key(documents: list[ParsedCommand], key: str) -> str | None:
    """Return the text of a key in the first document with that key; None if no document has it."""
    for document in documents:
        if key in document.options:
            return text_of(document.options[key])
    return None


def _translate(document: ParsedCommand, sources: OptionSources) -> None:
    """Add an axolotl document's keys to ``sources`` as options of the Trainer or accelerate."""
    for key, option in document.options.items():
        # Keys of the command line have hyphens.
        name = key.lstrip("-").replace("-", "_")
        text = text_of(option)
        if not option.texts or text in ("null", ""):
            continue
        for target_option, word in _DIALECT.translate(name, text):
            section = sources.script if target_option.startswith("--") else sources.accelerate
            translated = option if word is None else option.with_value(word)
            sources.put(section, target_option, translated)
    if any(name.startswith("fsdp_config.") for name in document.options):
        sources.put(
            sources.accelerate, "distributed_type", implied_option("distributed_type", "FSDP")
        )


CONFIG = "axolotl.yaml"
_DATASET = "DATASET"
_DATASET_NOTE = "yours: a name on Hugging Face or a folder, with its type"


def _quantities(job: LaunchJob) -> Quantities:
    """Return what no row of axolotl's table computes."""
    return {
        **fill_quantities(job),
        **adapter_quantities(job),
        "optimizer_name": optimizer_name(job) or "adamw_torch_fused",
        "unnamed_optimizer": unnamed_optimizer(job),
    }


_FP32_WEIGHTS_PROFILE = "HF Trainer FSDP"


def _narrow_request(request: Request) -> Request:
    """Remove the framework profile with 32-bit weights if all weights are trained."""
    if request.adapter not in (None, "none"):
        return request
    return without_framework(request, _FP32_WEIGHTS_PROFILE)


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the axolotl command of a job with its YAML and, with DeepSpeed, ``ds_config.json``."""
    options = {option.option: option.text for option in settings.options}
    document = nest_options(options)
    for name in ("lora_target_modules", "lora_modules_to_save"):
        if modules := options.get(name):
            document[name] = modules.split()
    document["datasets"] = [{"path": _DATASET, "type": "chat_template"}]
    notes = {option.option: option.note for option in settings.options if option.note}
    text = yaml_text(document, notes | {"datasets": _DATASET_NOTE})
    files = [LaunchOutputFile(name=CONFIG, text=text, meaning="the training settings of axolotl")]
    if "deepspeed" in options:
        table = OptionTable.load("deepspeed")
        # The Trainer refuses a train_batch_size unlike its own product, which counts every GPU.
        # Parallel degrees are in axolotl's own keys.
        degrees = [name for name in table.parameters if name.endswith("_parallel")]
        omitted = dict.fromkeys(("train_batch_size", *degrees))
        table_values = {**DEEPSPEED.table_input(job), **omitted}
        files.append(deepspeed_file(table.write_options(table_values)))
    arguments = (
        CommandWords(words=("-m", "axolotl.cli.train", CONFIG)),
        CommandWords(words=("--learning-rate", RATE)),
        CommandWords(words=("--output-dir", OUTPUT)),
    )
    return training_draft(
        job,
        "axolotl",
        arguments,
        files=tuple(files),
        unexpressed=expert_adapter_notes(job),
        notes=adapter_notes(job),
    )


TARGET = LaunchTarget.of(
    "axolotl", quantities=_quantities, draft=_draft, answers=read_settings, narrowed=_narrow_request
)
