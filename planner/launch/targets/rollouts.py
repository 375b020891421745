"""What programs that train on generated answers say alike: sequences, passes, micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.base.training_objectives import TrainingObjective
from planner.launch.understood import Gathered, Reading


def with_words(reading: Reading) -> Reading:
    """The same with words of a command that no parser of ours knows: the last of a name counts."""
    found = reading.found
    words = {one.option: one for one in found.unknown}
    return replace(reading, found=replace(found, options={**words, **found.options}))


NOTHING = ("", "null", "none", "~")


def told(reading: Reading, *options: str) -> str | None:
    """The text of the first of some options that says something, in lower case."""
    texts = ((reading.text(option) or "").strip("'\" ").lower() for option in options)
    return next((text for text in texts if text not in NOTHING), None)


def flag(reading: Reading, *options: str, default: bool = False) -> bool:
    """Whether the first of some options that is there is on."""
    for option in options:
        if not reading.has(option):
            continue
        text = told(reading, option)
        # A flag without a value is on; null is as if it were not there.
        if text is not None or not reading.found.options[option].texts:
            return text not in ("false", "0")
    return default


def is_hidden(reading: Reading, *options: str) -> bool:
    """Whether one of some options is there with a value that text alone does not tell."""
    given = (reading.found.options[name] for name in options if reading.has(name))
    return any(None in one.texts for one in given)


def number(reading: Reading, *options: str) -> int | None:
    """The first whole number above 0 that some options say."""
    numbers = (reading.number(option) for option in options)
    return next((one for one in numbers if one is not None and one > 0), None)


def fsdp_profile(values: Mapping[str, object]) -> str:
    """The profile of FSDP that is nearest: that of plain FSDP splits neither tensors nor tokens."""
    if values["adapter"] != "none":
        return "HF Trainer FSDP"
    is_split = (values["tensor_parallel"], values["context_parallel"]) != (1, 1)
    return "NeMo AutoModel" if is_split else "FSDP"


def put_objective(found: Gathered, has_reference: bool) -> None:
    """The passes beside the update: a reference model's too, or the policy's alone."""
    objective = TrainingObjective.GRPO if has_reference else TrainingObjective.DAPO
    found.values["training_objective"] = str(objective)
    if not has_reference:
        found.notes.append("No divergence from a reference model is in it: it has none, as DAPO.")


def micro_batch(tokens: int, length: int, share: int | None) -> int:
    """The most sequences of full length in a budget of tokens that divide a rank's share."""
    most = max(tokens // length, 1)
    if not share:
        return most
    return max(size for size in range(1, min(most, share) + 1) if share % size == 0)


def of_sections(reading: Reading, sections: tuple[str, ...]) -> frozenset[str]:
    """Options that the training step does not read, by how they begin."""
    return frozenset(name for name in reading.found.options if name.startswith(sections))
