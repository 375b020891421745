"""What a user's script on Hugging Face's Trainer says, with the files it is started with.

A command line of a script, ``TrainingArguments`` in YAML or JSON, ``ds_config.json`` and
accelerate's YAML say one thing together, whichever of them is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from planner.launch.option_table import Dialect, Meaning, OptionTable
from planner.launch.trainer.answers import UNPACKED, answered
from planner.launch.trainer.programs import (
    LLAMA_FACTORY,
    SWIFT,
    factory_in_trainer_words,
    is_llama_factory,
    is_llama_factory_document,
    starts_llama_factory,
    starts_swift,
    swift_in_trainer_words,
)
from planner.launch.trainer.said import Said, Sources, named_by_program, text_of
from planner.launch.trainer.writing import SECTION
from planner.launch.understood import Answers, Found, Reading
from planner.shell.text import Given

_TELLING = (
    "--per_device_train_batch_size",
    "--per_gpu_train_batch_size",
    "--gradient_accumulation_steps",
)
_ARGUMENTS = {"learning_rate", "output_dir", "num_train_epochs", "max_steps", "use_peft", "lora_r"}
_PROGRAMS = ("run_clm.py", "sft.py")
_SCRIPTS = "trl.scripts."
_NO_TRAINER = ("--tensor-model-parallel-size", "--micro-batch-size", "--seq-length")
_DEEPSPEED_KEYS = (
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "zero_allow_untested_optimizer",
    "wall_clock_breakdown",
    "steps_per_print",
)
_ACCELERATE_KEYS = ("compute_environment", "distributed_type", "main_training_function")
_ACCELERATE_OPTIONS = {
    "--num_processes": "num_processes",
    "--num_machines": "num_machines",
    "--mixed_precision": "mixed_precision",
    "--offload_optimizer_device": "deepspeed_config.offload_optimizer_device",
    "--offload_param_device": "deepspeed_config.offload_param_device",
    "--dynamo_backend": "dynamo_config.dynamo_backend",
}
_ACCELERATE_FLAGS = {
    "--use_deepspeed": "DEEPSPEED",
    "--use_fsdp": "FSDP",
    "--multi_gpu": "MULTI_GPU",
}
_PREFIXES = {
    "fsdp_config": "fsdp_",
    "fp8_config": "fp8_",
    "parallelism_config": "parallelism_config_",
    "dynamo_config": "dynamo_",
}


def starts_trainer(words: Sequence[str]) -> bool:
    """Whether a command starts a script that takes the Trainer's arguments."""
    if starts_llama_factory(words) or starts_swift(words):
        return True
    names = {_spelled(word.partition("=")[0]) for word in words if word.startswith("--")}
    if names & set(_NO_TRAINER) or any(word.startswith("--tensor-model") for word in words):
        return False
    if words and words[0] == "trl" and named_by_program(words):
        return True
    if any(word.endswith(_PROGRAMS) or _SCRIPTS in word for word in words[:3]):
        return True
    return bool(words) and bool(names & set(_TELLING))


def is_trainer_document(values: Mapping[str, Any]) -> bool:
    """Whether a document has ``TrainingArguments``, as TRL's YAML does."""
    if "per_device_train_batch_size" in values or is_llama_factory_document(values):
        return True
    return "model_name_or_path" in values and bool(_ARGUMENTS & set(values))


def is_deepspeed_document(values: Mapping[str, Any]) -> bool:
    """Whether a document is a ``ds_config.json``."""
    keys = set(values)
    sections = {key.partition(".")[0] for key in keys}
    if keys & {"base_model", "num_layers", "vocab_size"}:
        return False
    return bool(keys & set(_DEEPSPEED_KEYS)) or {"zero_optimization"} <= sections


def is_accelerate_document(values: Mapping[str, Any]) -> bool:
    """Whether a document is accelerate's configuration."""
    return bool(set(values) & set(_ACCELERATE_KEYS))


def trainer_answers(reading: Reading) -> Answers:
    """What a file says in the words of the table of terms; see the module."""
    sources = Sources(name=reading.found.name)
    gather(reading.found, sources)
    if starts_swift(sources.words):
        return _of_program(sources, SWIFT, swift_in_trainer_words, "--max_length")
    if is_llama_factory(sources):
        return _of_program(sources, LLAMA_FACTORY, factory_in_trainer_words, "cutoff_len")
    return answers_of(sources, _is_supervised(sources))


def _of_program(
    sources: Sources,
    dialect: Dialect,
    in_trainer_words: Callable[[Sources, str], dict[str, str]],
    length: str,
) -> Answers:
    """What a program with defaults of its own means; ``length`` is its word for the longest."""
    keys = frozenset(sources.spelled.values())
    defaults = in_trainer_words(sources, sources.name)
    answers = answers_of(sources, is_supervised=False)
    told = {name: why for name, why in defaults.items() if name in answers.values}
    notes = answers.notes
    packing = sources.script.get("--packing")
    if packing is None or text_of(packing) != "true":
        notes = (*notes, UNPACKED.format(option=length))
    used, ignored = (
        {key for key in keys if key.lstrip("-").replace("-", "_") in dialect.names(role)}
        for role in ("used", "ignored")
    )
    return replace(
        answers,
        defaults={**answers.defaults, **told},
        notes=notes,
        used=answers.used | used,
        ignored=answers.ignored | ignored,
    )


def answers_of(sources: Sources, is_supervised: bool) -> Answers:
    """The answers of what was gathered; ``is_supervised`` if TRL's defaults hold.

    Raises
    ------
    LaunchError
        The options contradict each other.
    """
    said = Said(
        script=_meanings("transformers", sources.script),
        deepspeed=_meanings("deepspeed", sources.deepspeed),
        accelerate=_meanings("accelerate", sources.accelerate),
        texts={
            name: text_of(given)
            for group in (sources.script, sources.deepspeed, sources.accelerate)
            for name, given in group.items()
        },
        has_deepspeed=bool(sources.deepspeed) or "--deepspeed" in sources.script,
        deepspeed_keys=frozenset(sources.deepspeed),
        has_script=bool(sources.script),
        is_supervised=is_supervised,
        world=sources.worlds[0],
        unknown=tuple(given.option for given in sources.unknown),
        spelled=sources.spelled,
        words=tuple(sources.words),
    )
    return answered(said, sources.name)


def _is_supervised(sources: Sources) -> bool:
    """Whether it is TRL's script, whose defaults are others."""
    words = sources.words[:3]
    if any(word.endswith(("trl", "sft.py")) or _SCRIPTS in word for word in words):
        return True
    return bool({"--max_length", "--use_peft", "--packing"} & set(sources.script))


def _meanings(table: str, options: Mapping[str, Given]) -> dict[str, Meaning]:
    """What the options tell; those that are null or ``auto`` are as if they were not there."""
    texts = {name.removeprefix("--"): text_of(given) for name, given in options.items()}
    told = {name: text for name, text in texts.items() if text not in (None, "auto", "", "null")}
    return OptionTable.load(table).read(told)


def _spelled(option: str) -> str:
    """An argument as the script's parser names it: both kinds of hyphens are the same there."""
    return "--" + option.lstrip("-").replace("-", "_")


def gather(found: Found, sources: Sources) -> None:
    """Put the options of a command or document, and of its files, where they belong."""
    given = {**{each.option: each for each in found.unknown}, **found.options}
    sources.worlds.append(found.world)
    if is_accelerate_document(given):
        for each in given.values():
            section, dot, key = each.option.partition(".")
            prefix = _PREFIXES.get(section, "") if dot else ""  # keys may lack the section's
            own = key if key.startswith(prefix) else prefix + key
            sources.put(sources.accelerate, f"{section}{dot}{own}", each)
    elif is_deepspeed_document(given):
        for name, each in given.items():
            sources.put(sources.deepspeed, name, each)
        sources.unknown += found.unknown
    else:
        sources.words += [text for each in found.positional if (text := text_of(each))]
        for name, each in given.items():
            _argument(name, each, sources)
    for file in found.files.values():
        if file.options or file.unknown:
            _beside(file, sources)


def _beside(found: Found, sources: Sources) -> None:
    """A file that a command names: also the keys of FSDP alone, which no script has."""
    given = {**{each.option: each for each in found.unknown}, **found.options}
    if set(given) & {"reshard_after_forward", "activation_checkpointing", "cpu_offload"}:
        for name, each in given.items():
            sources.put(sources.script, SECTION + name.removeprefix("fsdp_"), each)
        return
    gather(found, sources)


def _argument(name: str, given: Given, sources: Sources) -> None:
    """An argument of a script or of ``accelerate launch``, which share a command."""
    option = _spelled(name)
    plain = option.removeprefix("--")
    if name.startswith(SECTION):
        key = name.removeprefix(SECTION).removeprefix("fsdp_")
        sources.put(sources.script, SECTION + key, given)
    elif option in _ACCELERATE_FLAGS:
        kind = given.saying(_ACCELERATE_FLAGS[option])
        sources.put(sources.accelerate, "distributed_type", kind)
    elif option in _ACCELERATE_OPTIONS:
        sources.put(sources.accelerate, _ACCELERATE_OPTIONS[option], given)
    elif option == "--zero_stage":
        sources.put(sources.deepspeed, "zero_optimization.stage", given)
    elif plain.startswith("fsdp_") and plain != "fsdp_config":
        sources.put(sources.accelerate, f"fsdp_config.{plain}", given)
    elif plain.startswith("parallelism_config_"):
        sources.put(sources.accelerate, f"parallelism_config.{plain}", given)
    else:
        sources.put(sources.script, option, given)
