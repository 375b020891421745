"""Predictions for a table of runs: one vectorized pass per model, GPU, cluster and framework."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.configurations.rules import RULES
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.estimators.estimate import REJECTIONS, Estimate, evaluate, usable_memory
from planner.units import GIB
from planner.validation.cases import Case, MemoryKind, case_of
from planner.validation.intervals import basis, interval
from planner.validation.layouts import Layout
from planner.validation.library import Library
from planner.validation.models import NotPredicted
from planner.validation.runs import Run, Runs

# Of layouts a source leaves open, those that are fast are the likelier: it published its best.
# A layout 10 % slower than another counts half as much.
PREFERENCE = 7.0

_OUTSIDE: dict[MemoryKind, tuple[str, ...]] = {
    MemoryKind.DEVICE: (),
    MemoryKind.RESERVED: ("reserved", "communication_buffers"),
    MemoryKind.ALLOCATED: ("reserved", "communication_buffers", "fragmentation"),
}
# What makes a row's numbers contradict each other; other rules its framework need not share.
_IMPOSSIBLE = ("gpu_count", "precision")

Progress = Callable[[int], None]


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What is predicted for one run; ``reason`` says why nothing is, else it is empty.

    ``memory`` is of the kind the run's source reports; ``fits`` is about the whole device.
    """

    case: Case | None = None
    step_time: float = float("nan")
    tokens_per_second: float = float("nan")
    memory: float = float("nan")
    device_memory: float = float("nan")
    fits: bool = False
    basis: str = ""
    reason: str = ""

    @property
    def num_gpus(self) -> int:
        """GPUs of the run."""
        return self.case.layouts[0].num_gpus if self.case is not None else 0


@dataclass(frozen=True, kw_only=True)
class Range:
    """A predicted value with the ends of its 90 % interval."""

    value: float
    low: float
    high: float


def predict(
    runs: Runs, library: Library | None = None, progress: Progress | None = None
) -> list[Prediction]:
    """A prediction for every row, in the order of the rows."""
    shelf = library or Library()
    found: list[Prediction] = [_placed(run, shelf) for run in runs.rows]
    groups: defaultdict[Hashable, list[int]] = defaultdict(list)
    for index, prediction in enumerate(found):
        if prediction.case is not None:
            groups[prediction.case.group].append(index)
    done = len(found) - sum(len(indices) for indices in groups.values())
    for indices in groups.values():
        cases = [case for index in indices if (case := found[index].case) is not None]
        for index, prediction in zip(indices, predict_group(cases), strict=True):
            found[index] = prediction
        done += len(indices)
        if progress is not None:
            progress(done)
    return found


def predict_group(cases: Sequence[Case]) -> Iterable[Prediction]:
    """Predictions for cases of one group, in their order."""
    every = [layout for case in cases for layout in case.layouts]
    estimate = evaluate(cases[0].setting, _configurations(every))
    table = _table(estimate, len(every))
    start = 0
    for case in cases:
        stop = start + len(case.layouts)
        rows = {name: values[start:stop] for name, values in table.items()}
        yield _summed_up(case, rows)
        start = stop


def ranges(prediction: Prediction) -> dict[str, Range]:
    """The predicted quantities by name, each with its interval, in the units of the tables."""
    case = prediction.case
    if case is None or prediction.reason:
        return {}
    slow = interval("step_time", case)
    fast = (1 / slow[1], 1 / slow[0] if slow[0] else float("inf"))
    much = interval("peak_memory", case)
    capacity = usable_memory(case.gpu)
    out = [float(prediction.device_memory * factor > capacity) for factor in (1.0, *much)]
    return {
        "step_time_s": _range(prediction.step_time, slow),
        "tokens_per_s": _range(prediction.tokens_per_second, fast),
        "tokens_per_s_per_gpu": _range(prediction.tokens_per_second / prediction.num_gpus, fast),
        "peak_memory_gib": _range(prediction.memory / GIB, much),
        "out_of_memory": Range(value=float(not prediction.fits), low=out[1], high=out[2]),
    }


def _range(value: float, factors: tuple[float, float]) -> Range:
    return Range(value=value, low=value * factors[0], high=value * factors[1])


def _placed(run: Run, library: Library) -> Prediction:
    try:
        return Prediction(case=case_of(run, library))
    except NotPredicted as reason:
        return Prediction(reason=str(reason))


def _configurations(every: Sequence[Layout]) -> TrainingConfigurations:
    return TrainingConfigurations.of(
        **{name: [getattr(layout, name) for layout in every] for name in NAMES}
    )


def _table(estimate: Estimate, size: int) -> dict[str, Any]:
    """What is needed of an estimate, as flat columns."""
    fullest = estimate.memory.fullest
    columns: dict[str, Any] = {
        "step_time": estimate.step_time,
        "tokens_per_second": estimate.tokens_per_second,
        "device": estimate.peak_memory,
        "rejected_by": estimate.rejected_by,
    }
    for kind, parts in _OUTSIDE.items():
        columns[kind] = estimate.peak_memory - sum(getattr(fullest, part) for part in parts)
    return {name: np.broadcast_to(values, (size,)) for name, values in columns.items()}


def _summed_up(case: Case, rows: dict[str, Any]) -> Prediction:
    """One prediction from all plausible layouts of a case: their weighted geometric mean."""
    usable, reason = _usable(rows)
    if reason:
        return Prediction(case=case, reason=reason)
    speed = rows["tokens_per_second"][usable]
    weights = (speed / speed.max()) ** PREFERENCE
    weights /= weights.sum()

    def mean(name: str) -> float:
        return float(np.exp(np.sum(weights * np.log(rows[name][usable]))))

    device = mean("device")
    return Prediction(
        case=case,
        step_time=mean("step_time"),
        tokens_per_second=mean("tokens_per_second"),
        memory=mean(case.memory_kind),
        device_memory=device,
        fits=device <= usable_memory(case.gpu),
        basis=basis(case),
    )


def _usable(rows: dict[str, Any]) -> tuple[Any, str]:
    """The layouts to believe in: those that fit, else those that are possible, else any."""
    code, time, device = rows["rejected_by"], rows["step_time"], rows["device"]
    finite: Any = np.isfinite(time) & (time > 0) & np.isfinite(device) & (device > 0)
    impossible = [REJECTIONS.index(name) + 1 for name in _IMPOSSIBLE]
    possible = finite & ~np.isin(code, impossible)
    out_of_memory = code == len(REJECTIONS)
    for choice in (possible & (code == 0), possible & out_of_memory, possible):
        if choice.any():
            return choice, ""
    first = int(code[0])
    if 0 < first <= len(RULES):
        return possible, f"impossible layout: {RULES[first - 1].description}"
    return possible, "the numbers of the row are beyond what can be computed"
