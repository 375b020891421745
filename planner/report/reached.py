"""What a plan reaches and costs, by name, out of the columns of its row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from planner.report.electricity import told_columns
from planner.report.sure import fits_words, says_nothing
from planner.report.told import Ends, label, told
from planner.workloads.base import Wording

_MEMORY = "peak_memory_gib"
# What a prompt that is embedded or scored has none of: its answer is its first token.
_OF_ANSWERS = (
    *("time_per_output_token_s", "output_tokens_per_s_per_gpu", "tokens_per_s_per_user"),
    "cost_per_million_tokens_usd",
)
_OF_PROMPTS = "cost_per_million_input_tokens_usd"


def told_names(
    wording: Wording,
    goals: Sequence[str],
    limited: Iterable[str],
    row: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> list[str]:
    """The columns to tell of a row: the workload's own, those of limits, the first of ``goals``.

    ``asked`` has what is the same in all rows: the tokens of an answer.
    """
    goal = [name for name in goals[:1] if name != "num_gpus"]
    told_of = [*(wording.told or goals), *limited, *told_columns(row), *goal]
    if asked.get("output_tokens") == 1:
        told_of = [*(name for name in told_of if name not in _OF_ANSWERS), _OF_PROMPTS]
    return [*dict.fromkeys(name for name in told_of if name in row)]


def reached_pairs(
    names: Iterable[str], row: Mapping[str, Any], ends: Mapping[str, Ends], capacity: float
) -> dict[str, str]:
    """Columns of a row in words with the ends of their intervals, and how much memory of the
    ``capacity`` [GiB] it takes.
    """
    pairs = {
        label(name): told(name, row[name], ends.get(name))
        for name in names
        if not says_nothing(name, row)
    }
    if _MEMORY in row:
        within = told(_MEMORY, row[_MEMORY]).removesuffix(" GiB")
        words = f"{within} of {capacity:.1f} GiB"
        pairs[label(_MEMORY)] = ", ".join(filter(None, (words, fits_words(row))))
    return pairs
