"""Axolotl: its YAML, with DeepSpeed's file if DeepSpeed shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.documents.yaml_writer import yaml_text
from planner.errors import LaunchError, SpecError
from planner.launch.option_table import (
    MutableQuantities,
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    Quantities,
)
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
    has_adapter,
    nest_options,
    optimizer_name,
    unnamed_optimizer,
)
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader, ParsedCommand
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
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
    values = dict(settings.values)
    if text_of_key(documents, "gradient_checkpointing") in ("offload", "offload_disk"):
        values["offload"] = "activations"
    if trains_language_model:
        values["freeze_vision_tower"] = True
    values |= _read_loss(documents, values)
    if text_of_key(documents, "torch_compile") in ("true", "auto"):
        values["torch_compile"] = "true"
    reasons = {name: reason for name, reason in defaults.items() if name in values}
    notes = list(settings.notes)
    if text_of_key(documents, "selective_checkpointing") not in (None, "false"):
        notes.append("selective_checkpointing is not predicted, only the other recomputation keys.")
    if any(key.startswith("qat.") for document in documents for key in document.options):
        notes.append(
            "qat: rounding of weights and inputs in each pass is not predicted. Steps will take "
            "longer."
        )
    keys = {name for document in documents for name in document.options}
    return replace(
        settings,
        values=values,
        defaults={**settings.defaults, **reasons},
        ignored_options=settings.ignored_options | (keys & _DIALECT.names("ignored")),
        notes=tuple(notes),
    )


# Keys that train a part of the parameters.
_UNFROZEN, _LANGUAGE = "unfrozen_parameters", "language_model"
_PARTIAL_TRAINING_KEYS = (_UNFROZEN, "lisa_n_layers")
_LAYERS = re.compile("layers|blocks")
_EMPTY_TEXTS = (None, "", "null", "0")


# Keys of loss kernels; the first that is set counts.
_LOSSES = {
    "cut_cross_entropy": "linear",
    "liger_fused_linear_cross_entropy": "linear",
    "liger_cross_entropy": "fused",
    "chunked_cross_entropy": "chunked",
}


_CUT_CROSS_ENTROPY_PLUGIN = "CutCrossEntropyPlugin"
"""The plugin that enables ``cut_cross_entropy`` unless the file switches it off."""


def _read_loss(documents: list[ParsedCommand], values: Mapping[str, object]) -> MutableQuantities:
    """Return the loss kernel and its chunks; {} if no key sets a kernel."""
    kernels = [kernel for key, kernel in _LOSSES.items() if text_of_key(documents, key) == "true"]
    if _CUT_CROSS_ENTROPY_PLUGIN in (text_of_key(documents, "plugins") or "") and (
        text_of_key(documents, "cut_cross_entropy") != "false"
    ):
        kernels = [_LOSSES["cut_cross_entropy"]]
    if not kernels:
        return {"loss_kernel": "auto"} if "loss_kernel" in values else {}
    loss: MutableQuantities = {"loss_kernel": kernels[0]}
    chunks = text_of_key(documents, "chunked_cross_entropy_num_chunks") or ""
    if kernels[0] == "chunked" and chunks.isdecimal():
        loss["loss_chunks"] = int(chunks)
    return loss


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
_FSDP_PROFILES = ("HF Trainer FSDP", "HF Trainer bf16")
_DATASET = "DATASET"
_DATASET_NOTE = "yours: a name on Hugging Face or a folder, with its type"


def _uses_fsdp(job: LaunchJob) -> bool:
    return job.profile.name in _FSDP_PROFILES and bool(job["zero_stage"])


def _uses_deepspeed(job: LaunchJob) -> bool:
    """Return whether DeepSpeed (not FSDP) shards or offloads in the planned job."""
    if job.profile.name in _FSDP_PROFILES:
        return False
    offloads = job["offload"].startswith("optimizer")
    return bool(job["zero_stage"]) or offloads or job.profile.name == "DeepSpeed"


def _quantities(job: LaunchJob) -> Quantities:
    """Return what no row of axolotl's table computes, and what shards: FSDP or DeepSpeed."""
    return {
        **fill_quantities(job),
        **adapter_quantities(job),
        "optimizer_name": optimizer_name(job) or "adamw_torch_fused",
        "unnamed_optimizer": unnamed_optimizer(job),
        "is_of_fsdp": job.profile.name in _FSDP_PROFILES,
        "shards_by_fsdp": _uses_fsdp(job),
        "shards_by_deepspeed": _uses_deepspeed(job),
    }


_FP32_WEIGHTS_PROFILE = "HF Trainer FSDP"


def _narrow_request(request: Request) -> Request:
    """Remove the framework profile with 32-bit weights if all weights are trained."""
    frameworks = request.framework
    if request.adapter not in (None, "none") or not isinstance(frameworks, tuple):
        return request
    return replace(
        request, framework=tuple(name for name in frameworks if name != _FP32_WEIGHTS_PROFILE)
    )


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    """Build the axolotl command of a job with its YAML and, with DeepSpeed, ``ds_config.json``."""
    if job.profile.name == _FP32_WEIGHTS_PROFILE and not has_adapter(job):
        raise LaunchError(
            "Axolotl keeps trained weights in 16 bits, but the plan in 32: search with "
            "--framework 'HF Trainer bf16' or DeepSpeed, or choose the target accelerate."
        )
    options = {option.option: option.text for option in settings.options}
    document = nest_options(options)
    for name in ("lora_target_modules", "lora_modules_to_save"):
        if modules := options.get(name):
            document[name] = modules.split()
    document["datasets"] = [{"path": _DATASET, "type": "chat_template"}]
    notes = {option.option: option.note for option in settings.options if option.note}
    text = yaml_text(document, notes | {"datasets": _DATASET_NOTE})
    files = [LaunchOutputFile(name=CONFIG, text=text, meaning="the training settings of axolotl")]
    if _uses_deepspeed(job):
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
