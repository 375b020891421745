"""What a choice among the layouts of one problem costs, where a source ran several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.validation.compare import Row
    from planner.validation.kinds import Compared

# One layout problem: the same model, GPUs, batch and length on the same software.
_PROBLEM = (
    "source", "framework", "model", "num_hidden_layers", "hidden_size", "intermediate_size",
    "num_attention_heads", "num_experts", "gpu", "num_gpus", "precision", "global_batch_size",
    "sequence_length",
)  # fmt: skip
_LAYOUT = (
    "tensor_parallel", "pipeline_parallel", "virtual_pipeline", "context_parallel",
    "expert_parallel", "data_parallel", "zero_stage", "data_parallel_replicas",
    "sequence_parallel", "recompute", "recompute_num_layers", "flash_attention", "fp8_attention",
    "micro_batch_size",
)  # fmt: skip


def layout_problems(rows: Iterable[Row], compared: Compared) -> list[list[Row]]:
    """Runs that differ in their layout alone, by problem, two layouts or more in each."""
    problems: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        if row.ratio(compared) is not None:
            problems[_words(row, _PROBLEM)].append(row)
    return [
        group for group in problems.values() if len({_words(row, _LAYOUT) for row in group}) > 1
    ]


def regrets(rows: Iterable[Row], compared: Compared) -> list[float]:
    """Per problem with two layouts or more: measured time of our pick over the best, less 1."""
    return [_regret(group, compared) for group in layout_problems(rows, compared)]


def _regret(group: Sequence[Row], compared: Compared) -> float:
    # With equal batches, time per token orders layouts as step time does.
    predicted = [1 / row.prediction.values["tokens_per_s"] for row in group]
    ratios = [row.ratio(compared) or float("nan") for row in group]
    measured = [time / ratio for time, ratio in zip(predicted, ratios, strict=True)]
    pick = min(range(len(group)), key=lambda index: (predicted[index], group[index].run.line))
    return measured[pick] / min(measured) - 1


def _words(row: Row, columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(row.run.word(column) for column in columns)
