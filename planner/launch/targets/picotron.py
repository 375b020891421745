"""picotron: the JSON of its ``train.py``, which is read and not written.

Source: huggingface/picotron at 59714b1, ``train.py`` (all in bf16, nothing repeated, no ZeRO) and
``create_config.py``; the sizes of a model are those of its name with what the file changes.
"""

from __future__ import annotations

from planner.errors import PlannerError
from planner.launch.option_table import Words
from planner.launch.shape import resized
from planner.launch.targets.nanotron import deal
from planner.launch.targets.trained import put_tokens, read_alone
from planner.launch.understood import Gathered, Reading
from planner.specs.quantization import checkpoint_of

_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_NEAREST = (
    "It splits tensors, tokens and layers as nanotron does: predicted as nanotron, with states in "
    "32 bits; picotron's optimizer keeps them in the 16 bits of the weights."
)


def _tell(reading: Reading, found: Gathered) -> Words | None:
    """What no row tells of a configuration."""
    values = found.values
    found.notes.append(_NEAREST)
    shape = _shape(reading, found)
    deal(
        reading,
        found,
        reading.number("distributed.dp_size"),
        reading.number("training.gradient_accumulation_steps") or 1,
        all_at_once=reading.text("distributed.pp_engine") == "afab",
    )
    found.put("total_tokens", reading.number("training.max_tokens"))
    if "total_tokens" not in values:
        put_tokens(found, reading.number("training.total_train_steps"))
    return shape


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


TARGET = read_alone("picotron", _tell)
