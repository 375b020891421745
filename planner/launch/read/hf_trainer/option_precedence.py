"""Which file a change of a training on Hugging Face's Trainer must go to, to take effect.

The Trainer reads its own arguments, DeepSpeed its JSON, accelerate its YAML. With DeepSpeed no key
of ``fsdp_config`` counts, and numbers in both files must agree (Transformers 5.23,
``integrations/deepspeed.py``, ``trainer_config_process``). ms-swift 3.9 has short names for files
of DeepSpeed (``swift/llm/ds_config``).
"""

from __future__ import annotations

import re

from planner.documents.shell.edits import Changes, ParsedOption
from planner.errors import LaunchError
from planner.launch.option_table import is_document
from planner.launch.read.hf_trainer.llama_factory import is_llama_factory_document
from planner.launch.read.hf_trainer.option_sources import script_of, translate_changes
from planner.launch.read.hf_trainer.write_script import SECTION
from planner.launch.read.parsed_launch import ParsedCommand

_Texts = dict[str, tuple[str, ...] | None]
_RECOMPUTE, _FSDP_RECOMPUTE = "gradient_checkpointing", f"{SECTION}activation_checkpointing"
_LAUNCHER_RECOMPUTE = f"{SECTION}fsdp_activation_checkpointing"
_STAGE, _OFFLOAD = "zero_optimization.stage", "zero_optimization.offload_"
_MICRO, _STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# Keys of DeepSpeed's file with the script's option that must agree.
_NUMBERS = {"train_batch_size": "", _MICRO: "per_device_train_batch_size", _STEPS: _STEPS}
_DEEPSPEED_KEYS = {
    f"{SECTION}reshard_after_forward": _STAGE,
    f"{SECTION}cpu_offload": f"{_OFFLOAD}param.device",
}
_ZERO_WORD = re.compile(r"zero([0-3])(_offload)?")
# Values of --fsdp before Transformers 5.
_FULL_SHARD_WORDS, _SHARD_GRAD_OP = "full_shard", "shard_grad_op"
_SPLITS = ("dp_replicate", "tp", "cp")
_DEGREES = "parallelism_config.parallelism_config_"
# FSDP1 has a replica on each node, or none.
_STRATEGY, _HYBRID_STRATEGIES, _FULL_SHARD = (
    f"{SECTION}fsdp_sharding_strategy",
    ("HYBRID_SHARD", "4"),
    "FULL_SHARD",
)


def split_by_precedence(command: ParsedCommand, changes: Changes) -> tuple[Changes, Changes]:
    """Split changes into options of the file itself and options of the files it names.

    Raises LaunchError if the change has no effect with DeepSpeed.
    """
    if is_document("deepspeed", command.options) or is_document("accelerate", command.options):
        return _split_launcher_changes(command, changes)
    file_changes, sibling_changes = dict(changes), _Texts()
    has_deepspeed = (
        _option_of(command, "deepspeed") is not None
        or _file_of_target(command, "deepspeed") is not None
    )
    if has_deepspeed:
        file_changes = _move_fsdp_changes(file_changes, sibling_changes)
    elif _FSDP_RECOMPUTE in file_changes and not any(
        name.startswith(SECTION) for name in command.options
    ):
        file_changes[_RECOMPUTE] = (str(file_changes.pop(_FSDP_RECOMPUTE) is not None).lower(),)
    elif file_changes.get(_FSDP_RECOMPUTE, ()) is None:
        file_changes[_RECOMPUTE] = ("false",)  # otherwise TRL still recomputes them
    file_changes = _move_deepspeed_changes(command, file_changes, sibling_changes)
    if "zero_stage" in command.options and file_changes.get(_RECOMPUTE) == ("false",):
        file_changes[_RECOMPUTE] = None  # a bare flag in DeepSpeed-Chat
    fsdp_option, keeps_weights = (
        _option_of(command, "fsdp"),
        file_changes.get(f"{SECTION}reshard_after_forward") == ("false",),
    )
    if (
        keeps_weights
        and fsdp_option is not None
        and _FULL_SHARD_WORDS in (fsdp_option.joined or "")
    ):
        del file_changes[f"{SECTION}reshard_after_forward"]
        file_changes[fsdp_option.option] = tuple(
            text.replace(_FULL_SHARD_WORDS, _SHARD_GRAD_OP) for text in fsdp_option.texts if text
        )
    launcher_names = (
        name
        for name in [*file_changes]
        if "." in name and (not name.startswith(SECTION) or name.startswith(f"{SECTION}fsdp_"))
    )
    for name in launcher_names:
        flag_name = f"--{name.rpartition('.')[2]}"
        if flag_name in command.options:
            file_changes[flag_name] = file_changes.pop(name)
        else:
            sibling_changes[name] = file_changes.pop(name)
    if sibling_changes.get(_LAUNCHER_RECOMPUTE) == ("true",):
        file_changes.pop(_RECOMPUTE, None)  # not both
    launcher = _file_of_target(command, "accelerate")
    _refuse_deepspeed_splits({**file_changes, **sibling_changes}, launcher)
    sibling_changes = _set_fsdp1_strategy(sibling_changes, launcher)
    options = (*command.unknown, *command.options.values())
    texts = {option.option.lstrip("-"): option.single or "" for option in options}
    if is_document("llama-factory-v1", texts):
        return translate_changes("llama-factory-v1", file_changes, extends=False), sibling_changes
    if is_llama_factory_document(texts):
        return translate_changes("llama-factory", file_changes, extends=True), sibling_changes
    words = command.words
    if script := script_of(words, texts):
        return translate_changes(
            script.dialect, file_changes, extends=script.extends
        ), sibling_changes
    return file_changes, sibling_changes


def _option_of(command: ParsedCommand, name: str) -> ParsedOption | None:
    return command.options.get(name) or command.options.get(f"--{name}")


def _file_of_target(command: ParsedCommand, target: str) -> ParsedCommand | None:
    """The first file of a target that a command names."""
    return next((file for file in command.files.values() if file.target == target), None)


def _split_launcher_changes(command: ParsedCommand, changes: Changes) -> tuple[Changes, Changes]:
    """Split changes of a DeepSpeed or accelerate file into its keys and script options."""
    launcher_changes = {
        name: texts
        for name, texts in changes.items()
        if "." in name or name in _NUMBERS or name in command.options
    }
    script_changes = {
        name: texts for name, texts in changes.items() if name not in launcher_changes
    }
    file_texts = {
        name: command.options[name].single for name in _NUMBERS if name in command.options
    }
    for name, option in _NUMBERS.items():
        if (
            name in launcher_changes
            and file_texts.get(name, "auto") == "auto"
            and "auto" in file_texts.values()
        ):
            texts = launcher_changes.pop(name)  # the script sets it
            script_changes |= {option: texts} if option else {}
        elif name in launcher_changes and option != name:
            script_changes.pop(option, None)
    if _LAUNCHER_RECOMPUTE in launcher_changes:
        script_changes.pop(_RECOMPUTE, None)
    _refuse_deepspeed_splits(launcher_changes, command)
    return _set_fsdp1_strategy(launcher_changes, command), script_changes


def _set_fsdp1_strategy(changes: _Texts, launcher: ParsedCommand | None) -> _Texts:
    """Replace a change to one replica by FSDP1's strategy key, if accelerate's file has one."""
    strategy = None if launcher is None else launcher.options.get(_STRATEGY)
    if strategy is None or strategy.single not in _HYBRID_STRATEGIES:
        return changes
    if changes.get(f"{_DEGREES}dp_replicate_size") != ("1",):
        return changes
    sizes = [f"{_DEGREES}dp_{name}_size" for name in ("replicate", "shard")]
    remaining = {name: texts for name, texts in changes.items() if name not in sizes}
    return {**remaining, _STRATEGY: (_FULL_SHARD,)}


def _move_fsdp_changes(file_changes: _Texts, sibling_changes: _Texts) -> _Texts:
    """Move changes of FSDP keys to DeepSpeed's or the script's keys; return the other changes."""
    if _FSDP_RECOMPUTE in file_changes:
        file_changes[_RECOMPUTE] = (str(file_changes.pop(_FSDP_RECOMPUTE) is not None).lower(),)
    for name in [name for name in file_changes if name.startswith("fsdp")]:
        texts = file_changes.pop(name)
        if key := _DEEPSPEED_KEYS.get(name):
            stage = "3" if texts == ("true",) else "2" if texts else "0"
            device = None if texts is None else ("cpu",)
            sibling_changes[key] = device if key.endswith("device") else (stage,)
    return file_changes


def _move_deepspeed_changes(
    command: ParsedCommand, file_changes: _Texts, sibling_changes: _Texts
) -> _Texts:
    """Move changes that belong in DeepSpeed's file there; return the remaining changes."""
    file = _file_of_target(command, "deepspeed")
    for name, option in _NUMBERS.items():
        texts = (
            file_changes.get(option, file_changes.get(name)) if option else file_changes.get(name)
        )
        file_option = None if file is None else file.options.get(name)
        if name != option:
            file_changes.pop(name, None)
        if (
            texts is not None
            and file_option is not None
            and (file_option.single or "auto") != "auto"
        ):
            sibling_changes[name] = texts
    for name in [
        name for name in file_changes if name.startswith(("zero_optimization.", "tensor_par"))
    ]:
        sibling_changes[name] = file_changes.pop(name)
    if "zero_stage" in command.options:  # DeepSpeed-Chat's
        file_changes.pop("zero_stage", None)
        if stage := sibling_changes.pop(_STAGE, None):
            file_changes["zero_stage"] = stage
    deepspeed_option = _option_of(command, "deepspeed")
    word_match = (
        None if deepspeed_option is None else _ZERO_WORD.fullmatch(deepspeed_option.single or "")
    )
    if deepspeed_option is not None and word_match is not None:
        (level,) = sibling_changes.pop(_STAGE, None) or (word_match[1],)
        offloads = [
            sibling_changes.pop(name) is not None
            for name in [*sibling_changes]
            if name.startswith(_OFFLOAD)
        ]
        suffix = "_offload" if (any(offloads) if offloads else word_match[2]) else ""
        if (text := f"zero{level}{suffix}") != deepspeed_option.single:
            file_changes[deepspeed_option.option] = (text,)
    return file_changes


def _refuse_deepspeed_splits(changes: Changes, launcher: ParsedCommand | None) -> None:
    """Raise LaunchError if accelerate uses DeepSpeed and a change splits over GPUs."""
    distributed_type = None if launcher is None else launcher.options.get("distributed_type")
    if distributed_type is None or (distributed_type.single or "").upper() != "DEEPSPEED":
        return
    keys = (f"{_DEGREES}{name}_size" for name in _SPLITS)
    if any((changes.get(key) or ("1",)) != ("1",) for key in keys):
        raise LaunchError("accelerate does not pass these splits to DeepSpeed.")
