"""How far predictions are from measurements: errors, coverage, regret, memory verdicts."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.confidence.intervals import LEVEL, Rule
from planner.errors import did_you_mean
from planner.logs.reading import OUT_OF_MEMORY
from planner.question.terms import terms_about
from planner.specs.model import ModelSpec
from planner.validation.kinds import Compared, Kind, kind_of, ranges
from planner.validation.library import OF_COLUMNS, spelled
from planner.validation.prediction import RATES, Case, Prediction, Range
from planner.validation.runs import MEASURED, Run, Runs

UNKNOWN = "is not known"
"""What is said of software that no rule names."""
_OTHER = "other"


def assumed(run: Run, case: Case, kind: Kind) -> tuple[str, ...]:
    """Every choice that was made for a run, one text each."""
    return (
        *_software(run.text("framework"), case.software, kind.labels()),
        *_model(run.text("model"), case.model),
        *kind.choices(run, case),
    )


def _software(text: str, rule: Rule, labels: Iterable[str]) -> Iterator[str]:
    """Which profile stands for the software of a run, unless it is plainly its own."""
    if rule.label == _OTHER:
        known = {name.lower(): name for name in labels if name != _OTHER}
        what = f"framework {text!r} {UNKNOWN}" if text else "framework is not given"
        yield f"{what}: {rule.profile} stands in.{did_you_mean(text, known)}"
    elif rule.nearest:
        yield f"framework {rule.label}: {rule.profile} stands in as the closest profile"
    elif not text.lower().startswith(re.split(r"[-.]", spelled(rule.label))[0]):
        yield f"framework {text!r} is taken for {rule.label}"


def _model(name: str, model: ModelSpec) -> Iterator[str]:
    """Which model stands for the name of a run, unless it is its own."""
    if model.source == OF_COLUMNS:
        yield f"model {name!r} is made of the row's columns"
    elif spelled(name) not in map(spelled, (model.name, *model.aliases)):
        yield f"model {name!r} is taken for {model.name}"


# One layout problem: the same model, GPUs, batch and length on the same software.
_PROBLEM = (
    "source", *terms_about("problem"), "num_hidden_layers", "hidden_size", "intermediate_size",
    "num_attention_heads", "num_experts",
)  # fmt: skip
_LAYOUT = terms_about("layout", "train")


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
    found = []
    for group in layout_problems(rows, compared):
        # With equal batches, time per token orders layouts as step time does.
        predicted = [1 / row.prediction.values["tokens_per_s"] for row in group]
        ratios = [row.ratio(compared) or float("nan") for row in group]
        measured = [time / ratio for time, ratio in zip(predicted, ratios, strict=True)]
        *_, pick = min(zip(predicted, (row.run.line for row in group), measured, strict=True))
        found.append(pick / min(measured) - 1)
    return found


def _words(row: Row, columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(row.run.word(column) for column in columns)


@record(kw_only=True)
class Row:
    """A run, what is predicted for it, and both compared."""

    run: Run
    prediction: Prediction
    kind: Kind

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Predicted quantities by name."""
        return ranges(self.prediction, self.kind)

    @cached_property
    def assumed(self) -> tuple[str, ...]:
        """The choices that were made for the run, in words; none where nothing is predicted."""
        case = self.prediction.case
        return () if case is None else assumed(self.run, case, self.kind)

    @property
    def software(self) -> str:
        """The framework or engine, under its usual name."""
        return self.kind.label(self.run, self.prediction.case)

    @property
    def compared(self) -> bool:
        """Whether anything that was measured is predicted."""
        if self.prediction.reason:
            return False
        return self.ran_out is not None or not self.measured.keys().isdisjoint(self.ranges)

    @property
    def ran_out(self) -> bool | None:
        """Whether the run ran out of memory; None where the source does not say."""
        said = self.run.flag(f"{MEASURED}{OUT_OF_MEMORY}")
        ran = self.first_measured(self.kind.proofs) is not None
        return False if ran and not said else said

    @cached_property
    def measured(self) -> dict[str, float]:
        """The measurements of quantities that can be predicted, by name."""
        names = (*self.kind.interval_names, OUT_OF_MEMORY)
        found = {name: self.run.number(f"{MEASURED}{name}") for name in names}
        return {name: value for name, value in found.items() if value}

    @cached_property
    def noisy(self) -> bool:
        """Whether its source says that its speeds tell nothing."""
        return bool(self.run.flag("noisy"))

    def counts(self, compared: Compared) -> bool:
        """Whether it tells anything of a comparison: noise nothing of speed."""
        return not self.prediction.impossible and (compared.of_memory or not self.noisy)

    def first_measured(self, quantities: Iterable[str]) -> str | None:
        """The first of these quantities that was measured."""
        return next((name for name in quantities if name in self.measured), None)

    def ratio(self, compared: Compared, *, as_time: bool = True) -> float | None:
        """Predicted over measured, or None without either; ``as_time``: rates turned over."""
        quantity = self.first_measured(compared.names) or ""
        measured, predicted = self.measured.get(quantity), self.ranges.get(quantity)
        if measured is None or predicted is None or not self.counts(compared):
            return None
        ratio = predicted.value / measured
        return 1 / ratio if as_time and quantity in RATES else ratio

    def held(self, compared: Compared) -> bool | None:
        """Whether the measurement lies in the interval, or None without either."""
        quantity = self.first_measured(compared.names) or ""
        measured, predicted = self.measured.get(quantity), self.ranges.get(quantity)
        if measured is None or predicted is None or not self.counts(compared):
            return None
        return predicted.low <= measured <= predicted.high

    def interval_score(self, compared: Compared) -> float | None:
        """The interval score [1]_ of the logarithm, or None without either.

        The width of the interval, and 2 / alpha times what the measurement is beyond it.

        References
        ----------
        .. [1] T. Gneiting and A. Raftery, "Strictly proper scoring rules, prediction, and
           estimation," 2007, J. Am. Stat. Assoc. 102, section 6.2.
        """
        quantity = self.first_measured(compared.names) or ""
        if self.held(compared) is None or not self.ranges[quantity].low > 0:
            return None
        measured, found = math.log(self.measured[quantity]), self.ranges[quantity]
        low, high = math.log(found.low), math.log(found.high)
        beyond = max(low - measured, 0.0) + max(measured - high, 0.0)
        return high - low + 2 / (1 - LEVEL) * beyond


@record(kw_only=True)
class Errors:
    """Errors of one group of rows, as fractions; NaN where nothing can be said.

    ``rows`` counts the rows with a measurement, ``predicted`` those of them with a
    prediction. ``bias`` is the median of predicted / measured - 1, ``score`` the mean interval
    score. ``regret`` is the mean over ``problems``.
    """

    name: str
    rows: int
    predicted: int
    mape: float
    median: float
    bias: float
    within: float
    score: float = float("nan")
    regret: float = float("nan")
    problems: int = 0


@record(kw_only=True)
class MemoryVerdicts:
    """Runs that ran out and runs that ran, and how many of each are predicted wrongly."""

    ran_out: int
    said_to_fit: int
    ran: int
    said_to_run_out: int


def joined(runs: Runs, predictions: Sequence[Prediction]) -> list[Row]:
    """Rows with their predictions."""
    kind = kind_of(runs)
    return [
        Row(run=run, prediction=prediction, kind=kind)
        for run, prediction in zip(runs.rows, predictions, strict=True)
    ]


def errors(rows: Sequence[Row], compared: Compared, group: str) -> list[Errors]:
    """Errors by ``source``, ``gpu``, a column or the software: the largest group first, then all.

    Groups without a measurement are left out, and so are rows whose layout cannot be or whose
    speed is noise.
    """
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.first_measured(compared.names) is not None and row.counts(compared):
            groups[_name(row, group)].append(row)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) > 1:
        ordered.append(("all", [row for members in groups.values() for row in members]))
    return [group_errors(name, members, compared) for name, members in ordered]


def group_errors(name: str, rows: Sequence[Row], compared: Compared) -> Errors:
    """Errors of rows that belong together, under a name."""
    found = [row.ratio(compared, as_time=compared.as_time) for row in rows]
    ratios = np.asarray([ratio for ratio in found if ratio is not None])
    inside = [held for row in rows if (held := row.held(compared)) is not None]
    scores = [one for row in rows if (one := row.interval_score(compared)) is not None]
    over = regrets(rows, compared) if compared.with_regret else []
    return Errors(
        name=name,
        rows=len(rows),
        predicted=len(ratios),
        mape=_mean(np.abs(ratios - 1)),
        median=_median(np.abs(ratios - 1)),
        bias=_median(ratios - 1),
        within=_mean(np.asarray(inside, dtype=np.float64)),
        score=_mean(np.asarray(scores)),
        regret=_mean(np.asarray(over)),
        problems=len(over),
    )


def memory_verdicts(rows: Iterable[Row]) -> MemoryVerdicts:
    """How often a run's ending, out of memory or not, is predicted wrongly."""
    known = [row for row in rows if row.ranges and row.ran_out is not None]
    known = [row for row in known if not row.prediction.impossible]
    out = [row.prediction.fits for row in known if row.ran_out]
    ran = [row.prediction.fits for row in known if not row.ran_out]
    return MemoryVerdicts(
        ran_out=len(out),
        said_to_fit=sum(out),
        ran=len(ran),
        said_to_run_out=len(ran) - sum(ran),
    )


def _name(row: Row, group: str) -> str:
    return row.software if group == row.kind.software else row.run.text(group) or "not given"


def _mean(values: FloatArray) -> float:
    return float(np.mean(values)) if values.size else float("nan")


def _median(values: FloatArray) -> float:
    return float(np.median(values)) if values.size else float("nan")
