"""XTuner 1, read-only: ``xtuner/v1/train/cli/sft.py`` and the ``TrainerConfig`` of its files; and
configurations in Python of 0.x, translated to options of Hugging Face's Trainer.

Sources: InternLM/xtuner 0.2, ``xtuner/model/sft.py`` (``SupervisedFinetune``: every layer is
repeated unless ``use_activation_checkpointing`` is false, an adapter without ``target_modules``
is of all linear layers) and ``xtuner/configs``; at b934f46,
``xtuner/v1/train/trainer.py`` (``TrainerConfig``) and
``arguments.py``, ``xtuner/v1/config/fsdp.py``, ``xtuner/v1/model`` (``int(layers x
recompute_ratio)`` layers are repeated). ``models/xtuner.csv`` has its classes of models; of
InternVL the language model.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.documents.python_calls import Call, Value
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError
from planner.launch.model_shape import with_sizes
from planner.launch.option_table import MutableQuantities, option_aliases, shipped_rows
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    with_unknown_options,
)
from planner.launch.targets.training_reader import RowsHook, make_reader_target
from planner.specs.catalogue import load_model

_ROWS = shipped_rows("models/xtuner.csv")
_MODELS = {row["class"]: row["model"] for row in _ROWS}
_MODELS_BY_NAME = {row["name"]: row["model"] for row in _ROWS if row["name"]}


def _add_settings(
    reading: OptionReader, settings: SettingsBuilder, apply_rows: RowsHook
) -> MutableQuantities | None:
    """Set the model from its class, else from the loaded weights; return changed sizes."""
    class_name = reading.text("model_cfg") or ""
    model = _MODELS.get(class_name) or _MODELS_BY_NAME.get(class_name.lower().replace("_", "-"))
    loaded = (reading.text(name) for name in ("load_from", "tokenizer_path"))
    sizes = option_aliases("xtuner size")  # that a file may change in a class of models
    changes = {size: reading.number(f"model_cfg.{key}") for key, size in sizes.items()}
    shape = None if model is None else with_sizes(model, changes)
    named = model if shape is None else None
    loaded_model = None if model else next(filter(None, loaded), None)
    ratio = reading.amount("fsdp_cfg.recompute_ratio")
    is_part = ratio is not None and 0 < ratio < 1 and (named or loaded_model) is not None
    apply_rows(
        {
            "is_command": bool(reading.command.positional),
            "named_model": named,
            "loaded_model": loaded_model,
            "has_sizes": shape is not None,
            "model_layers": load_model(str(named or loaded_model)).num_hidden_layers
            if is_part
            else None,
        }
    )
    return shape


def _merge_config_files(command: ParsedCommand) -> Mapping[str, ParsedOption]:
    return {
        _config_name(option): parsed
        for option, parsed in with_unknown_options(command).options.items()
    }


def _config_name(option: str) -> str:
    """Return the configuration key of a command's option.

    >>> _config_name("--fsdp-config.cpu-offload")
    'fsdp_cfg.cpu_offload'
    """
    head, dot, key = option.removeprefix("--").replace("-", "_").partition(".")
    return option_aliases("xtuner").get(head, head) + dot + key


TARGET = make_reader_target("xtuner", _merge_config_files, _add_settings, _config_name)


_TRAINER_PARTS = ("accumulative_counts", "max_epochs", "max_iters", "sampler", "pack_to_max_length")


def read_xtuner_config(calls: Sequence[Call], name: str) -> tuple[Mapping[str, Value], int] | None:
    """Return the Trainer's options of an XTuner 0.x configuration, and its model's line.

    None if the calls are no such configuration.
    Raises LaunchError if it trains something that is not predicted.
    """
    calls_of_dict = [call for call in calls if call.name == "dict"]
    model_call = next(
        (call for call in calls_of_dict if isinstance(call.keywords.get("llm"), dict)), None
    )
    if model_call is None or not any(
        "accumulative_counts" in call.keywords for call in calls_of_dict
    ):
        return None
    unsupported = next((key for key in ("visual_encoder", "ref_llm", "reward_token_id")
                   if key in model_call.keywords), None)  # fmt: skip
    if unsupported:
        raise LaunchError(
            f"{name}: line {model_call.line}: xtuner's model with {unsupported} is not predicted: "
            "supervised fine-tuning of a language model is."
        )
    options: dict[str, Value] = {}
    for key in _TRAINER_PARTS:
        keywords = next((call.keywords for call in calls_of_dict if key in call.keywords), {})
        options |= {
            option: keywords[name]
            for name, option in option_aliases("xtuner 0.x").items()
            if name in keywords and name not in options
        }
    formats = (
        call.keywords.get("dtype")
        for call in calls_of_dict
        if "accumulative_counts" in call.keywords
    )
    options["bf16" if next(formats, None) == "bfloat16" else "fp16"] = True
    checkpointing = model_call.keywords.get("use_activation_checkpointing")
    options["gradient_checkpointing"] = checkpointing is not False
    options |= _read_loaded_model(model_call)
    return options, model_call.line


_TRAINER, _RL_TRAINERS = (
    "TrainerConfig",
    ("RLColocateTrainerConfig", "RLDisaggregatedTrainerConfig"),
)
_REQUIRED_KEYS = {"model_cfg", "dataloader_cfg"}


def read_trainer_config(
    calls: Sequence[Call], name: str
) -> Iterator[tuple[int, Mapping[str, Value]]]:
    """Yield line and settings, by dotted name, of each ``TrainerConfig`` of XTuner 1.

    The text of an object is its class; its arguments have names below it.
    Raises LaunchError if it trains on rollouts.
    """
    for call in calls:
        if call.ends(*_RL_TRAINERS):
            class_name = call.name.rpartition(".")[2]
            raise LaunchError(
                f"{name}: line {call.line}: XTuner's {class_name} trains on rollouts, which is not "
                "predicted, only TrainerConfig. Describe the training step without --from, "
                "with --objective grpo."
            )
        if call.ends(_TRAINER) and {*call.keywords} >= _REQUIRED_KEYS:
            functions = (call.name for call in calls if "TokenizeF" in call.name)
            class_name = next(functions, "").rpartition(".")[2].lower()
            parts = {key.replace("text_config.", ""): part for key, part in call.parts.items()}
            yield call.line, {"tokenize_fn": class_name or None, **parts}


def _read_loaded_model(model_call: Call) -> Mapping[str, Value]:
    """Return the Trainer's options of the loaded model and its LoRA adapter."""
    loaded, lora = (_mapping(model_call.keywords.get(key)) for key in ("llm", "lora"))
    quantization = _mapping(loaded.get("quantization_config"))
    options: dict[str, Value] = {"model_name_or_path": loaded.get("pretrained_model_name_or_path")}
    if quantization.get("load_in_4bit") is True:
        options |= {
            "load_in_4bit": True,
            "use_bnb_nested_quant": quantization.get("bnb_4bit_use_double_quant"),
        }
    if lora:
        modules = lora.get("target_modules") or "all-linear"
        options |= {"use_lora": True, "lora_r": lora.get("r", 8), "lora_target_modules": modules}
    return options


def _mapping(value: Value) -> Mapping[str, Value]:
    if isinstance(value, Call):
        return value.keywords
    return value if isinstance(value, dict) else {}
