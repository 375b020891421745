"""How layouts of training are told in short."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.cells import number_in
from planner.question.terms import columns_about, terms_of
from planner.specs.model import ModelSpec

_PARAMETERS = terms_of("train", "parameter")
_BATCHES = ("micro_batch_size", "global_batch_size")
DEGREES = tuple(
    name
    for name, term in terms_of("train", "parameter", "derived").items()
    if term.short and term.type == "count" and name not in _BATCHES
)
"""Tensor, context, pipeline, virtual pipeline, expert and data parallel."""

FOLLOWING = {"pipeline_schedule": ("one_forward_one_backward", "interleaved")}
"""Values that other parameters say too."""

TOLD = columns_about("trained")


def brief(row: Mapping[str, object]) -> str:
    """``tp4 pp4 vp20 dp128 mbs4 zero1, recompute full``: the degrees, and what is not plain.

    Rows of older versions lack parameters, which then are plain.
    """
    known = terms_of("train", "parameter", "derived")
    words = [
        f"{known[name].short}{row[name]}"
        for name in DEGREES
        if row.get(name) and number_in(row, name) > 1
    ]
    words.append(f"{known['micro_batch_size'].short}{row['micro_batch_size']}")
    words += [f"zero{row['zero_stage']}"] if row["zero_stage"] else []
    others = [
        f"{name} {row[name]}"
        for name, term in _PARAMETERS.items()
        if not term.short and not term.option and term.type != "flag"
        if row.get(name, term.plain) not in (term.plain, *FOLLOWING.get(name, ()))
    ]
    return ", ".join([" ".join(words), *others])


def beyond_positions(model: ModelSpec, sequence_length: int) -> list[str]:
    """That sequences are longer than those a model's computed positions were made for."""
    known = model.max_position_embeddings
    if known is None or sequence_length <= known:
        return []
    return [
        f"Sequences of {sequence_length:,} tokens are beyond the {known:,} positions that "
        f"{model.name} was trained with."
    ]
