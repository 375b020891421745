"""LLaMA-Factory's keys in the words of the Trainer, with its own defaults.

Source: hiyouga/LLaMA-Factory 0.9, ``src/llamafactory/hparams`` (``finetuning_args.py``,
``model_args.py``, ``data_args.py``) and ``model/model_utils/checkpointing.py``: every layer is
repeated unless ``disable_gradient_checkpointing`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from planner.errors import SpecError
from planner.shell.text import Changes, Given, stated

if TYPE_CHECKING:
    from planner.launch.trainer.reading import Sources

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
_ATTENTION = {"fa2": "flash_attention_2", "fa3": "flash_attention_3", "sdpa": "sdpa",
              "disabled": "eager"}  # fmt: skip
# Its own keys for the Trainer's and TRL's.
_KEYS = {
    "max_length": "cutoff_len",
    "lora_r": "lora_rank",
    "lora_target_modules": "lora_target",
    "lora_modules_to_save": "additional_target",
    "use_liger_kernel": "enable_liger_kernel",
    "use_bnb_nested_quant": "double_quantization",
}
_DEFAULTS = {
    "--finetuning_type": ("adapter", "lora", "no finetuning_type: LLaMA-Factory trains an adapter"),
    "--max_length": ("sequence_length", "2048", "no cutoff_len: 2,048 is LLaMA-Factory's"),
    "--lora_rank": ("lora_rank", "8", "no lora_rank: 8 is LLaMA-Factory's"),
    "--lora_target": ("lora_targets", "all", "no lora_target: LLaMA-Factory adapts all matrices"),
    "--gradient_checkpointing": (
        "recompute",
        "true",
        "no disable_gradient_checkpointing: LLaMA-Factory repeats every layer",
    ),
}
_OF_ADAPTERS = ("--lora_rank", "--lora_target")
_USED = (
    "finetuning_type quantization_bit cutoff_len disable_gradient_checkpointing packing dataset "
    "enable_liger_kernel additional_target double_quantization flash_attn use_unsloth_gc "
    "use_unsloth pure_bf16 neat_packing max_samples stage pref_loss"
)
_IGNORED = (
    "do_train template dataset_dir eval_dataset val_size overwrite_cache seed tokenized_path "
    "overwrite_output_dir preprocessing_num_workers dataloader_num_workers trust_remote_code "
    "plot_loss pref_beta lora_alpha lora_dropout quantization_method image_max_pixels use_rslora "
    "video_max_pixels cache_dir mask_history train_on_prompt resize_vocab ddp_timeout streaming "
    "loraplus_lr_ratio mix_strategy enable_thinking do_eval do_predict"
)
USED, IGNORED = frozenset(_USED.split()), frozenset(_IGNORED.split())
"""Keys that tell something here, and those that are no part of what is predicted."""


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


def in_trainer_words(sources: Sources, name: str) -> dict[str, str]:
    """Put its keys as the Trainer's into the script's; what is its default, by term, with why.

    Raises
    ------
    SpecError
        It trains something that is not predicted.
    """
    _refuse(sources, name)
    script = sources.script
    if length := script.get("--cutoff_len"):
        script.setdefault("--max_length", length)
    for own, option in (
        ("--enable_liger_kernel", "--use_liger_kernel"),
        ("--additional_target", "--lora_modules_to_save"),
        ("--double_quantization", "--use_bnb_nested_quant"),
    ):
        if own in script:
            script.setdefault(option, script[own])
    if kernel := _ATTENTION.get(sources.text("--flash_attn") or ""):
        script["--attn_implementation"] = _as(script["--flash_attn"], kernel)
    for option in ("--lora_target", "--lora_modules_to_save"):
        if modules := sources.text(option):
            script[option] = _as(script[option], " ".join(modules.replace(",", " ").split()))
    # The Trainer's own key of it is overruled: prepare_model_for_training reads this alone.
    script.pop("--gradient_checkpointing", None)
    if disabled := script.get("--disable_gradient_checkpointing"):
        is_off = sources.text("--disable_gradient_checkpointing") == "true"
        script["--gradient_checkpointing"] = _as(disabled, str(not is_off).lower())
    if sources.text("--use_unsloth_gc") == "true":
        script["--activation_offloading"] = script["--use_unsloth_gc"]
    if sources.text("--pure_bf16") == "true":
        script["--bf16"] = script["--pure_bf16"]
        script.setdefault("--dtype", _as(script["--pure_bf16"], "bfloat16"))
    if sources.text("--neat_packing") == "true" or (
        sources.text("--stage") == "pt" and "--packing" not in script
    ):
        script["--packing"] = _as(script.get("--neat_packing") or script["--stage"], "true")
    return _with_defaults(sources)


def _with_defaults(sources: Sources) -> dict[str, str]:
    script, told = sources.script, {}
    for option, (term, text, reason) in _DEFAULTS.items():
        is_adapted = sources.text("--finetuning_type") == "lora"
        if option in script or (option in _OF_ADAPTERS and not is_adapted):
            continue
        script[option] = stated(option, text)
        told[term] = reason
    if not {"--bf16", "--fp16", "--pure_bf16"} & set(script):
        script["--bf16"] = stated("--bf16", "true")
        told["precision"] = "no bf16 or fp16: LLaMA-Factory computes in the checkpoint's bf16"
    return told


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


def _as(given: Given, text: str) -> Given:
    return replace(given, texts=(text,), spans=(None,))


def in_own_words(changes: Changes) -> Changes:
    """A change in the Trainer's words, and TRL's, in those of LLaMA-Factory."""
    own: dict[str, tuple[str, ...] | None] = {}
    for name, texts in changes.items():
        if name in ("gradient_checkpointing", "activation_checkpointing"):
            is_off = None if texts is None else str(texts == ("false",)).lower()
            own["disable_gradient_checkpointing"] = None if is_off is None else (is_off,)
        elif name == "attn_implementation":
            words = {text: word for word, text in _ATTENTION.items()}
            word = None if texts is None else words.get(texts[0])
            own["flash_attn"] = None if word is None else (word,)
        elif name == "activation_offloading":
            own["use_unsloth_gc"] = texts
        else:
            own[_KEYS.get(name, name)] = texts
    return own
