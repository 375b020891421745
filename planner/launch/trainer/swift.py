"""ms-swift's options in the words of the Trainer, with its own defaults.

Source: modelscope/ms-swift 3.9, ``swift/llm/argument`` (``train_args.py``, ``tuner_args.py``,
``base_args``) and ``swift/llm/ds_config``; 4 calls ``train_type`` ``tuner_type``, 2 ``sft_type``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from planner.errors import SpecError
from planner.launch.trainer.answers import gpus_of
from planner.shell.text import stated

if TYPE_CHECKING:
    from planner.launch.trainer.reading import Sources

_PROGRAM = "swift"
_COMMANDS = ("sft", "pt", "rlhf")
_KINDS = ("--tuner_type", "--train_type", "--sft_type")
_OFF = ("false", "none", "null", "")
# Its own options for the Trainer's and TRL's.
_SAME = {
    "--model": "--model_name_or_path",
    "--model_id_or_path": "--model_name_or_path",
    "--lora_rank": "--lora_r",
    "--target_modules": "--lora_target_modules",
    "--lora_target_modules": "--lora_target_modules",
    "--modules_to_save": "--lora_modules_to_save",
    "--rlhf_type": "--rlhf_type",
}
_ATTENTION = {
    "flash_attn": "flash_attention_2",
    "flash_attention_2": "flash_attention_2",
    "flash_attention_3": "flash_attention_3",
    "sdpa": "sdpa",
    "eager": "eager",
}
_TYPES = {"bfloat16": "--bf16", "bf16": "--bf16", "float16": "--fp16", "fp16": "--fp16"}
# Stage and what goes to the host of the files that it names by a word.
_STAGES = {
    "zero0": (0, ()),
    "zero1": (1, ()),
    "zero2": (2, ()),
    "zero2_offload": (2, ("optimizer",)),
    "zero3": (3, ()),
    "zero3_offload": (3, ("optimizer", "param")),
    "default-zero2": (2, ()),
    "default-zero3": (3, ()),
}
_TOTAL_BATCH = 16
_USED = (
    "train_type tuner_type sft_type model model_id_or_path lora_rank target_modules torch_dtype "
    "attn_impl quant_bits quantization_bit quant_method packing padding_free rlhf_type dtype "
    "modules_to_save"
)
_IGNORED = (
    "dataset val_dataset model_type template system lora_alpha lora_dropout split_dataset_ratio "
    "dataset_num_proc dataloader_num_workers data_seed loss_scale freeze_vit freeze_aligner "
    "save_only_model model_author model_name add_version check_model load_from_cache_file "
    "truncation_strategy custom_register_path use_hf strict beta save_steps eval_steps output_dir "
    "learning_rate warmup_ratio logging_steps save_total_limit report_to seed logging_dir"
)
USED, IGNORED = frozenset(_USED.split()), frozenset(_IGNORED.split())
"""Options that tell something here, and those that are no part of what is predicted."""


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
    for own, option in _SAME.items():
        if own in script and own != option:
            script.setdefault(option, script[own])
    _kind(sources, name, told)
    if modules := sources.text("--lora_target_modules"):
        script["--lora_target_modules"] = stated("--lora_target_modules", modules)
    if kernel := _ATTENTION.get(sources.text("--attn_impl") or ""):
        script["--attn_implementation"] = stated("--attn_implementation", kernel)
    kind = sources.text("--torch_dtype") or sources.text("--dtype") or ""
    if not {"--bf16", "--fp16"} & set(script):
        option = _TYPES.get(kind, "--bf16")
        script[option] = stated(option, "true")
        if not kind:
            told["precision"] = "no torch_dtype: ms-swift computes in the checkpoint's bf16"
    if sources.text("--quant_bits") or sources.text("--quantization_bit"):
        bits = sources.text("--quant_bits") or sources.text("--quantization_bit") or ""
        script["--quantization_bit"] = stated("--quantization_bit", bits)
    if "--gradient_checkpointing" not in script:
        script["--gradient_checkpointing"] = stated("--gradient_checkpointing", "true")
        told["recompute"] = "no gradient_checkpointing: ms-swift repeats every layer"
    _batch(sources, told)
    _shards(sources)
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
    if kind == "full":
        return
    for option, text, term, reason in (
        ("--lora_r", "8", "lora_rank", "no lora_rank: 8 is ms-swift's"),
        ("--lora_target_modules", "all-linear", "lora_targets",
         "no target_modules: ms-swift adapts all matrices"),
    ):  # fmt: skip
        if option not in script:
            script[option] = stated(option, text)
            told[term] = reason


def _batch(sources: Sources, told: dict[str, str]) -> None:
    """A micro-batch of 1, and as many of them as make 16 samples, where neither is given."""
    script = sources.script
    micro = sources.text("--per_device_train_batch_size")
    if "--per_device_train_batch_size" not in script:
        micro = "1"
        script["--per_device_train_batch_size"] = stated("--per_device_train_batch_size", micro)
        told["micro_batch_size"] = "no per_device_train_batch_size: 1 is ms-swift's"
    gpus = gpus_of(sources.worlds[0])
    if "--gradient_accumulation_steps" not in script and gpus and (micro or "").isdecimal():
        steps = math.ceil(_TOTAL_BATCH / (int(micro or 1) * gpus))
        given = stated("--gradient_accumulation_steps", str(steps))
        script["--gradient_accumulation_steps"] = given
        told["global_batch_size"] = (
            "no gradient_accumulation_steps: ms-swift makes 16 samples a step"
        )


def _shards(sources: Sources) -> None:
    """A word for one of its own files of DeepSpeed is that file."""
    word = sources.text("--deepspeed") or ""
    if word in _OFF:
        sources.script.pop("--deepspeed", None)
    if word not in _STAGES:
        return
    stage, away = _STAGES[word]
    keys = {"zero_optimization.stage": str(stage)}
    keys |= {f"zero_optimization.offload_{one}.device": "cpu" for one in away}
    line = sources.script["--deepspeed"].line
    for key, text in keys.items():
        sources.deepspeed.setdefault(key, stated(key, text, line))
