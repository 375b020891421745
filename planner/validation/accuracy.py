"""How rows become cases; how far predictions are from measurements: errors, coverage, regret."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.confidence.evidence import evidence_of, unmeasured_release, with_missing
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    LEVEL,
    MAX_CONFIDENCE,
    TRAINING_TABLES,
    ErrorTables,
    Rule,
    interval_of,
)
from planner.confidence.profile_rules import engine_labels, framework_labels, framework_rule
from planner.confidence.rl import RL_TABLES
from planner.errors import did_you_mean
from planner.logs.log_reader import OUT_OF_MEMORY
from planner.question.names import FRAMEWORK
from planner.question.terms import terms_about
from planner.specs.file_cache import snapshot_files
from planner.specs.model import ModelSpec
from planner.validation.inference.cases import impossible_layouts, inference_case, inference_choices
from planner.validation.inference.evaluate import predict_inference_group
from planner.validation.rl import impossible_steps, predict_rl_group, rl_case, rl_choices
from planner.validation.run_tables import (
    MEASURED,
    MEMORY,
    RATES,
    Case,
    Prediction,
    Range,
    Run,
    Runs,
    TableKind,
)
from planner.validation.spec_library import OF_COLUMNS, Library, NotPredicted, spelled
from planner.validation.training.cases import (
    impossible_training_layouts,
    predict_training_group,
    training_case,
    training_choices,
)


@record(kw_only=True)
class ComparedQuantity:
    """A quantity that is compared: the first of ``names`` that a row measured.

    ``interval`` names the errors behind its intervals, ``calibration`` the column of the runs that
    parameters were fitted to, ``groups`` the columns that errors are grouped by. ``as_time``: rates
    are inverted. ``with_regret``: the time of the layout that would be picked is shown.
    """

    title: str
    names: tuple[str, ...]
    interval: str
    groups: tuple[str, ...]
    calibration: str = "calibration"
    as_time: bool = False
    with_regret: bool = False

    @property
    def of_memory(self) -> bool:
        """Whether memory is compared, not speed."""
        return MEMORY in self.names


@record(kw_only=True)
class RunKind:
    """A kind of tables of runs; its functions take only the cases that its ``case`` made.

    ``impossible`` returns why the columns of each run of a group cannot be its layout.
    ``software`` is the name of the column framework in this kind, ``label`` the usual name of a
    row's software, with its case if it has one, ``labels`` all known ones. ``choices`` are the
    other assumptions about a run, in words. A measurement among ``proofs`` shows that the run ran.
    """

    case_of: Callable[[Run, Library], Case]
    predict_group: Callable[[Sequence[Any]], Iterable[Prediction]]
    impossible: Callable[[Sequence[Run], Sequence[Any]], list[str]]
    choices: Callable[[Run, Any], Iterable[str]]
    software: str
    label: Callable[[Run, Case | None], str]
    labels: Callable[[], Iterable[str]]
    tables: ErrorTables
    compared: tuple[ComparedQuantity, ...]
    proofs: tuple[str, ...]
    footnote: str
    template: str

    @cached_property
    def interval_names(self) -> Mapping[str, str]:
        """Name of the errors behind the interval of each quantity."""
        return {name: quantity.interval for quantity in self.compared for name in quantity.names}


_STEP_TIMES = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s")
# The throughput of a row is the first of these that it has; one often derives from another.
THROUGHPUT = ("output_tokens_per_s", "total_tokens_per_s", "request_latency_s", "requests_per_s")
_BY_FRAMEWORK = ("source", *terms_about("error_key", "train"), "workload")
_BY_ENGINE = ("source", *terms_about("error_key", "serve"))

STEP_TIME = ComparedQuantity(
    title="Step time",
    names=_STEP_TIMES,
    interval="step_time",
    groups=_BY_FRAMEWORK,
    as_time=True,
    with_regret=True,
)
TRAINING_MEMORY = ComparedQuantity(
    title="Peak memory",
    names=(MEMORY,),
    interval="peak_memory",
    groups=("source", FRAMEWORK),
    calibration="memory_calibration",
)
TOKEN_TIME, FIRST_TOKEN_TIME, REQUESTS, SERVING_MEMORY = (
    ComparedQuantity(title=title, names=names, interval=interval, groups=_BY_ENGINE)
    for title, names, interval in (
        ("Time per output token", ("time_per_output_token_s",), "time_per_output_token"),
        ("Time to first token", ("time_to_first_token_s",), "time_to_first_token"),
        ("Throughput", THROUGHPUT, "throughput"),
        ("Peak memory", (MEMORY,), "peak_memory"),
    )
)

TRAINING_KIND = RunKind(
    case_of=training_case,
    predict_group=predict_training_group,
    impossible=impossible_training_layouts,
    choices=training_choices,
    software="framework",
    label=lambda run, _: framework_rule(run.text("framework")).label,
    labels=framework_labels,
    tables=TRAINING_TABLES,
    compared=(STEP_TIME, TRAINING_MEMORY),
    proofs=_STEP_TIMES,
    footnote="Regret: measured time of the recommended layout over the best one, less 1, "
    "where a source ran several.",
    template="training",
)
INFERENCE_KIND = RunKind(
    case_of=inference_case,
    predict_group=predict_inference_group,
    impossible=impossible_layouts,
    choices=inference_choices,
    software="engine",
    label=lambda run, case: case.software.label if case else run.text("framework"),
    labels=engine_labels,
    tables=INFERENCE_TABLES,
    compared=(TOKEN_TIME, FIRST_TOKEN_TIME, REQUESTS, SERVING_MEMORY),
    proofs=(),
    footnote="Throughput: output tokens/s, or total tokens/s, latency or requests/s where a "
    "source has only these.",
    template="serving",
)
RL_STEP, *RL_PHASES = (
    ComparedQuantity(title=title, names=(name,), interval=interval, groups=("source", "model"))
    for title, name, interval in (
        ("Step time", "step_time_s", "step_time"),
        ("Generation", "generate_s", "generate"),
        ("Log-probabilities", "logprob_s", "logprob"),
        ("Update", "update_s", "update"),
        ("Weight sync", "sync_s", "sync"),
    )
)
RL_KIND = RunKind(
    case_of=rl_case,
    predict_group=predict_rl_group,
    impossible=impossible_steps,
    choices=rl_choices,
    software="framework",
    label=lambda run, case: case.software.label if case else run.text("framework"),
    labels=framework_labels,
    tables=RL_TABLES,
    compared=(RL_STEP, *RL_PHASES, replace(TRAINING_MEMORY, calibration="calibration")),
    proofs=("step_time_s",),
    footnote="Phases are those that a source reports separately.",
    template="rl",
)
KINDS = {
    TableKind.TRAINING: TRAINING_KIND,
    TableKind.INFERENCE: INFERENCE_KIND,
    TableKind.RL: RL_KIND,
}


def kind_of(runs: Runs) -> RunKind:
    """The kind of a table."""
    return KINDS[runs.kind]


IMPOSSIBLE = "impossible"
"""Basis of a run with an impossible layout."""

Progress = Callable[[int], None]


@snapshot_files()
def predict(
    runs: Runs, library: Library | None = None, progress: Progress | None = None
) -> list[Prediction]:
    """Predict every run of a table, in the order of its rows."""
    shelf, kind = library or Library(), kind_of(runs)
    predictions = [_placed(run, shelf, kind) for run in runs.rows]
    groups: defaultdict[Hashable, list[tuple[int, Case]]] = defaultdict(list)
    for index, prediction in enumerate(predictions):
        if prediction.case is not None:
            groups[prediction.case.group].append((index, prediction.case))
    done = len(predictions) - sum(map(len, groups.values()))
    for members in groups.values():
        cases = [case for _, case in members]
        reasons = why_impossible(kind, [runs.rows[index] for index, _ in members], cases)
        answers = zip(members, kind.predict_group(cases), reasons, _tuned(kind, cases), strict=True)
        for (index, case), prediction, reason, tuned_values in answers:
            if prediction.reason:
                predictions[index] = prediction
                continue
            basis = IMPOSSIBLE if reason else basis_of_case(case, kind.tables)
            predictions[index] = replace(
                prediction, basis=basis, impossible=reason, tuned_values=tuned_values
            )
        done += len(members)
        if progress is not None:
            progress(done)
    return predictions


def basis_of_case(case: Case, tables: ErrorTables) -> str:
    """Return how near published runs are to a case; a run of the case itself counts, too."""
    evidence = evidence_of(case.software, case.gpu.name, case.conditions, tables)
    return with_missing(evidence, unmeasured_release(case.software, case.release)).basis


def _tuned(kind: RunKind, cases: Sequence[Case]) -> Iterable[Mapping[str, float]]:
    """Return what is predicted of each case of a group if it is tuned; empty if it is."""
    tuned = [case for each in cases if (case := each.as_tuned) is not None]
    if not tuned:  # cases of a group have one slowdown
        return [{}] * len(cases)
    return [prediction.values for prediction in kind.predict_group(tuned)]


def ranges(prediction: Prediction, kind: RunKind) -> dict[str, Range]:
    """Return the predicted quantities by name, each with its 90 % interval."""
    case = prediction.case
    if case is None or prediction.reason:
        return {}
    by_name, basis = {}, prediction.basis
    for name, value in prediction.values.items():
        if name == MEMORY:
            low, high = case.memory_errors.interval
        else:
            low, high = interval_of(kind.interval_names[name], case.keys, kind.tables, basis)
        if name in RATES:
            low, high = 1 / high, 1 / low if low else float("inf")
        by_name[name] = Range(value=value, low=value * low, high=value * high)
    value, chance = float(not prediction.fits), 1 - prediction.fit_probability
    low, high = float(chance > MAX_CONFIDENCE), float(chance > 1 - MAX_CONFIDENCE)
    by_name[OUT_OF_MEMORY] = Range(value=value, low=min(low, value), high=max(high, value))
    return by_name


def _placed(run: Run, library: Library, kind: RunKind) -> Prediction:
    try:
        return Prediction(case=kind.case_of(run, library))
    except NotPredicted as reason:
        return Prediction(reason=str(reason))


def why_impossible(kind: RunKind, runs: Sequence[Run], cases: Sequence[Case]) -> list[str]:
    """Return per run why its stated layout is impossible; empty: it is possible, or out of memory.

    Such a prediction is about another layout, so that tables of errors leave it out. A run that ran
    out of memory need not fit.
    """
    return [
        "" if run.flag(f"{MEASURED}{OUT_OF_MEMORY}") else error
        for run, error in zip(runs, kind.impossible(runs, cases), strict=True)
    ]


UNKNOWN = "is not known"
"""Text for software that no rule names."""
_OTHER = "other"


def assumed(run: Run, case: Case, kind: RunKind) -> tuple[str, ...]:
    """Return each assumption that was made for a run, one text each."""
    return (
        *_software(run.text("framework"), case.software, kind.labels()),
        *_model(run.text("model"), case.model),
        *kind.choices(run, case),
    )


def _software(text: str, rule: Rule, labels: Iterable[str]) -> Iterator[str]:
    """Yield a note if the run's framework is unknown or predicted with another one's profile."""
    if rule.label == _OTHER:
        names = {name.lower(): name for name in labels if name != _OTHER}
        description = f"framework {text!r} {UNKNOWN}" if text else "framework is not specified"
        yield f"{description}: planner uses {rule.profile}.{did_you_mean(text, names)}"
    elif rule.nearest:
        yield f"framework {rule.label}: {rule.profile} is the closest profile"
    elif not text.lower().startswith(re.split(r"[-.]", spelled(rule.label))[0]):
        yield f"framework {text!r} is assumed to be {rule.label}"


def _model(name: str, model: ModelSpec) -> Iterator[str]:
    """Yield a note if the run's model is not built in under its name."""
    if model.source == OF_COLUMNS:
        yield f"model {name!r} is made of the row's columns"
    elif spelled(name) not in map(spelled, (model.name, *model.aliases)):
        yield f"model {name!r} is assumed to be {model.name}"


# One layout problem: the same model, GPUs, batch and length on the same software.
_PROBLEM = (
    "source", *terms_about("layout_problem"), "num_hidden_layers", "hidden_size",
    "intermediate_size", "num_attention_heads", "num_experts",
)  # fmt: skip
_LAYOUT = terms_about("layout", "train")


def layout_problems(
    rows: Iterable[ComparedRun], compared: ComparedQuantity
) -> list[list[ComparedRun]]:
    """Return groups of runs that differ only in their layout, each with two layouts or more."""
    problems: defaultdict[Hashable, list[ComparedRun]] = defaultdict(list)
    for row in rows:
        if row.ratio(compared) is not None:
            problems[_words(row, _PROBLEM)].append(row)
    return [
        group for group in problems.values() if len({_words(row, _LAYOUT) for row in group}) > 1
    ]


def regrets(rows: Iterable[ComparedRun], compared: ComparedQuantity) -> list[float]:
    """Return per group of layouts: time of the predicted best over the fastest time, minus 1."""
    values = []
    for group in layout_problems(rows, compared):
        # With equal batches, time per token orders layouts as step time does.
        predicted = [1 / row.prediction.values["tokens_per_s"] for row in group]
        ratios = [row.ratio(compared) or float("nan") for row in group]
        measured = [time / ratio for time, ratio in zip(predicted, ratios, strict=True)]
        *_, pick = min(zip(predicted, (row.run.line for row in group), measured, strict=True))
        values.append(pick / min(measured) - 1)
    return values


def _words(row: ComparedRun, columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(row.run.word(column) for column in columns)


@record(kw_only=True)
class ComparedRun:
    """A run compared with its prediction."""

    run: Run
    prediction: Prediction
    kind: RunKind

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
        """Whether the run ran out of memory; None if the source does not specify it."""
        has_run_out = self.run.flag(f"{MEASURED}{OUT_OF_MEMORY}")
        ran = self.first_measured(self.kind.proofs) is not None
        return False if ran and not has_run_out else has_run_out

    @cached_property
    def measured(self) -> dict[str, float]:
        """The measurements of quantities that can be predicted, by name."""
        names = (*self.kind.interval_names, OUT_OF_MEMORY)
        values = {name: self.run.number(f"{MEASURED}{name}") for name in names}
        return {name: value for name, value in values.items() if value}

    @cached_property
    def noisy(self) -> bool:
        """Whether its source marks its speeds as noise."""
        return bool(self.run.flag("noisy"))

    def counts(self, compared: ComparedQuantity) -> bool:
        """Whether the run counts in a comparison; noisy runs do not count in those of speed."""
        return not self.prediction.impossible and (compared.of_memory or not self.noisy)

    def first_measured(self, quantities: Iterable[str]) -> str | None:
        """The first of these quantities that was measured."""
        return next((name for name in quantities if name in self.measured), None)

    def ratio(
        self, compared: ComparedQuantity, *, as_time: bool = True, as_tuned: bool = False
    ) -> float | None:
        """Return predicted over measured; None: either is unknown.

        ``as_time`` inverts rates. ``as_tuned``: of the prediction for a tuned run.
        """
        quantity = self.first_measured(compared.names) or ""
        measured, predicted = self.measured.get(quantity), self.ranges.get(quantity)
        if measured is None or predicted is None or not self.counts(compared):
            return None
        value = self.prediction.tuned_values.get(quantity) if as_tuned else None
        ratio = (predicted.value if value is None else value) / measured
        return 1 / ratio if as_time and quantity in RATES else ratio

    def held(self, compared: ComparedQuantity) -> bool | None:
        """Return True if the measured value is in the 90 % interval; None: either is unknown."""
        quantity = self.first_measured(compared.names) or ""
        measured, predicted = self.measured.get(quantity), self.ranges.get(quantity)
        if measured is None or predicted is None or not self.counts(compared):
            return None
        return predicted.low <= measured <= predicted.high

    def interval_score(self, compared: ComparedQuantity) -> float | None:
        """Return the interval score [1]_ of the logarithm; None: not measured or predicted.

        The width of the interval, and 2 / alpha times the distance of the measurement from it.

        References
        ----------
        .. [1] T. Gneiting and A. Raftery, "Strictly proper scoring rules, prediction, and
           estimation," 2007, J. Am. Stat. Assoc. 102, section 6.2.
        """
        quantity = self.first_measured(compared.names) or ""
        if self.held(compared) is None or not self.ranges[quantity].low > 0:
            return None
        measured, predicted = math.log(self.measured[quantity]), self.ranges[quantity]
        low, high = math.log(predicted.low), math.log(predicted.high)
        beyond = max(low - measured, 0.0) + max(measured - high, 0.0)
        return high - low + 2 / (1 - LEVEL) * beyond


@record(kw_only=True)
class Errors:
    """Errors of one group of rows, as fractions; NaN if it has no measurement.

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
    predicted_fit: int
    ran: int
    predicted_out_of_memory: int


def joined(runs: Runs, predictions: Sequence[Prediction]) -> list[ComparedRun]:
    """Return each run of a table with its prediction."""
    kind = kind_of(runs)
    return [
        ComparedRun(run=run, prediction=prediction, kind=kind)
        for run, prediction in zip(runs.rows, predictions, strict=True)
    ]


def errors(rows: Sequence[ComparedRun], compared: ComparedQuantity, group: str) -> list[Errors]:
    """Return prediction errors per group of runs, largest group first, and then of all runs.

    Leaves out groups without a measurement, and rows with an impossible layout or noisy speed.
    """
    groups: defaultdict[str, list[ComparedRun]] = defaultdict(list)
    for row in rows:
        if row.first_measured(compared.names) is not None and row.counts(compared):
            of_software = group == row.kind.software
            name = row.software if of_software else row.run.text(group) or "not given"
            groups[name].append(row)
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    if len(ordered) > 1:
        ordered.append(("all", [row for members in groups.values() for row in members]))
    return [group_errors(name, members, compared) for name, members in ordered]


def group_errors(name: str, rows: Sequence[ComparedRun], compared: ComparedQuantity) -> Errors:
    """Return the prediction errors (mean, median, bias, ...) of these runs under a group name."""
    all_ratios = [row.ratio(compared, as_time=compared.as_time) for row in rows]
    ratios = np.asarray([ratio for ratio in all_ratios if ratio is not None])
    inside = [is_inside for row in rows if (is_inside := row.held(compared)) is not None]
    scores = [score for row in rows if (score := row.interval_score(compared)) is not None]
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


def tuned_errors(rows: Sequence[ComparedRun], compared: ComparedQuantity) -> Errors | None:
    """Return the errors of all runs if every run were tuned; None if that changes nothing.

    Intervals are of what is shown, so ``within`` is NaN.
    """
    pairs = [
        (shown, tuned)
        for row in rows
        if (shown := row.ratio(compared, as_time=compared.as_time)) is not None
        and (tuned := row.ratio(compared, as_time=compared.as_time, as_tuned=True)) is not None
    ]
    if all(shown == tuned for shown, tuned in pairs):
        return None
    ratios = np.asarray([tuned for _, tuned in pairs])
    return Errors(
        name="as tuned",
        rows=len(pairs),
        predicted=len(pairs),
        mape=_mean(np.abs(ratios - 1)),
        median=_median(np.abs(ratios - 1)),
        bias=_median(ratios - 1),
        within=float("nan"),
    )


def memory_verdicts(rows: Iterable[ComparedRun]) -> MemoryVerdicts:
    """Count right and wrong predictions of whether a run exceeds the memory of its GPUs."""
    compared_rows = [row for row in rows if row.ranges and row.ran_out is not None]
    compared_rows = [row for row in compared_rows if not row.prediction.impossible]
    out = [row.prediction.fits for row in compared_rows if row.ran_out]
    ran = [row.prediction.fits for row in compared_rows if not row.ran_out]
    return MemoryVerdicts(
        ran_out=len(out),
        predicted_fit=sum(out),
        ran=len(ran),
        predicted_out_of_memory=len(ran) - sum(ran),
    )


def _mean(values: FloatArray) -> float:
    return float(np.mean(values)) if values.size else float("nan")


def _median(values: FloatArray) -> float:
    return float(np.median(values)) if values.size else float("nan")
