"""LLaMA-Factory's and ms-swift's options in the words of the Trainer, with their own defaults.

Sources: hiyouga/LLaMA-Factory 0.9, ``src/llamafactory/hparams`` (``finetuning_args.py``,
``model_args.py``, ``data_args.py``) and ``model/model_utils/checkpointing.py``: every layer is
repeated unless ``disable_gradient_checkpointing`` says otherwise; modelscope/ms-swift 3.9,
``swift/llm/argument`` (``train_args.py``, ``tuner_args.py``, ``base_args``) and
``swift/llm/ds_config``; 4 calls ``train_type`` ``tuner_type``, 2 ``sft_type``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from planner.errors import SpecError
from planner.launch.option_table import Dialect
from planner.launch.trainer.answers import gpus_of
from planner.launch.trainer.said import Sources, in_words_of, with_defaults
from planner.shell.text import Changes, stated

_OWN = {"finetuning_type", "cutoff_len", "template", "dataset_dir", "pref_loss", "lora_target"}
_STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
_PROGRAMS = ("llamafactory-cli", "lmf")
_SCRIPT = "src/train.py"
_UNPREDICTED = (
    "use_galore",
    "use_apollo",
    "use_badam",
    "use_llama_pro",
    "use_mca",
    "use_adam_mini",
)
_OFF = ("false", "null", "none", "")
LLAMA_FACTORY = Dialect.load("llama-factory")
"""Its words for the Trainer's and TRL's."""


def is_llama_factory_document(values: Mapping[str, Any]) -> bool:
    """Whether a document has LLaMA-Factory's arguments.

    >>> is_llama_factory_document({"stage": "sft", "finetuning_type": "lora"})
    True
    """
    return len(_OWN & set(values)) >= 1 + (values.get("stage") not in _STAGES)


def starts_llama_factory(words: Sequence[str]) -> bool:
    """Whether a command trains by it: ``llamafactory-cli train FILE``."""
    own = [word for word in words if not word.startswith("-")]
    if own and own[0].rpartition("/")[2] in _PROGRAMS:
        return own[1:2] == ["train"]
    return bool(own) and own[0].endswith(_SCRIPT) and any(".y" in word for word in own[1:2])


def is_llama_factory(sources: Sources) -> bool:
    """Whether what was gathered is its own."""
    if any(word.rpartition("/")[2] in _PROGRAMS for word in sources.words[:1]):
        return True
    stage = sources.script.get("--stage")
    values = {name.removeprefix("--"): "" for name in sources.script}
    return is_llama_factory_document(values | {"stage": stage.texts[0] if stage else ""})


def factory_in_trainer_words(sources: Sources, name: str) -> dict[str, str]:
    """Put its keys as the Trainer's into the script's; what is its default, by term, with why.

    Raises
    ------
    SpecError
        It trains something that is not predicted.
    """
    _refuse(sources, name)
    script = sources.script
    in_words_of(sources, LLAMA_FACTORY)
    for option in ("--lora_target", "--lora_modules_to_save"):
        if modules := sources.text(option):
            script[option] = script[option].saying(" ".join(modules.replace(",", " ").split()))
    # The Trainer's own key of it is overruled: prepare_model_for_training reads this alone.
    script.pop("--gradient_checkpointing", None)
    if disabled := script.get("--disable_gradient_checkpointing"):
        is_off = sources.text("--disable_gradient_checkpointing") == "true"
        script["--gradient_checkpointing"] = disabled.saying(str(not is_off).lower())
    if sources.text("--use_unsloth_gc") == "true":
        script["--activation_offloading"] = script["--use_unsloth_gc"]
    if sources.text("--pure_bf16") == "true":
        script["--bf16"] = script["--pure_bf16"]
        script.setdefault("--dtype", script["--pure_bf16"].saying("bfloat16"))
    if sources.text("--neat_packing") == "true" or (
        sources.text("--stage") == "pt" and "--packing" not in script
    ):
        script["--packing"] = (script.get("--neat_packing") or script["--stage"]).saying("true")
    return with_defaults(sources, LLAMA_FACTORY)


def _refuse(sources: Sources, name: str) -> None:
    kind = sources.text("--finetuning_type")
    named = next((key for key in _UNPREDICTED if sources.text(f"--{key}") == "true"), None)
    if kind in (None, "lora", "full") and named is None:
        return
    what = f"finetuning_type: {kind}" if named is None else f"{named}: true"
    raise SpecError(
        f"{name}: LLaMA-Factory's {what} is not predicted, as it trains or keeps other "
        "parameters: finetuning_type lora and full are."
    )


def in_own_words(changes: Changes) -> Changes:
    """A change in the Trainer's words, and TRL's, in those of LLaMA-Factory."""
    own: dict[str, tuple[str, ...] | None] = {}
    renamed = {row.into: row.option for row in LLAMA_FACTORY.rows if row.role in ("is", "written")}
    for name, texts in changes.items():
        if name in ("gradient_checkpointing", "activation_checkpointing"):
            is_off = None if texts is None else str(texts == ("false",)).lower()
            own["disable_gradient_checkpointing"] = None if is_off is None else (is_off,)
        elif name == "attn_implementation":
            rows = (row for row in LLAMA_FACTORY.rows if row.option == "flash_attn" and texts)
            word = next((row.text for row in rows if texts and row.word == texts[0]), None)
            own["flash_attn"] = None if word is None else (word,)
        elif name == "activation_offloading":
            own["use_unsloth_gc"] = texts
        else:
            own[renamed.get(f"--{name}", name)] = texts
    return own


_PROGRAM = "swift"
_COMMANDS = ("sft", "pt", "rlhf")
_KINDS = ("--tuner_type", "--train_type", "--sft_type")
_NO_FILE = ("false", "none", "null", "")
_TYPES = {"bfloat16": "--bf16", "bf16": "--bf16", "float16": "--fp16", "fp16": "--fp16"}
_TOTAL_BATCH = 16
SWIFT = Dialect.load("ms-swift")
"""Its words for the Trainer's and TRL's, and for files of DeepSpeed."""


def starts_swift(words: Sequence[str]) -> bool:
    """Whether a command trains by it.

    >>> starts_swift(["swift", "sft"]), starts_swift(["swift", "infer"])
    (True, False)
    """
    own = [word for word in words if not word.startswith("-")][:2]
    return len(own) == 2 and own[0].rpartition("/")[2] == _PROGRAM and own[1] in _COMMANDS


def swift_in_trainer_words(sources: Sources, name: str) -> dict[str, str]:
    """Put its options as the Trainer's into the script's; what is its default, by term, with why.

    Raises
    ------
    SpecError
        It trains something that is not predicted.
    """
    script, told = sources.script, dict[str, str]()
    in_words_of(sources, SWIFT)
    _kind(sources, name, told)
    if modules := sources.text("--lora_target_modules"):
        script["--lora_target_modules"] = stated("--lora_target_modules", modules)
    kind = sources.text("--torch_dtype") or sources.text("--dtype") or ""
    if not {"--bf16", "--fp16"} & set(script):
        option = _TYPES.get(kind, "--bf16")
        script[option] = stated(option, "true")
        if not kind:
            told["precision"] = "no torch_dtype: ms-swift computes in the checkpoint's bf16"
    if sources.text("--quant_bits") or sources.text("--quantization_bit"):
        bits = sources.text("--quant_bits") or sources.text("--quantization_bit") or ""
        script["--quantization_bit"] = stated("--quantization_bit", bits)
    told |= with_defaults(sources, SWIFT)
    _batch(sources, told)
    if (sources.text("--deepspeed") or "") in _NO_FILE:
        script.pop("--deepspeed", None)
    return told


def _kind(sources: Sources, name: str, told: dict[str, str]) -> None:
    """What is trained: adapters, unless it says otherwise; ``swift pt`` trains all."""
    script = sources.script
    kind = next((text for option in _KINDS if (text := sources.text(option))), None)
    if kind is None:
        is_whole = "pt" in sources.words[1:2]
        kind = "full" if is_whole else "lora"
        told["adapter"] = f"no train_type: ms-swift trains {'all' if is_whole else 'adapters'}"
    if kind not in ("lora", "full"):
        raise SpecError(
            f"{name}: ms-swift's train_type {kind} is not predicted, as it trains or keeps other "
            "parameters: lora and full are."
        )
    # LLaMA-Factory's word, which the Trainer's reader knows.
    script["--finetuning_type"] = stated("--finetuning_type", kind)


def _batch(sources: Sources, told: dict[str, str]) -> None:
    """A micro-batch of 1, and as many of them as make 16 samples, where neither is given."""
    script = sources.script
    micro = sources.text("--per_device_train_batch_size")
    gpus = gpus_of(sources.worlds[0])
    if "--gradient_accumulation_steps" not in script and gpus and (micro or "").isdecimal():
        steps = math.ceil(_TOTAL_BATCH / (int(micro or 1) * gpus))
        given = stated("--gradient_accumulation_steps", str(steps))
        script["--gradient_accumulation_steps"] = given
        told["global_batch_size"] = (
            "no gradient_accumulation_steps: ms-swift makes 16 samples a step"
        )
