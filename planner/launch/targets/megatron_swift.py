"""``megatron sft`` of ms-swift: Megatron-LM's options with ms-swift's defaults and its adapters.

Source: modelscope/ms-swift 3.9, ``swift/megatron/argument/megatron_args.py`` and ``tuner`` of the
same folder: a micro-batch of 1, 16 samples a step, the distributed optimizer, selective
recomputation, experts that tensor parallelism does not split, no dropout.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from planner.adapter_names import ExpertAdapters, targets_of
from planner.errors import SpecError
from planner.launch.dialect import Dialect
from planner.launch.option_table import OptionTable
from planner.launch.targets import megatron_read
from planner.launch.trainer.said import objective_of_word
from planner.launch.understood import Answers, Found, Reading
from planner.shell.text import Given

_COMMANDS = ("sft", "pt", "rlhf")
_CONVERTED = re.compile(r"[-_](mcore|megatron)$", re.IGNORECASE)
_SHORT = "--model-parallel-size"
_EXPERTS = "--expert-tensor-parallel-size"
_KINDS = ("tuner_type", "train_type")
_DIALECT = Dialect.load("megatron-swift")


def starts_swift(words: Sequence[str]) -> bool:
    """Whether a command trains by it.

    >>> starts_swift(["megatron", "sft"]), starts_swift(["megatron", "export"])
    (True, False)
    """
    return len(words) > 1 and words[0] == "megatron" and words[1] in _COMMANDS


def answers(reading: Reading) -> Answers:
    """What a command of Megatron-LM says, or one of ms-swift that trains by it.

    Raises
    ------
    LaunchError
        Options contradict each other, or the number of GPUs.
    SpecError
        It trains something that is not predicted.
    """
    words = [text for given in reading.found.positional for text in given.texts if text]
    if not starts_swift(words[:2]):
        return megatron_read.answers(reading)
    found, model = _options(reading.found)
    texts = {name: " ".join(map(str, given.texts)) or None for name, given in found.options.items()}
    reading = Reading(found=found, meanings=OptionTable.load("megatron-lm").read(texts))
    own = {one.option.lstrip("-").replace("-", "_"): one for one in found.unknown}
    read = megatron_read.answers(reading)
    values, defaults = dict(read.values), dict(read.defaults)
    for row in _DIALECT.defaults:
        if not reading.has(row.into):
            values[row.term], defaults[row.term] = row.word, row.note
    values |= {"dropout": "false", **_trained(own, words[1], reading.found.name, defaults)}
    if length := _text(own, "max_length"):
        values["sequence_length"] = length
    if model := model or _converted(reading):
        values["model"] = model
    notes = [note for note in read.notes if "--bf16" not in note]
    if values["adapter"] != "none":
        values["framework"] = "Megatron-Bridge"
        notes.append("Adapters on Megatron are predicted as Megatron-Bridge's.")
    asked = tuple(name for name in read.asked if name not in values)
    return replace(
        read,
        values=values,
        defaults=defaults,
        asked=asked,
        notes=tuple(notes),
        used=read.used | _named(own, _DIALECT.names("used")) | {"--load"},
        ignored=read.ignored | _named(own, _DIALECT.names("ignored")),
    )


def _trained(
    own: dict[str, Given], command: str, name: str, defaults: dict[str, str]
) -> dict[str, Any]:
    """All weights, or adapters with those of each expert."""
    found: dict[str, Any] = {}
    if word := _text(own, "rlhf_type"):
        found["training_objective"] = str(objective_of_word(word, name))
    elif command == "sft":
        found["training_objective"] = "sft"
    kind = next((text for one in _KINDS if (text := _text(own, one))), "full")
    if kind not in ("full", "lora"):
        raise SpecError(
            f"{name}: ms-swift's train_type {kind} is not predicted, as it trains or keeps other "
            "parameters: lora and full are."
        )
    if kind == "full":
        return {**found, "adapter": "none"}
    rank = _text(own, "lora_rank")
    if rank is None:
        defaults["lora_rank"] = "no lora_rank: 8 is ms-swift's"
    modules = (_text(own, "target_modules") or "all-linear").split()
    return {
        **found,
        "adapter": "lora",
        "lora_rank": rank or "8",
        "lora_targets": str(targets_of(modules)),
        "expert_adapters": str(ExpertAdapters.EACH),
    }


def _converted(reading: Reading) -> str | None:
    """The model by the folder of converted weights that ``--load`` names."""
    folder = (reading.text("--load") or "").rstrip("/").rpartition("/")[2]
    return _CONVERTED.sub("", folder) or None


def _options(found: Found) -> tuple[Found, str | None]:
    """The options as ms-swift's parser has them, and the model.

    Experts are whole where nothing splits them; its flags take a word, which Megatron-LM's own do
    not; and there its ``--model`` is the short form of another option.
    """
    named = found.options.get(_SHORT)
    off = {
        name
        for name, given in found.options.items()
        if not given.texts
        and re.search(rf"--{name[2:].replace('-', '[-_]')}[\s\\=]+false\b", found.text)
    }
    left = {name: one for name, one in found.options.items() if name not in {*off, _SHORT}}
    if _EXPERTS not in left:
        one = Given(option=_EXPERTS, texts=("1",), line=found.line, spans=(None,), whole=None)
        left[_EXPERTS] = one
    return replace(found, options=left), None if named is None else named.texts[0]


def _text(own: dict[str, Given], name: str) -> str | None:
    given = own.get(name)
    texts = [text for text in given.texts if text] if given is not None else []
    return " ".join(texts) or None


def _named(own: dict[str, Given], names: Collection[str]) -> set[str]:
    return {given.option for name, given in own.items() if name in names}
