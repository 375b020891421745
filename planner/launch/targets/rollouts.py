"""What programs that train on generated answers say alike: sequences, passes, micro-batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from planner.base.training_names import TrainingObjective
from planner.launch.imported import SPLITS
from planner.launch.option_table import VALUE, OptionTable, Role
from planner.launch.understood import Found, Gathered, Reading, require_split
from planner.question.terms import terms_about


def with_words(reading: Reading) -> Reading:
    """The same with words of a command that no parser of ours knows."""
    return replace(reading, found=worded(reading.found))


def worded(found: Found) -> Found:
    """A command whose words that no parser of ours knows are options: the last of a name counts."""
    words = {one.option: one for one in found.unknown}
    return replace(found, options={**words, **found.options}, unknown=())


_DEGREES = {*terms_about("split", "train"), "expert_tensor_parallel"}
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
    """The nearest profile of FSDP: that of plain FSDP splits no tensors, tokens or experts."""
    if values["adapter"] != "none":
        return "HF Trainer FSDP"
    is_split = any(values.get(name, 1) != 1 for name in terms_about("collective"))
    return "NeMo AutoModel" if is_split else "FSDP"


def put_plain(found: Gathered, precision: str = "bf16") -> None:
    """What an update computes in where its file names no adapter: all weights, no other heads."""
    found.put("precision", precision)
    found.put("mtp_num_layers", 0)
    found.put("adapter", "none")


def put_lora(found: Gathered, rank: int) -> None:
    """Low-rank adapters of every matrix of a layer."""
    found.put("adapter", "lora")
    found.put("lora_rank", rank)
    found.put("lora_targets", "all_linear")


def put_megatron_split(reading: Reading, found: Gathered, section: str) -> None:
    """The degrees that Megatron-Core splits by, as a section of a file calls them as it does."""
    for row in OptionTable.load("megatron-bridge").rows:
        key = row.option.rpartition(".")[2]
        if row.role is Role.IS and row.parameter in _DEGREES and VALUE in row.text:
            found.put(row.parameter, number(reading, f"{section}{key}"))
    for term in SPLITS[:3]:
        found.values.setdefault(term, 1)


def require_ranks(reading: Reading, found: Gathered, num_gpus: int) -> int:
    """GPUs of a copy of the model; their number must be a multiple of it.

    Raises
    ------
    LaunchError
        It is not.
    """
    sizes = {name: int(found.values[name]) for name in SPLITS[:3]}
    require_split(reading, num_gpus, **sizes)
    return prod(sizes.values())


def put_objective(found: Gathered, has_reference: bool) -> None:
    """The passes beside the update: a reference model's too, or the policy's alone."""
    objective = TrainingObjective.GRPO if has_reference else TrainingObjective.DAPO
    found.values["training_objective"] = str(objective)
    if not has_reference:
        found.notes.append("No divergence from a reference model is in it: it has none, as DAPO.")


def put_token_budget(found: Gathered, tokens: int, share: int | None) -> None:
    """Micro-batches of so many tokens: the most sequences of full length that they hold.

    They divide a rank's ``share`` of the sequences, where that is known.
    """
    most = max(tokens // int(found.values["sequence_length"]), 1)
    sizes = range(1, min(most, share) + 1) if share else (most,)
    size = max(size for size in sizes if not share or share % size == 0)
    found.values["micro_batch_size"] = size
    found.notes.append(f"Micro-batches of up to {tokens:,} tokens: taken as {size} of full length.")


def of_sections(reading: Reading, sections: tuple[str, ...]) -> frozenset[str]:
    """Options that the training step does not read, by how they begin."""
    return frozenset(name for name in reading.found.options if name.startswith(sections))
