"""Axolotl: its YAML, with DeepSpeed's file where that shards."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from planner.documents.shell.edits import implied_option
from planner.documents.yaml_writer import yaml_text
from planner.errors import LaunchError, SpecError
from planner.launch.benchmark import training_draft
from planner.launch.hf_trainer.option_sources import (
    OptionSources,
    apply_program_defaults,
    keep_loaded_weights,
    text_of,
)
from planner.launch.hf_trainer.read_script import answers_of, gather
from planner.launch.hf_trainer.write_script import (
    LEFT,
    OUTPUT,
    RATE,
    adapter_notes,
    adapter_quantities,
    adapter_remarks,
    fill_quantities,
    fsdp_words,
    has_adapter,
    nested,
    optimizer_name,
    unnamed_optimizer,
)
from planner.launch.option_table import (
    OptionAliasTable,
    OptionTable,
    OptionTexts,
    ParameterNote,
    Quantities,
    Words,
)
from planner.launch.parsed_launch import LaunchSettings, OptionReader, ParsedCommand
from planner.launch.target import (
    CommandWords,
    LaunchDraft,
    LaunchJob,
    LaunchOutputFile,
    LaunchTarget,
    plan_words,
)
from planner.launch.targets.hf_trainer import DEEPSPEED_FILE, by_deepspeed, deepspeed_file
from planner.question.request import Request

_DIALECT = OptionAliasTable.load("axolotl")


def axolotl_answers(reading: OptionReader) -> LaunchSettings:
    """What a YAML of axolotl says, with the files that it names.

    Raises LaunchError if its values contradict each other.
    Raises SpecError if it trains something that is not predicted.
    """
    found = reading.command
    sources = OptionSources(name=found.name)
    sources.worlds.append(found.resources)
    documents = [found, *(file for file in found.files.values() if "base_model" in file.options)]
    for document in documents:
        _translate(document, sources)
    for file in found.files.values():
        if file not in documents:
            gather(file, sources)
    parts = text_of_key(documents, _UNFROZEN) or ""
    # All of the language model, and what stands at its ends, beside a tower that is frozen.
    is_language = _LANGUAGE in parts and not _LAYERS.search(parts)
    trains = next((key for key in _PARTS if text_of_key(documents, key) not in _NOTHING), None)
    if trains is not None and not (trains == _UNFROZEN and is_language):
        raise SpecError(
            f"{found.name}: axolotl's {trains} is not predicted, as it trains a part of the "
            "parameters: all of them, and adapters, are."
        )
    # Adapters of parameters that are no modules, as those of fused experts, beside the others'.
    if given := sources.script.get("--lora_target_parameters"):
        modules = f"{sources.text('--lora_target_modules') or ''} {text_of(given) or ''}"
        sources.script["--lora_target_modules"] = given.with_value(modules.strip())
    defaults = apply_program_defaults(sources, _DIALECT)
    if sources.text("--bf16") == "true":
        keep_loaded_weights(sources, "axolotl")
    answers = answers_of(sources, is_supervised=False)
    values = dict(answers.values)
    if text_of_key(documents, "gradient_checkpointing") in ("offload", "offload_disk"):
        values["offload"] = "activations"
    if is_language:
        values["freeze_vision_tower"] = True
    values |= _loss(documents, values)
    if text_of_key(documents, "torch_compile") in ("true", "auto"):
        values["torch_compile"] = "true"
    told = {name: reason for name, reason in defaults.items() if name in values}
    notes = list(answers.notes)
    if text_of_key(documents, "selective_checkpointing") not in (None, "false"):
        notes.append("selective_checkpointing is not predicted: recomputation is taken as given.")
    if any(key.startswith("qat.") for document in documents for key in document.options):
        notes.append(
            "qat: rounding of weights and inputs in each pass is not predicted, steps will take "
            "longer."
        )
    names = {name for document in documents for name in document.options}
    return replace(
        answers,
        values=values,
        defaults={**answers.defaults, **told},
        ignored_options=answers.ignored_options | (names & _DIALECT.names("ignored")),
        notes=tuple(notes),
    )


# Keys that name what is trained in place of all parameters.
_UNFROZEN, _LANGUAGE = "unfrozen_parameters", "language_model"
_PARTS = (_UNFROZEN, "lisa_n_layers")
_LAYERS = re.compile("layers|blocks")
_NOTHING = (None, "", "null", "0")


# Keys that say it, in this order where there are several.
_LOSSES = {
    "cut_cross_entropy": "linear",
    "liger_fused_linear_cross_entropy": "linear",
    "liger_cross_entropy": "fused",
    "chunked_cross_entropy": "chunked",
}


_CUT = "CutCrossEntropyPlugin"
"""The plugin whose ``cut_cross_entropy`` is on unless it is switched off."""


def _loss(documents: list[ParsedCommand], values: Mapping[str, object]) -> Words:
    """How the loss is computed: kernels of adapters say nothing of it."""
    named = [word for key, word in _LOSSES.items() if text_of_key(documents, key) == "true"]
    if _CUT in (text_of_key(documents, "plugins") or "") and (
        text_of_key(documents, "cut_cross_entropy") != "false"
    ):
        named = [_LOSSES["cut_cross_entropy"]]
    if not named:
        return {"loss_kernel": "auto"} if "loss_kernel" in values else {}
    loss: Words = {"loss_kernel": named[0]}
    chunks = text_of_key(documents, "chunked_cross_entropy_num_chunks") or ""
    if named[0] == "chunked" and chunks.isdecimal():
        loss["loss_chunks"] = int(chunks)
    return loss


def text_of_key(documents: list[ParsedCommand], key: str) -> str | None:
    """The value of a key in the first document that has it."""
    for document in documents:
        if key in document.options:
            return text_of(document.options[key])
    return None


def _translate(document: ParsedCommand, sources: OptionSources) -> None:
    for key, option in document.options.items():
        # Keys of the command line have hyphens.
        name = key.lstrip("-").replace("-", "_")
        text = text_of(option)
        if not option.texts or text in ("null", ""):
            continue
        for into, word in _DIALECT.into(name, text):
            place = sources.script if into.startswith("--") else sources.accelerate
            put = option if word is None else option.with_value(word)
            sources.put(place, into, put)
    if any(name.startswith("fsdp_config.") for name in document.options):
        sources.put(
            sources.accelerate, "distributed_type", implied_option("distributed_type", "FSDP")
        )


CONFIG = "axolotl.yaml"
_BY_FSDP = ("HF Trainer FSDP", "HF Trainer bf16")
_DATASET = "DATASET"
_DATASET_NOTE = "yours: a name on Hugging Face or a folder, with its type"
_LEFT = (
    ParameterNote(
        parameter="datasets", value="", note=f"set path and type in {CONFIG}: {_DATASET_NOTE}"
    ),
    *LEFT,
)


def _is_by_fsdp(job: LaunchJob) -> bool:
    return job.profile.name in _BY_FSDP and bool(job["zero_stage"])


def _has_file(job: LaunchJob) -> bool:
    """Whether DeepSpeed shards or offloads."""
    if job.profile.name in _BY_FSDP:
        return False
    is_away = job["offload"].startswith("optimizer")
    return bool(job["zero_stage"]) or is_away or job.profile.name == "DeepSpeed"


def _quantities(job: LaunchJob) -> Quantities:
    adapter, low_rank = has_adapter(job), adapter_quantities(job)
    quantities = {
        "model": job.hub_name or "MODEL",
        **fill_quantities(job),
        "training_steps": job.training_steps,
        "precision_kept": True if job["precision"] in ("fp4", "int8") else None,
        "offload": "activations" if "activations" in job["offload"] else None,
        **low_rank,
        "lora_alpha": 2 * low_rank["lora_rank"] if low_rank["lora_rank"] else None,
        "lora_dropout": "0.0" if low_rank["lora_rank"] else None,
        "fused_kernels": True if job.profile.name == "HF Trainer Triton" and adapter else None,
        "optimizer_name": optimizer_name(job) or "adamw_torch_fused",
        "unnamed_optimizer": unnamed_optimizer(job),
        "zero_file": DEEPSPEED_FILE if _has_file(job) else None,
    }
    return quantities | (_fsdp(job) if _is_by_fsdp(job) else {})


def _fsdp(job: LaunchJob) -> Words:
    words = fsdp_words(job)
    return {
        **words,
        "zero_stage_by_fsdp": job["zero_stage"],
        "recompute": "none" if words["fsdp_recompute"] else job["recompute"],
        "dp_shard": job.data_parallel // job["data_parallel_replicas"],
    }


def _unexpressed(job: LaunchJob) -> tuple[ParameterNote, ...]:
    found = list(adapter_remarks(job))
    if job.profile.name in _BY_FSDP and job["offload"] == "optimizer":
        note = "FSDP offloads weights with the optimizer; DeepSpeed separates them"
        found.append(ParameterNote(parameter="offload", value="optimizer", note=note))
    if job["zero_stage"] == 1 and _is_by_fsdp(job):
        note = "FSDP shards gradients with the optimizer states"
        found.append(ParameterNote(parameter="zero_stage", value="1", note=note))
    return tuple(found)


_IN_32_BITS = "HF Trainer FSDP"


def _narrowed(request: Request) -> Request:
    """Without the profile that keeps trained weights in 32 bits, where all weights are trained."""
    several = request.framework
    if request.adapter not in (None, "none") or not isinstance(several, tuple):
        return request
    return replace(request, framework=tuple(name for name in several if name != _IN_32_BITS))


def _draft(job: LaunchJob, settings: OptionTexts) -> LaunchDraft:
    if job.profile.name == _IN_32_BITS and not has_adapter(job):
        raise LaunchError(
            "Axolotl keeps trained weights in 16 bits, the plan in 32: search with "
            "--framework 'HF Trainer bf16' or DeepSpeed, or choose the target accelerate."
        )
    options = {each.option: each.text for each in settings.options}
    document = nested(options)
    for name in ("lora_target_modules", "lora_modules_to_save"):
        if modules := options.get(name):
            document[name] = modules.split()
    document["datasets"] = [{"path": _DATASET, "type": "chat_template"}]
    notes = {each.option: each.note for each in settings.options if each.note}
    text = yaml_text(document, notes | {"datasets": _DATASET_NOTE})
    files = [LaunchOutputFile(name=CONFIG, text=text, meaning="what axolotl trains, and how")]
    if _has_file(job):
        table = OptionTable.load("deepspeed")
        # The Trainer takes a batch of another product than its own, which counts every GPU, for a
        # mistake; how GPUs are split stands in axolotl's own keys.
        split = [name for name in table.parameters if name.endswith("_parallel")]
        own = dict.fromkeys(("train_batch_size", *split))
        said = {**plan_words(job, table), **by_deepspeed(job), **own}
        files.append(deepspeed_file(table.written(said)))
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
        unexpressed=_unexpressed(job),
        left=_LEFT,
        notes=adapter_notes(job),
    )


TARGET = LaunchTarget.of(
    "axolotl", quantities=_quantities, draft=_draft, answers=axolotl_answers, narrowed=_narrowed
)
