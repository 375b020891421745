"""Where a change of a training on Hugging Face's Trainer must stand to be honoured.

The Trainer reads its own arguments, DeepSpeed its JSON, accelerate its YAML: with DeepSpeed no key
of ``fsdp_config`` counts, and numbers that both files have must agree (Transformers 5.23,
``integrations/deepspeed.py``, ``trainer_config_process``). ms-swift 3.9 names files of DeepSpeed
by words (``swift/llm/ds_config``).
"""

from __future__ import annotations

import re

from planner.documents.shell.edits import Changes, ParsedOption
from planner.errors import LaunchError
from planner.launch.hf_trainer.llama_factory import is_llama_factory_document
from planner.launch.hf_trainer.option_sources import in_words_of_program, script_of
from planner.launch.hf_trainer.write_script import SECTION
from planner.launch.option_table import is_document
from planner.launch.parsed_launch import ParsedCommand

_Texts = dict[str, tuple[str, ...] | None]
_REPEATS, _REPEATS_INSIDE = "gradient_checkpointing", f"{SECTION}activation_checkpointing"
_BY_LAUNCHER = f"{SECTION}fsdp_activation_checkpointing"
_STAGE, _MOVED = "zero_optimization.stage", "zero_optimization.offload_"
_MICRO, _STEPS = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"
# Of DeepSpeed's file, and the script's option that must agree.
_NUMBERS = {"train_batch_size": "", _MICRO: "per_device_train_batch_size", _STEPS: _STEPS}
_IN_DEEPSPEED = {
    f"{SECTION}reshard_after_forward": _STAGE,
    f"{SECTION}cpu_offload": f"{_MOVED}param.device",
}
_WORD = re.compile(r"zero([0-3])(_offload)?")
# Words of --fsdp before Transformers 5.
_FULL_SHARD_WORDS, _PART = "full_shard", "shard_grad_op"
_SPLITS = ("dp_replicate", "tp", "cp")
_DEGREES = "parallelism_config.parallelism_config_"
# FSDP1 has copies on each node or none.
_STRATEGY, _COPIED, _WHOLLY = (
    f"{SECTION}fsdp_sharding_strategy",
    ("HYBRID_SHARD", "4"),
    "FULL_SHARD",
)


def split_by_precedence(command: ParsedCommand, changes: Changes) -> tuple[Changes, Changes]:
    """What of a change stands in the file itself, and what in those that it names.

    Raises LaunchError if what starts DeepSpeed honours none of it.
    """
    if is_document("deepspeed", command.options) or is_document("accelerate", command.options):
        return _of_launcher(command, changes)
    own, beside = dict(changes), _Texts()
    has_deepspeed = (
        _of(command, "deepspeed") is not None or _named(command, "deepspeed") is not None
    )
    if has_deepspeed:
        own = _without_fsdp(own, beside)
    elif _REPEATS_INSIDE in own and not any(name.startswith(SECTION) for name in command.options):
        own[_REPEATS] = (str(own.pop(_REPEATS_INSIDE) is not None).lower(),)
    elif own.get(_REPEATS_INSIDE, ()) is None:
        own[_REPEATS] = ("false",)  # else TRL repeats them all the same
    own = _in_deepspeed(command, own, beside)
    if "zero_stage" in command.options and own.get(_REPEATS) == ("false",):
        own[_REPEATS] = None  # DeepSpeed-Chat's is a bare flag
    legacy, keeps = _of(command, "fsdp"), own.get(f"{SECTION}reshard_after_forward") == ("false",)
    if keeps and legacy is not None and _FULL_SHARD_WORDS in (legacy.joined or ""):
        del own[f"{SECTION}reshard_after_forward"]
        own[legacy.option] = tuple(
            text.replace(_FULL_SHARD_WORDS, _PART) for text in legacy.texts if text
        )
    of_launcher = (
        name
        for name in [*own]
        if "." in name and (not name.startswith(SECTION) or name.startswith(f"{SECTION}fsdp_"))
    )
    for name in of_launcher:
        flat = f"--{name.rpartition('.')[2]}"
        if flat in command.options:
            own[flat] = own.pop(name)
        else:
            beside[name] = own.pop(name)
    if beside.get(_BY_LAUNCHER) == ("true",):
        own.pop(_REPEATS, None)  # not both
    launcher = _named(command, "accelerate")
    _require_splits({**own, **beside}, launcher)
    beside = _in_strategy(beside, launcher)
    every = (*command.unknown, *command.options.values())
    texts = {one.option.lstrip("-"): one.single or "" for one in every}
    if is_document("llama-factory-v1", texts):
        return in_words_of_program("llama-factory-v1", own, extends=False), beside
    if is_llama_factory_document(texts):
        return in_words_of_program("llama-factory", own, extends=True), beside
    words = [text for one in command.positional if (text := one.single)]
    if script := script_of(words, texts):
        return in_words_of_program(script.dialect, own, extends=script.extends), beside
    return own, beside


def _of(command: ParsedCommand, name: str) -> ParsedOption | None:
    return command.options.get(name) or command.options.get(f"--{name}")


def _named(command: ParsedCommand, target: str) -> ParsedCommand | None:
    """The first file of a target that a command names."""
    return next((file for file in command.files.values() if file.target == target), None)


def _of_launcher(command: ParsedCommand, changes: Changes) -> tuple[Changes, Changes]:
    """A file of DeepSpeed or accelerate alone: the script's options stand in none."""
    kept = {
        name: texts
        for name, texts in changes.items()
        if "." in name or name in _NUMBERS or name in command.options
    }
    of_script = {name: texts for name, texts in changes.items() if name not in kept}
    told = {name: command.options[name].single for name in _NUMBERS if name in command.options}
    for name, option in _NUMBERS.items():
        if name in kept and told.get(name, "auto") == "auto" and "auto" in told.values():
            texts = kept.pop(name)  # the script says it
            of_script |= {option: texts} if option else {}
        elif name in kept and option != name:
            of_script.pop(option, None)
    if _BY_LAUNCHER in kept:
        of_script.pop(_REPEATS, None)
    _require_splits(kept, command)
    return _in_strategy(kept, command), of_script


def _in_strategy(changes: _Texts, launcher: ParsedCommand | None) -> _Texts:
    """A change to no copies in the word of FSDP1, where accelerate's file has that."""
    given = None if launcher is None else launcher.options.get(_STRATEGY)
    if given is None or given.single not in _COPIED:
        return changes
    if changes.get(f"{_DEGREES}dp_replicate_size") != ("1",):
        return changes
    sizes = [f"{_DEGREES}dp_{name}_size" for name in ("replicate", "shard")]
    kept = {name: texts for name, texts in changes.items() if name not in sizes}
    return {**kept, _STRATEGY: (_WHOLLY,)}


def _without_fsdp(own: _Texts, beside: _Texts) -> _Texts:
    if _REPEATS_INSIDE in own:
        own[_REPEATS] = (str(own.pop(_REPEATS_INSIDE) is not None).lower(),)
    for name in [name for name in own if name.startswith("fsdp")]:
        texts = own.pop(name)
        if key := _IN_DEEPSPEED.get(name):
            stage = "3" if texts == ("true",) else "2" if texts else "0"
            moved = None if texts is None else ("cpu",)
            beside[key] = moved if key.endswith("device") else (stage,)
    return own


def _in_deepspeed(command: ParsedCommand, own: _Texts, beside: _Texts) -> _Texts:
    """Move to DeepSpeed's file what it alone says, and what it says, too."""
    file = _named(command, "deepspeed")
    for name, option in _NUMBERS.items():
        texts = own.get(option, own.get(name)) if option else own.get(name)
        told = None if file is None else file.options.get(name)
        if name != option:
            own.pop(name, None)
        if texts is not None and told is not None and (told.single or "auto") != "auto":
            beside[name] = texts
    for name in [name for name in own if name.startswith(("zero_optimization.", "tensor_par"))]:
        beside[name] = own.pop(name)
    if "zero_stage" in command.options:  # DeepSpeed-Chat's
        own.pop("zero_stage", None)
        if stage := beside.pop(_STAGE, None):
            own["zero_stage"] = stage
    word = _of(command, "deepspeed")
    named = None if word is None else _WORD.fullmatch(word.single or "")
    if word is not None and named is not None:
        (level,) = beside.pop(_STAGE, None) or (named[1],)
        moves = [beside.pop(name) is not None for name in [*beside] if name.startswith(_MOVED)]
        away = "_offload" if (any(moves) if moves else named[2]) else ""
        if (text := f"zero{level}{away}") != word.single:
            own[word.option] = (text,)
    return own


def _require_splits(changes: Changes, launcher: ParsedCommand | None) -> None:
    kind = None if launcher is None else launcher.options.get("distributed_type")
    if kind is None or (kind.single or "").upper() != "DEEPSPEED":
        return
    keys = (f"{_DEGREES}{name}_size" for name in _SPLITS)
    if any((changes.get(key) or ("1",)) != ("1",) for key in keys):
        raise LaunchError("accelerate does not pass these splits to DeepSpeed.")
