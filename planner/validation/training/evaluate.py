"""What is predicted for cases of training: one vectorized pass over all their layouts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray
from planner.base.enums import (
    Recompute,
)
from planner.base.units import GIB
from planner.confidence.fits import default_fit_confidence
from planner.confidence.intervals import TRAINING_TABLES
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.configurations.training_rules import RULES
from planner.estimators.training.estimate import REJECTIONS, Estimate, evaluate
from planner.validation.columns import MemoryKind
from planner.validation.prediction import MEMORY, Prediction
from planner.validation.training.cases import TrainingCase

# Of layouts a source leaves open, those that are fast are the likelier: it published its best.
# A layout 10 % slower than another counts half as much.
PREFERENCE = 7.0

_OUTSIDE: dict[MemoryKind, tuple[str, ...]] = {
    MemoryKind.DEVICE: (),
    MemoryKind.RESERVED: ("reserved", "communication_buffers"),
    MemoryKind.ALLOCATED: ("reserved", "communication_buffers", "fragmentation"),
}
LIKELY_SHARE = 0.945
"""Layouts that are predicted to fill more of the memory are believed in only where all do."""

# What makes a row's numbers contradict each other; other rules its framework need not share.
_IMPOSSIBLE = ("gpu_count", "precision", "num_hidden_layers", "pipeline_layout")


def predict_training_group(cases: Sequence[TrainingCase]) -> Iterable[Prediction]:
    """Predictions for cases of one group, in their order."""
    every = [layout for case in cases for layout in case.layouts]
    configurations = TrainingConfigurations.of(
        **{name: [getattr(layout, name) for layout in every] for name in NAMES}
    )
    estimate = evaluate(cases[0].setting, configurations, usable_share=LIKELY_SHARE)
    table = _Columns.of(estimate, len(every))
    start = 0
    for case in cases:
        stop = start + len(case.layouts)
        yield _summed_up(case, table.rows(slice(start, stop)))
        start = stop


class _Columns(NamedTuple):
    """What is needed of an estimate, a row for each layout; ``memory`` as each kind sees it."""

    step_time: FloatArray
    tokens_per_second: FloatArray
    rejected_by: CodeArray
    repeats_all: BoolArray
    memory: Mapping[MemoryKind, FloatArray]

    @classmethod
    def of(cls, estimate: Estimate, size: int) -> _Columns:
        """The columns of an estimate of so many layouts."""
        fullest, peak, shape = estimate.memory.fullest, estimate.peak_memory, (size,)
        return cls(
            step_time=np.broadcast_to(estimate.step_time, shape),
            tokens_per_second=np.broadcast_to(estimate.tokens_per_second, shape),
            rejected_by=np.broadcast_to(estimate.rejected_by, shape),
            repeats_all=np.broadcast_to(
                np.equal(estimate.configurations.recompute, Recompute.FULL), shape
            ),
            memory={
                kind: np.broadcast_to(peak - sum(getattr(fullest, part) for part in parts), shape)
                for kind, parts in _OUTSIDE.items()
            },
        )

    def rows(self, part: slice) -> _Columns:
        """Some of the rows."""
        return _Columns(
            step_time=self.step_time[part],
            tokens_per_second=self.tokens_per_second[part],
            rejected_by=self.rejected_by[part],
            repeats_all=self.repeats_all[part],
            memory={kind: values[part] for kind, values in self.memory.items()},
        )


def _summed_up(case: TrainingCase, rows: _Columns) -> Prediction:
    """One prediction from all plausible layouts of a case: their weighted geometric mean."""
    usable, reason = _usable(rows)
    if reason:
        return Prediction(case=case, reason=reason)
    speed = rows.tokens_per_second[usable]
    weights = (speed / speed.max()) ** PREFERENCE
    weights /= weights.sum()

    def mean(values: FloatArray) -> float:
        return float(np.exp(np.sum(weights * np.log(values[usable]))))

    device, capacity = mean(rows.memory[MemoryKind.DEVICE]), case.gpu.allocatable_memory
    tokens = mean(rows.tokens_per_second)
    chance = float(case.memory_errors.chance(predicted=device, usable=capacity))
    return Prediction(
        case=case,
        values={
            "step_time_s": mean(rows.step_time),
            "tokens_per_s": tokens,
            "tokens_per_s_per_gpu": tokens / case.num_gpus,
            MEMORY: mean(rows.memory[case.memory_kind]) / GIB,
        },
        device_memory=device,
        needed_memory=device,
        capacity=capacity,
        fit_probability=chance,
        fits=chance >= default_fit_confidence(TRAINING_TABLES),
    )


def _usable(rows: _Columns) -> tuple[BoolArray, str]:
    """The layouts to believe in: those that fit, else those that are possible, else any.

    Whole layers are repeated where nothing less would do, as Megatron Bridge's guide to activation
    recomputation has it: full where selective recomputation still does not fit.
    """
    code, time, device = rows.rejected_by, rows.step_time, rows.memory[MemoryKind.DEVICE]
    finite = np.isfinite(time) & (time > 0) & np.isfinite(device) & (device > 0)
    impossible = [REJECTIONS.index(name) + 1 for name in _IMPOSSIBLE]
    possible = finite & ~np.isin(code, impossible)
    out_of_memory = code == len(REJECTIONS)
    for choice in (possible & (code == 0), possible & out_of_memory, possible):
        if choice.any():
            less = choice & ~rows.repeats_all
            return less if less.any() else choice, ""
    first = int(code[0])
    if 0 < first <= len(RULES):
        return possible, f"impossible layout: {RULES[first - 1].description}"
    return possible, "the numbers of the row are beyond what can be computed"
