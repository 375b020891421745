"""picotron: the JSON of its ``train.py``, which is read and not written.

Source: huggingface/picotron at 59714b1, ``train.py`` (all in bf16, nothing repeated, no ZeRO) and
``create_config.py``; the sizes of a model are those of its name with what the file changes.
"""

from __future__ import annotations

from planner.errors import PlannerError
from planner.launch.option_table import Words
from planner.launch.shape import resized
from planner.launch.target import Target, gathered
from planner.launch.targets.nanotron import deal
from planner.launch.understood import Answers, Gathered, Reading
from planner.specs.quantization import checkpoint_of

_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_SECTIONS = ("training.", "distributed.", "model.", "dataset.", "checkpoint.", "logging.",
             "environment.")  # fmt: skip
_NEAREST = (
    "It splits tensors, tokens and layers as nanotron does: predicted as nanotron, with states in "
    "32 bits; picotron's optimizer keeps them in the 16 bits of the weights."
)


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
    deal(
        reading,
        found,
        reading.number("distributed.dp_size"),
        reading.number("training.gradient_accumulation_steps") or 1,
        reading.number("training.micro_batch_size") or 1,
        all_at_once=reading.text("distributed.pp_engine") == "afab",
    )
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
    model = checkpoint_of(name or "").model or name or ""
    try:
        own = resized(model, {size: reading.number(f"model.{size}") for size in _SIZES})
    except PlannerError:
        found.need("model", name)
        return None
    if own is None:
        found.values["model"] = name
        return None
    # The model's config.json has the size of a head only where it is not hidden size / heads.
    return {**own, "head_dim": None}


TARGET = Target.of("picotron", answers=answers)
