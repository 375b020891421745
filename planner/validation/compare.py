"""How far predictions are from measurements: errors, coverage, regret, memory verdicts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.arrays import FloatArray
from planner.validation.assumed import assumed
from planner.validation.columns import MEASURED
from planner.validation.predict import Prediction, Range, ranges
from planner.validation.runs import Run, Runs
from planner.validation.tables import framework_rule

GROUPS = ("source", "framework", "gpu", "workload")
# One layout problem: the same model, GPUs, batch and length on the same software.
_PROBLEM = [
    "source",
    "framework",
    "model",
    "num_hidden_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_experts",
    "gpu",
    "num_gpus",
    "precision",
    "global_batch_size",
    "sequence_length",
]
_LAYOUT = [
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "data_parallel",
    "zero_stage",
    "data_parallel_replicas",
    "sequence_parallel",
    "recompute",
    "recompute_num_layers",
    "flash_attention",
    "fp8_attention",
    "micro_batch_size",
]


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run, what is predicted for it, and both as step time and memory.

    Where a source gives throughput only, the ratio of times is that of throughputs turned
    over.
    """

    run: Run
    prediction: Prediction

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Predicted quantities by name."""
        return ranges(self.prediction)

    @cached_property
    def time_ratio(self) -> float | None:
        """Predicted over measured step time, or None without either."""
        for quantity, faster in (
            ("step_time_s", False),
            ("tokens_per_s_per_gpu", True),
            ("tokens_per_s", True),
        ):
            ratio = self._ratio(quantity)
            if ratio is not None:
                return 1 / ratio if faster else ratio
        return None

    @cached_property
    def memory_ratio(self) -> float | None:
        """Predicted over measured peak memory, or None without either."""
        return self._ratio("peak_memory_gib")

    @property
    def ran_out(self) -> bool | None:
        """Whether the run ran out of memory; None where the source does not say."""
        said = self.run.flag(f"{MEASURED}out_of_memory")
        if said:
            return True
        measured = any(
            self.run.number(f"{MEASURED}{quantity}")
            for quantity in ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s")
        )
        return False if measured or said is False else None

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """The choices that were made for the run, in words; none where nothing is predicted."""
        case = self.prediction.case
        return () if case is None else assumed(self.run, case)

    @property
    def compared(self) -> bool:
        """Whether anything that was measured is predicted."""
        if self.prediction.reason:
            return False
        return any(x is not None for x in (self.time_ratio, self.memory_ratio, self.ran_out))

    def within(self, quantities: Iterable[str]) -> bool | None:
        """Whether the first of the measured quantities lies in its interval."""
        for quantity in quantities:
            measured, predicted = self._measured(quantity), self.ranges.get(quantity)
            if measured and predicted is not None:
                return predicted.low <= measured <= predicted.high
        return None

    def _measured(self, quantity: str) -> float | None:
        return self.run.number(f"{MEASURED}{quantity}") or None

    def _ratio(self, quantity: str) -> float | None:
        measured, predicted = self._measured(quantity), self.ranges.get(quantity)
        return None if not measured or predicted is None else predicted.value / measured


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of one group of rows, as fractions; NaN where nothing can be said.

    ``rows`` counts the rows with a measurement, ``predicted`` those of them with a
    prediction. ``bias`` is the median of predicted / measured - 1. ``regret`` is the mean
    over ``problems``.
    """

    name: str
    rows: int
    predicted: int
    mape: float
    median: float
    bias: float
    within: float
    regret: float = float("nan")
    problems: int = 0


@dataclass(frozen=True, kw_only=True)
class MemoryVerdicts:
    """Runs that ran out and runs that ran, and how many of each are predicted wrongly."""

    ran_out: int
    said_to_fit: int
    ran: int
    said_to_run_out: int


def joined(runs: Runs, predictions: Sequence[Prediction]) -> list[Row]:
    """Rows with their predictions."""
    return [
        Row(run=run, prediction=prediction)
        for run, prediction in zip(runs.rows, predictions, strict=True)
    ]


def time_errors(rows: Sequence[Row], group: str) -> list[Errors]:
    """Errors of step time by ``source``, ``framework``, ``gpu`` or ``workload``."""
    times = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s")
    return [
        _errors(name, members, times, lambda row: row.time_ratio, with_regret=True)
        for name, members in _grouped(rows, group)
        if _any_measured(members, times)
    ]


def memory_errors(rows: Sequence[Row], group: str) -> list[Errors]:
    """Errors of peak memory by ``source``, ``framework``, ``gpu`` or ``workload``."""
    memory = ("peak_memory_gib",)
    return [
        _errors(name, members, memory, lambda row: row.memory_ratio)
        for name, members in _grouped(rows, group)
        if _any_measured(members, memory)
    ]


def memory_verdicts(rows: Iterable[Row]) -> MemoryVerdicts:
    """How often a run's ending, out of memory or not, is predicted wrongly."""
    known = [row for row in rows if row.ranges and row.ran_out is not None]
    out = [row.prediction.fits for row in known if row.ran_out]
    ran = [row.prediction.fits for row in known if not row.ran_out]
    return MemoryVerdicts(
        ran_out=len(out),
        said_to_fit=sum(out),
        ran=len(ran),
        said_to_run_out=len(ran) - sum(ran),
    )


def layout_problems(rows: Iterable[Row]) -> list[list[Row]]:
    """Runs that differ in their layout alone, by problem, two layouts or more in each."""
    problems: defaultdict[Hashable, list[Row]] = defaultdict(list)
    for row in rows:
        if row.time_ratio is not None:
            problems[tuple(row.run.word(column) for column in _PROBLEM)].append(row)
    return [group for group in problems.values() if len({_layout(row) for row in group}) > 1]


def regrets(rows: Iterable[Row]) -> list[float]:
    """Per problem with two layouts or more: measured time of our pick over the best, less 1."""
    return [_regret(group) for group in layout_problems(rows)]


def _regret(group: Sequence[Row]) -> float:
    # With equal batches, time per token orders layouts as step time does.
    predicted = [1 / row.prediction.tokens_per_second for row in group]
    measured = [p / _ratio_of(row) for p, row in zip(predicted, group, strict=True)]
    pick = min(range(len(group)), key=lambda index: (predicted[index], group[index].run.line))
    return measured[pick] / min(measured) - 1


def _ratio_of(row: Row) -> float:
    return row.time_ratio if row.time_ratio is not None else float("nan")


def _layout(row: Row) -> tuple[str, ...]:
    return tuple(row.run.word(column) for column in _LAYOUT)


def _grouped(rows: Sequence[Row], group: str) -> Iterator[tuple[str, list[Row]]]:
    """Groups by name, the largest first, then all rows together."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[_name(row.run, group)].append(row)
    yield from sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(groups) > 1:
        yield "all", list(rows)


def _name(run: Run, group: str) -> str:
    if group == "framework":
        return framework_rule(run.text("framework")).label
    return run.text(group) or "not given"


def _any_measured(rows: Iterable[Row], quantities: Sequence[str]) -> bool:
    return any(_is_measured(row.run, quantities) for row in rows)


def _is_measured(run: Run, quantities: Iterable[str]) -> bool:
    return any(run.number(f"{MEASURED}{quantity}") for quantity in quantities)


def _errors(
    name: str,
    rows: Sequence[Row],
    quantities: Sequence[str],
    ratio: Callable[[Row], float | None],
    with_regret: bool = False,
) -> Errors:
    ratios = np.asarray([value for row in rows if (value := ratio(row)) is not None])
    inside = [held for row in rows if (held := row.within(quantities)) is not None]
    found = regrets(rows) if with_regret else []
    return Errors(
        name=name,
        rows=sum(_is_measured(row.run, quantities) for row in rows),
        predicted=len(ratios),
        mape=_mean(np.abs(ratios - 1)),
        median=_median(np.abs(ratios - 1)),
        bias=_median(ratios - 1),
        within=_mean(np.asarray(inside, dtype=np.float64)),
        regret=_mean(np.asarray(found)),
        problems=len(found),
    )


def _mean(values: FloatArray) -> float:
    return float(np.mean(values)) if values.size else float("nan")


def _median(values: FloatArray) -> float:
    return float(np.median(values)) if values.size else float("nan")
