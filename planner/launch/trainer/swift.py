"""ms-swift's options in the words of the Trainer, with its own defaults.

Source: modelscope/ms-swift 3.9, ``swift/llm/argument`` (``train_args.py``, ``tuner_args.py``,
``base_args``) and ``swift/llm/ds_config``; 4 calls ``train_type`` ``tuner_type``, 2 ``sft_type``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planner.errors import SpecError
from planner.launch.dialect import Dialect
from planner.launch.trainer.answers import gpus_of
from planner.launch.trainer.said import Sources, in_words_of, with_defaults
from planner.shell.text import stated

_PROGRAM = "swift"
_COMMANDS = ("sft", "pt", "rlhf")
_KINDS = ("--tuner_type", "--train_type", "--sft_type")
_OFF = ("false", "none", "null", "")
_TYPES = {"bfloat16": "--bf16", "bf16": "--bf16", "float16": "--fp16", "fp16": "--fp16"}
_TOTAL_BATCH = 16
DIALECT = Dialect.load("ms-swift")
"""Its words for the Trainer's and TRL's, and for files of DeepSpeed."""


def starts_swift(words: Sequence[str]) -> bool:
    """Whether a command trains by it.

    >>> starts_swift(["swift", "sft"]), starts_swift(["swift", "infer"])
    (True, False)
    """
    own = [word for word in words if not word.startswith("-")][:2]
    return len(own) == 2 and own[0].rpartition("/")[2] == _PROGRAM and own[1] in _COMMANDS


def is_swift(sources: Sources) -> bool:
    """Whether what was gathered is its own."""
    return starts_swift(sources.words)


def in_trainer_words(sources: Sources, name: str) -> dict[str, str]:
    """Put its options as the Trainer's into the script's; what is its default, by term, with why.

    Raises
    ------
    SpecError
        It trains something that is not predicted.
    """
    script, told = sources.script, dict[str, str]()
    in_words_of(sources, DIALECT)
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
    told |= with_defaults(sources, DIALECT)
    _batch(sources, told)
    if (sources.text("--deepspeed") or "") in _OFF:
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
