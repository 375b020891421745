"""How far predictions of inference are from measurements."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from planner.validation.columns import MEASURED
from planner.validation.compare import Errors, MemoryVerdicts
from planner.validation.inference.assumed import inference_assumed
from planner.validation.inference.outcome import RATES
from planner.validation.inference.predict import InferencePrediction, inference_ranges
from planner.validation.predict import Range
from planner.validation.runs import Run, Runs

GROUPS = ("source", "engine", "gpu", "mode")
MEMORY = "peak_memory_gib"
# What a row's throughput is judged by: the first that it has; one often derives from another.
THROUGHPUT = ("output_tokens_per_s", "total_tokens_per_s", "request_latency_s", "requests_per_s")


@dataclass(frozen=True, kw_only=True)
class InferenceRow:
    """A run, what is predicted for it, and both compared."""

    run: Run
    prediction: InferencePrediction

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Predicted quantities by name."""
        return inference_ranges(self.prediction)

    def measured(self, quantity: str) -> float | None:
        """A measurement, or None without one."""
        return self.run.number(f"{MEASURED}{quantity}") or None

    def first_measured(self, quantities: Iterable[str]) -> str | None:
        """The first of these quantities that was measured."""
        return next((name for name in quantities if self.measured(name)), None)

    def time_ratio(self, quantity: str) -> float | None:
        """Predicted over measured, rates turned over, or None without either."""
        measured, predicted = self.measured(quantity), self.ranges.get(quantity)
        if measured is None or predicted is None:
            return None
        ratio = predicted.value / measured
        return 1 / ratio if quantity in RATES else ratio

    def held(self, quantity: str) -> bool | None:
        """Whether the measurement lies in the interval."""
        measured, predicted = self.measured(quantity), self.ranges.get(quantity)
        if measured is None or predicted is None:
            return None
        return predicted.low <= measured <= predicted.high

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """The choices that were made for the run, in words; none where nothing is predicted."""
        case = self.prediction.case
        return () if case is None else inference_assumed(self.run, case)

    @property
    def compared(self) -> bool:
        """Whether anything that was measured is predicted."""
        if self.prediction.reason:
            return False
        return self.ran_out is not None or any(map(self.measured, self.ranges))

    @property
    def ran_out(self) -> bool | None:
        """Whether the run ran out of memory; None where the source does not say."""
        return self.run.flag(f"{MEASURED}out_of_memory")


def joined_inference(runs: Runs, predictions: Sequence[InferencePrediction]) -> list[InferenceRow]:
    """Rows with their predictions."""
    return [
        InferenceRow(run=run, prediction=prediction)
        for run, prediction in zip(runs.rows, predictions, strict=True)
    ]


def inference_errors(
    rows: Sequence[InferenceRow], quantities: Sequence[str], group: str
) -> list[Errors]:
    """Errors of the first measured of ``quantities`` by ``source``, ``engine``, ``gpu``, ``mode``.

    Errors of rates are those of the rates, not of times.
    """
    found = []
    for name, members in _grouped(rows, group):
        measured = [row for row in members if row.first_measured(quantities)]
        if measured:
            found.append(_errors(name, measured, quantities))
    return found


def inference_verdicts(rows: Iterable[InferenceRow]) -> MemoryVerdicts:
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


def _errors(name: str, rows: Sequence[InferenceRow], quantities: Sequence[str]) -> Errors:
    ratios, inside = [], []
    for row in rows:
        quantity = row.first_measured(quantities) or ""
        ratio = row.time_ratio(quantity)
        if ratio is not None:
            ratios.append(1 / ratio if quantity in RATES else ratio)
            inside.append(float(row.held(quantity) or 0))
    off = np.asarray(ratios) - 1
    return Errors(
        name=name,
        rows=len(rows),
        predicted=len(ratios),
        mape=float(np.mean(np.abs(off))) if ratios else math.nan,
        median=float(np.median(np.abs(off))) if ratios else math.nan,
        bias=float(np.median(off)) if ratios else math.nan,
        within=float(np.mean(inside)) if ratios else math.nan,
    )


def _grouped(rows: Sequence[InferenceRow], group: str) -> Iterator[tuple[str, list[InferenceRow]]]:
    """Groups by name, the largest first, then all rows together."""
    groups: defaultdict[str, list[InferenceRow]] = defaultdict(list)
    for row in rows:
        groups[_name(row, group)].append(row)
    yield from sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(groups) > 1:
        yield "all", list(rows)


def _name(row: InferenceRow, group: str) -> str:
    run, case = row.run, row.prediction.case
    if group == "engine":
        return case.rule.label if case is not None else run.text("framework")
    return run.text(group) or "not given"
