"""What a user's script on Hugging Face's Trainer says, with the files it is started with.

A command line of a script, ``TrainingArguments`` in YAML or JSON, ``ds_config.json`` and
accelerate's YAML say one thing together, whichever of them is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.launch.option_table import Meaning, OptionTable
from planner.launch.text import Given
from planner.launch.trainer.answers import answered
from planner.launch.trainer.said import Said
from planner.launch.trainer.writing import SECTION
from planner.launch.understood import Answers, Found, Reading, World

_TELLING = (
    "--per_device_train_batch_size",
    "--per_gpu_train_batch_size",
    "--gradient_accumulation_steps",
)
_PROGRAMS = ("run_clm.py", "sft.py", "trl.scripts.sft")
_NO_TRAINER = ("--tensor-model-parallel-size", "--micro-batch-size", "--seq-length")
_DEEPSPEED_SECTIONS = ("zero_optimization", "bf16", "fp16", "activation_checkpointing")
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
    "--zero_stage": "deepspeed_config.zero_stage",
    "--offload_optimizer_device": "deepspeed_config.offload_optimizer_device",
    "--offload_param_device": "deepspeed_config.offload_param_device",
    "--dynamo_backend": "dynamo_config.dynamo_backend",
}
_ACCELERATE_FLAGS = {
    "--use_deepspeed": "DEEPSPEED",
    "--use_fsdp": "FSDP",
    "--multi_gpu": "MULTI_GPU",
}
_SECTIONS = ("fsdp_config", "parallelism_config", "fp8_config", "dynamo_config")


def starts_trainer(words: Sequence[str]) -> bool:
    """Whether a command starts a script that takes the Trainer's arguments."""
    names = {_spelled(word.partition("=")[0]) for word in words if word.startswith("--")}
    if names & set(_NO_TRAINER) or any(word.startswith("--tensor-model") for word in words):
        return False
    if list(words[:2]) == ["trl", "sft"] or any(w.endswith(_PROGRAMS) for w in words[:3]):
        return True
    return bool(words) and bool(names & set(_TELLING))


def is_trainer_document(values: Mapping[str, Any]) -> bool:
    """Whether a document has ``TrainingArguments``, as TRL's YAML does."""
    return "per_device_train_batch_size" in values


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


@dataclass(kw_only=True)
class _Sources:
    """Options by where they stand; texts of flags are ``true``, of what is not told None."""

    script: dict[str, Given] = field(default_factory=dict)
    deepspeed: dict[str, Given] = field(default_factory=dict)
    accelerate: dict[str, Given] = field(default_factory=dict)
    unknown: list[Given] = field(default_factory=list)
    spelled: dict[str, str] = field(default_factory=dict)
    worlds: list[World] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def trainer_answers(reading: Reading) -> Answers:
    """What a file says in the words of the table of terms; see the module."""
    sources = _Sources()
    _gather(reading.found, sources)
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
        has_accelerate=bool(sources.accelerate),
        is_supervised=_is_supervised(sources),
        world=sources.worlds[0],
        unknown=tuple(given.option for given in sources.unknown),
        spelled=sources.spelled,
    )
    return answered(said)


def _is_supervised(sources: _Sources) -> bool:
    """Whether it is TRL's script, whose defaults are others."""
    if any(word.endswith(("trl", "trl.scripts.sft", "sft.py")) for word in sources.words[:3]):
        return True
    return bool({"--max_length", "--use_peft", "--packing"} & set(sources.script))


def text_of(given: Given) -> str | None:
    """The value as the tables have it; several are joined by blanks, None is not told."""
    if not given.texts:
        return "true"
    known = [text for text in given.texts if text is not None]
    if len(known) < len(given.texts):
        return None
    joined = " ".join(known)
    return joined.lower() if joined.lower() in ("true", "false") else joined


def _meanings(table: str, options: Mapping[str, Given]) -> dict[str, Meaning]:
    """What the options tell; those that are null or ``auto`` are as if they were not there."""
    texts = {name: text_of(given) for name, given in options.items()}
    told = {name: text for name, text in texts.items() if text not in (None, "auto", "", "null")}
    return OptionTable.load(table).read(told)


def _spelled(option: str) -> str:
    return "--" + option[2:].replace("-", "_") if option.startswith("--") else option


def _gather(found: Found, sources: _Sources) -> None:
    given = {**{each.option: each for each in found.unknown}, **found.options}
    sources.worlds.append(found.world)
    if any(name.startswith("-") for name in given) or not given:
        sources.words += [text for each in found.positional if (text := text_of(each))]
        _command(given, sources)
    elif is_accelerate_document(given):
        _accelerate(given.values(), sources)
    elif is_deepspeed_document(given):
        _document(given.values(), sources.deepspeed, sources)
        sources.unknown += found.unknown
    else:
        for name, each in given.items():
            option = name if name.startswith(SECTION) else f"--{name}"
            _put(sources.script, option, each, sources)
    for file in found.files.values():
        if file.options or file.unknown:
            _beside(file, sources)


def _beside(found: Found, sources: _Sources) -> None:
    """A file that a command names: also the keys of FSDP alone, which no script has."""
    given = {**{each.option: each for each in found.unknown}, **found.options}
    if set(given) & {"reshard_after_forward", "activation_checkpointing", "cpu_offload"}:
        for name, each in given.items():
            _put(sources.script, SECTION + name.removeprefix("fsdp_"), each, sources)
        return
    _gather(found, sources)


def _command(given: Mapping[str, Given], sources: _Sources) -> None:
    for name, each in given.items():
        option = _spelled(name)
        if option in _ACCELERATE_FLAGS:
            kind = Given(
                option=option,
                texts=(_ACCELERATE_FLAGS[option],),
                line=each.line,
                spans=(None,),
                whole=each.whole,
            )
            _put(sources.accelerate, "distributed_type", kind, sources)
        elif option in _ACCELERATE_OPTIONS and option != "--zero_stage":
            _put(sources.accelerate, _ACCELERATE_OPTIONS[option], each, sources)
        elif option == "--zero_stage":
            _put(sources.deepspeed, "zero_optimization.stage", each, sources)
        elif option.startswith("--fsdp_") and option not in ("--fsdp_config",):
            _put(sources.accelerate, f"fsdp_config.{option[2:]}", each, sources)
        elif option.startswith("--parallelism_config_"):
            _put(sources.accelerate, f"parallelism_config.{option[2:]}", each, sources)
        else:
            _put(sources.script, option, each, sources)


def _accelerate(given: Iterable[Given], sources: _Sources) -> None:
    """Keys of sections may lack the section's prefix, and the kind any case."""
    for each in given:
        section, dot, key = each.option.partition(".")
        prefix = {"dynamo_config": "dynamo_", "parallelism_config": "parallelism_config_"}.get(
            section, section.removesuffix("config")
        )
        if dot and section in _SECTIONS and not key.startswith(prefix):
            key = prefix + key
        _put(sources.accelerate, f"{section}{dot}{key}", each, sources)


def _document(given: Iterable[Given], place: dict[str, Given], sources: _Sources) -> None:
    for each in given:
        _put(place, each.option, each, sources)


def _put(place: dict[str, Given], name: str, given: Given, sources: _Sources) -> None:
    place.setdefault(name, given)
    sources.spelled[name] = given.option
