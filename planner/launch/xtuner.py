"""xtuner's configurations in Python: of 0.x in words of Hugging Face's Trainer, of 1 in its own.

Source: InternLM/xtuner 0.2, ``xtuner/model/sft.py`` (``SupervisedFinetune``: every layer is
repeated unless ``use_activation_checkpointing`` is false, an adapter without ``target_modules``
is of all linear layers) and ``xtuner/configs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.documents.python import Call, Value
from planner.errors import LaunchError

_SAME = {"accumulative_counts": "gradient_accumulation_steps", "max_epochs": "num_train_epochs",
         "max_iters": "max_steps", "batch_size": "per_device_train_batch_size",
         "max_length": "max_seq_length", "pack_to_max_length": "packing"}  # fmt: skip
_PARTS = ("accumulative_counts", "max_epochs", "max_iters", "sampler", "pack_to_max_length")


def trained_by_xtuner(calls: Sequence[Call], name: str) -> tuple[Mapping[str, Value], int] | None:
    """What a configuration trains, and the line of its model; None where it is none.

    Raises
    ------
    LaunchError
        It trains something that is not predicted.
    """
    parts = [one for one in calls if one.name == "dict"]
    whole = next((one for one in parts if isinstance(one.given.get("llm"), dict)), None)
    if whole is None or not any("accumulative_counts" in one.given for one in parts):
        return None
    unread = next((key for key in ("visual_encoder", "ref_llm", "reward_token_id")
                   if key in whole.given), None)  # fmt: skip
    if unread:
        raise LaunchError(
            f"{name}: line {whole.line}: xtuner's model with {unread} is not predicted: "
            "supervised fine-tuning of a language model is."
        )
    found: dict[str, Value] = {}
    for key in _PARTS:
        given = next((one.given for one in parts if key in one.given), {})
        found |= {_SAME[own]: given[own] for own in _SAME if own in given and own not in found}
    formats = (one.given.get("dtype") for one in parts if "accumulative_counts" in one.given)
    found["bf16" if next(formats, None) == "bfloat16" else "fp16"] = True
    repeats = whole.given.get("use_activation_checkpointing")
    found["gradient_checkpointing"] = repeats is not False
    found |= _model(whole)
    return found, whole.line


_TRAINER, _OF_ANSWERS = "TrainerConfig", ("RLColocateTrainerConfig", "RLDisaggregatedTrainerConfig")
_NEEDED = {"model_cfg", "dataloader_cfg"}


def configured(calls: Sequence[Call], name: str) -> Iterator[tuple[int, Mapping[str, Value]]]:
    """What a ``TrainerConfig`` of XTuner 1 sets, by dotted names, and its line.

    An object is told by its class and by what it is given.

    Raises
    ------
    LaunchError
        It trains on answers that it generates.
    """
    for call in calls:
        if call.ends(*_OF_ANSWERS):
            kind = call.name.rpartition(".")[2]
            raise LaunchError(
                f"{name}: line {call.line}: XTuner's {kind} trains on answers that it generates, "
                "which is not predicted of it: TrainerConfig is. Describe the training step "
                "without --from, with --objective grpo."
            )
        if call.ends(_TRAINER) and {*call.given} >= _NEEDED:
            functions = (one.name for one in calls if "TokenizeF" in one.name)
            kind = next(functions, "").rpartition(".")[2].lower()
            parts = {key.replace("text_config.", ""): one for key, one in call.parts.items()}
            yield call.line, {"tokenize_fn": kind or None, **parts}


def _model(whole: Call) -> Mapping[str, Value]:
    """The model that is loaded, and its adapter."""
    loaded, lora = (_mapping(whole.given.get(key)) for key in ("llm", "lora"))
    kept = _mapping(loaded.get("quantization_config"))
    found: dict[str, Value] = {"model_name_or_path": loaded.get("pretrained_model_name_or_path")}
    if kept.get("load_in_4bit") is True:
        found |= {
            "load_in_4bit": True,
            "use_bnb_nested_quant": kept.get("bnb_4bit_use_double_quant"),
        }
    if lora:
        modules = lora.get("target_modules") or "all-linear"
        found |= {"use_lora": True, "lora_r": lora.get("r", 8), "lora_target_modules": modules}
    return found


def _mapping(value: Value) -> Mapping[str, Value]:
    if isinstance(value, Call):
        return value.given
    return value if isinstance(value, dict) else {}
