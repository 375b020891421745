"""picotron: the JSON of its ``train.py``, which is read and not written.

Source: huggingface/picotron at 59714b1, ``train.py`` (all in bf16, nothing repeated, no ZeRO) and
``create_config.py``; the sizes of a model are those of its name with what the file changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from planner.errors import PlannerError
from planner.launch.option_table import Words
from planner.launch.shape import shape_of
from planner.launch.target import Target, changes_nothing, gathered
from planner.launch.targets.nanotron import ALL_AT_ONCE
from planner.launch.understood import Answers, Gathered, Reading, gpus_of, require_split
from planner.specs.catalogue import load_model
from planner.specs.quantization import checkpoint_of

_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_SECTIONS = ("training.", "distributed.", "model.", "dataset.", "checkpoint.", "logging.",
             "environment.")  # fmt: skip
_NEAREST = (
    "It splits tensors, tokens and layers as nanotron does: predicted as nanotron, with states in "
    "32 bits; picotron's optimizer keeps them in the 16 bits of the weights."
)


def starts(words: Sequence[str]) -> bool:
    """No command is known by its words: ``train.py --config FILE.json`` is many programs'."""
    return False


def is_of(values: Mapping[str, object]) -> bool:
    """Whether a document is a configuration of it.

    >>> is_of({"distributed.tp_size": 2, "training.micro_batch_size": 4})
    True
    """
    return {"distributed.tp_size", "training.micro_batch_size"} <= {*values}


def answers(reading: Reading) -> Answers:
    """What a configuration says.

    Raises
    ------
    LaunchError
        Its layout is that of other GPUs.
    """
    found = gathered(reading, "picotron")
    values = found.values
    values["framework"] = "nanotron"
    found.notes.append(_NEAREST)
    shape = _shape(reading, found)
    _split(reading, found)
    steps, batch = reading.number("training.total_train_steps"), values.get("global_batch_size")
    if tokens := reading.number("training.max_tokens"):
        values["total_tokens"] = tokens
    elif steps and batch:
        values["total_tokens"] = steps * batch * int(values["sequence_length"])
    ignored = frozenset(name for name in reading.found.options if name.startswith(_SECTIONS))
    return found.made(shape=shape, ignored=ignored)


def _shape(reading: Reading, found: Gathered) -> Words | None:
    """The sizes of the named model with those that the file changes; None where it has its own."""
    name = reading.text("model.name")
    changed = {key: reading.number(f"model.{key}") for key in _SIZES}
    try:
        known = shape_of(load_model(checkpoint_of(name or "").model or name or ""))
    except PlannerError:
        found.need("model", name)
        return None
    if all(size in (None, known[key]) for key, size in changed.items()):
        found.values["model"] = name
        return None
    own = {key: size for key, size in changed.items() if size is not None}
    # The model's config.json has the size of a head only where it is not hidden size / heads.
    return {**known, **own, "head_dim": None}


def _split(reading: Reading, found: Gathered) -> None:
    """GPUs of the layout, and the batch of a step."""
    values = found.values
    words = {"tp": "tensor", "cp": "context", "pp": "pipeline"}
    sizes = {name: int(values.get(f"{word}_parallel") or 1) for name, word in words.items()}
    copies = reading.number("distributed.dp_size")
    total = gpus_of(reading.found.world)
    require_split(reading, total, **sizes)
    if total is None and copies is not None:
        total = copies * prod(sizes.values())
    if total is None:
        found.asked += ["num_gpus", "global_batch_size"]
        return
    values["num_gpus"] = total
    steps = reading.number("training.gradient_accumulation_steps") or 1
    micro = reading.number("training.micro_batch_size") or 1
    values["global_batch_size"] = micro * steps * (total // prod(sizes.values()))
    is_at_once = reading.text("distributed.pp_engine") == "afab"
    if is_at_once and steps > sizes["pp"] > 1:
        found.notes.append(ALL_AT_ONCE.format(stages=sizes["pp"]))


TARGET = Target(
    name="picotron",
    title="picotron",
    version="picotron 59714b1",
    workloads=("train",),
    profiles=("nanotron",),
    answers=answers,
    starts=starts,
    is_of=is_of,
    honoured=changes_nothing,
)
