"""``megatron sft`` of ms-swift: Megatron-LM's options with ms-swift's defaults and its adapters.

Source: modelscope/ms-swift 3.9, ``swift/megatron/argument/megatron_args.py`` and ``tuner`` of the
same folder: a micro-batch of 1, 16 samples a step, the distributed optimizer, selective
recomputation, experts that tensor parallelism does not split, no dropout.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from planner.base.adapter_names import ExpertAdapters, targets_of
from planner.errors import SpecError
from planner.launch.option_table import OptionTable
from planner.launch.targets import megatron_read
from planner.launch.text import Given
from planner.launch.trainer.objective import objective_of_word
from planner.launch.understood import Answers, Found, Reading

_COMMANDS = ("sft", "pt", "rlhf")
_CONVERTED = re.compile(r"[-_](mcore|megatron)$", re.IGNORECASE)
_SHORT = "--model-parallel-size"
_EXPERTS = "--expert-tensor-parallel-size"
_KINDS = ("tuner_type", "train_type")
_DEFAULTS = {
    "micro_batch_size": "1",
    "global_batch_size": "16",
    "recompute": "selective",
    "zero_stage": "1",
}
_OPTIONS = {
    "micro_batch_size": "--micro-batch-size",
    "global_batch_size": "--global-batch-size",
    "recompute": "--recompute-granularity",
    "zero_stage": "--use-distributed-optimizer",
}
_USED = ("model", "load", "max_length", "lora_rank", "target_modules", "rlhf_type", *_KINDS)
_IGNORED = (
    "save dataset lora_alpha lora_dropout max_epochs finetune save_interval lr min_lr "
    "dataset_num_proc num_workers load_safetensors save_safetensors packing model_author "
    "model_name split_dataset_ratio eval_interval no_save_optim no_save_rng merge_lora "
    "lr_warmup_fraction system loss_scale mcore_model moe_permute_fusion"
)


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
    own = {_plain(one.option): one for one in found.unknown}
    read = megatron_read.answers(reading)
    values, defaults = dict(read.values), dict(read.defaults)
    for name, text in _DEFAULTS.items():
        if not reading.has(_OPTIONS[name]):
            values[name] = text
            defaults[name] = f"{text}, ms-swift's without an option"
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
        used=read.used | _named(own, _USED) | {"--load"},
        ignored=read.ignored | _named(own, _IGNORED.split()),
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


def _plain(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _text(own: dict[str, Given], name: str) -> str | None:
    given = own.get(name)
    texts = [text for text in given.texts if text] if given is not None else []
    return " ".join(texts) or None


def _named(own: dict[str, Given], names: Sequence[str]) -> set[str]:
    return {given.option for name, given in own.items() if name in names}
