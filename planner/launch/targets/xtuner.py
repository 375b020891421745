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
from typing import TypeAlias

from planner.documents.python_calls import Call, Value
from planner.errors import LaunchError
from planner.launch.model_shape import with_sizes
from planner.launch.option_table import MutableQuantities, option_aliases, shipped_rows
from planner.launch.read.parsed_launch import OptionReader, SettingsBuilder
from planner.launch.targets.training_reader import RowsHook, make_reader_target
from planner.specs.catalogue import load_model

_Values: TypeAlias = Mapping[str, Value]
_MODELS = {
    row[key]: row["model"] for row in shipped_rows("models/xtuner.csv") for key in ("class", "name")
}
_NOT_PREDICTED = ("visual_encoder", "ref_llm", "reward_token_id")
_REQUIRED_KEYS = {"model_cfg", "dataloader_cfg"}
_ON_ROLLOUTS = """trains on rollouts, which is not predicted, only TrainerConfig. Describe the \
training step without --from, with --objective grpo."""
_RL_TRAINERS = ("RLColocateTrainerConfig", "RLDisaggregatedTrainerConfig")


def _add_settings(
    reading: OptionReader, settings: SettingsBuilder, apply_rows: RowsHook
) -> MutableQuantities | None:
    """Set the model from its class, else from the loaded weights; return changed sizes."""
    class_name = reading.text("model_cfg") or "?"
    model = _MODELS.get(class_name) or _MODELS.get(class_name.lower().replace("_", "-"))
    sizes = option_aliases("xtuner size")  # that a file may change in a class of models
    changes = {size: reading.number(f"model_cfg.{key}") for key, size in sizes.items()}
    shape = None if model is None else with_sizes(model, changes)
    named = model or reading.text("load_from") or reading.text("tokenizer_path")
    is_part = 0 < (reading.amount("fsdp_cfg.recompute_ratio") or 0) < 1
    layers = load_model(named).num_hidden_layers if named and is_part and not shape else None
    quantities: MutableQuantities = {"has_sizes": shape is not None, "model_layers": layers}
    quantities |= {"is_command": bool(reading.command.positional)}
    apply_rows({**quantities, "named_model": None if shape else named})
    return shape


def _config_name(option: str) -> str:
    """Return the configuration key of a command's option.

    >>> _config_name("--fsdp-config.cpu-offload")
    'fsdp_cfg.cpu_offload'
    """
    head, dot, key = option.removeprefix("--").replace("-", "_").partition(".")
    return option_aliases("xtuner").get(head, head) + dot + key


TARGET = make_reader_target("xtuner", add_settings=_add_settings, format_name=_config_name)


def read_xtuner_config(calls: Sequence[Call], name: str) -> tuple[_Values, int] | None:
    """Return the Trainer's options of an XTuner 0.x configuration, and its model's line.

    Its aliases have a keyword of the ``dict`` that is meant, and the path of the value there.
    None if the calls are no such configuration.
    Raises LaunchError if it trains something that is not predicted.
    """
    parts = [call for call in calls if call.name == "dict"]
    model = next((call for call in parts if isinstance(call.keywords.get("llm"), dict)), None)
    if model is None or not any("accumulative_counts" in call.keywords for call in parts):
        return None
    for key in _NOT_PREDICTED:
        if key in model.keywords:
            raise LaunchError(
                f"{name}: line {model.line}: xtuner's model with {key} is not predicted: "
                "supervised fine-tuning of a language model is."
            )
    options: dict[str, Value] = {}
    for key, option in option_aliases("xtuner 0.x").items():
        mark, path = key.split()
        of_mark = (call.keywords for call in parts if mark in call.keywords)
        value: Value = dict(model.keywords if mark == "llm" else next(of_mark, {}))
        for part in path.split("."):
            keywords = value.keywords if isinstance(value, Call) else value
            value = keywords.get(part) if isinstance(keywords, Mapping) else None
        options["bf16" if value == "bfloat16" else option] = value
    options |= {key: True for key in ("bf16", "fp16") if key in options}
    options["gradient_checkpointing"] = options["gradient_checkpointing"] is not False
    if options["load_in_4bit"] is not True:
        options |= {"load_in_4bit": None, "use_bnb_nested_quant": None}
    if isinstance(options.pop("lora"), dict | Call):
        defaults = {"lora_r": 8, "lora_target_modules": "all-linear"}
        options |= {key: options[key] or default for key, default in defaults.items()}
        options["use_lora"] = True
    return options, model.line


def read_trainer_config(calls: Sequence[Call], name: str) -> Iterator[tuple[int, _Values]]:
    """Yield line and settings, by dotted name, of each ``TrainerConfig`` of XTuner 1.

    The text of an object is its class; its arguments have names below it.
    Raises LaunchError if it trains on rollouts.
    """
    for call in calls:
        if call.ends(*_RL_TRAINERS):
            class_name = call.name.rpartition(".")[2]
            raise LaunchError(f"{name}: line {call.line}: XTuner's {class_name} {_ON_ROLLOUTS}")
        if call.ends("TrainerConfig") and {*call.keywords} >= _REQUIRED_KEYS:
            functions = (call.name for call in calls if "TokenizeF" in call.name)
            class_name = next(functions, "").rpartition(".")[2].lower()
            parts = {key.replace("text_config.", ""): part for key, part in call.parts.items()}
            yield call.line, {"tokenize_fn": class_name or None, **parts}
