"""What the two kinds of tables register: how rows become cases, predictions and errors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from planner.base.records import record
from planner.confidence.intervals import (
    INFERENCE_TABLES,
    SUREST,
    TRAINING_TABLES,
    Tables,
    basis_of,
    interval_of,
)
from planner.confidence.rl import RL_TABLES
from planner.confidence.software import engine_labels, framework_labels, framework_rule
from planner.logs.reading import OUT_OF_MEMORY
from planner.question.terms import terms_about
from planner.specs.cache import steady
from planner.validation.inference.cases import impossible_layouts, inference_case, inference_choices
from planner.validation.inference.evaluate import predict_inference_group
from planner.validation.library import Library, NotPredicted
from planner.validation.prediction import MEMORY, RATES, Case, Prediction, Range
from planner.validation.rl import impossible_steps, predict_rl_group, rl_case, rl_choices
from planner.validation.runs import MEASURED, Run, Runs, TableKind
from planner.validation.training.cases import (
    impossible_training_layouts,
    predict_training_group,
    training_case,
    training_choices,
)


@record(kw_only=True)
class Compared:
    """What of a row is compared: the first of ``names`` that it measured.

    ``interval`` names the errors that its intervals are made of, ``calibration`` the column of
    the runs that parameters were fitted to, ``groups`` what errors are shown by. ``as_time``:
    rates are turned over. ``with_regret``: the time of the layout that would be picked is shown.
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
class Kind:
    """A kind of tables; a case of one goes only to the functions beside what made it.

    ``impossible`` says why the columns of each run of a group cannot be its layout.
    ``software`` is what its column framework is called, ``label`` the usual name of that of a
    row, with its case if it has one, ``labels`` all that are known. ``choices`` are those that
    were made for a run beside software and model, in words. A measurement among ``proofs`` says
    that the run ran.
    """

    case_of: Callable[[Run, Library], Case]
    predict_group: Callable[[Sequence[Any]], Iterable[Prediction]]
    impossible: Callable[[Sequence[Run], Sequence[Any]], list[str]]
    choices: Callable[[Run, Any], Iterable[str]]
    software: str
    label: Callable[[Run, Case | None], str]
    labels: Callable[[], Iterable[str]]
    tables: Tables
    compared: tuple[Compared, ...]
    proofs: tuple[str, ...]
    footnote: str
    template: str

    @cached_property
    def interval_names(self) -> Mapping[str, str]:
        """Whose interval a quantity has."""
        return {name: one.interval for one in self.compared for name in one.names}


_STEP_TIMES = ("step_time_s", "tokens_per_s_per_gpu", "tokens_per_s")
# What a row's throughput is judged by: the first that it has; one often derives from another.
THROUGHPUT = ("output_tokens_per_s", "total_tokens_per_s", "request_latency_s", "requests_per_s")
_BY_FRAMEWORK = ("source", *terms_about("kin", "train"), "workload")
_BY_ENGINE = ("source", *terms_about("kin", "serve"))

STEP_TIME = Compared(
    title="Step time",
    names=_STEP_TIMES,
    interval="step_time",
    groups=_BY_FRAMEWORK,
    as_time=True,
    with_regret=True,
)
TRAINING_MEMORY = Compared(
    title="Peak memory",
    names=(MEMORY,),
    interval="peak_memory",
    groups=_BY_FRAMEWORK[:2],
    calibration="memory_calibration",
)
TOKEN_TIME, FIRST_TOKEN_TIME, REQUESTS, SERVING_MEMORY = (
    Compared(title=title, names=names, interval=interval, groups=_BY_ENGINE)
    for title, names, interval in (
        ("Time per output token", ("time_per_output_token_s",), "time_per_output_token"),
        ("Time to first token", ("time_to_first_token_s",), "time_to_first_token"),
        ("Throughput", THROUGHPUT, "throughput"),
        ("Peak memory", (MEMORY,), "peak_memory"),
    )
)

TRAINING_KIND = Kind(
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
    footnote="Regret: measured time of the layout we would pick over that of the best, less 1, "
    "where a source ran several.",
    template="training",
)
INFERENCE_KIND = Kind(
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
    Compared(title=title, names=(name,), interval=interval, groups=("source", "model"))
    for title, name, interval in (
        ("Step time", "step_time_s", "step_time"),
        ("Generation", "generate_s", "generate"),
        ("Log-probabilities", "logprob_s", "logprob"),
        ("Update", "update_s", "update"),
        ("Weight sync", "sync_s", "sync"),
    )
)
RL_KIND = Kind(
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
    footnote="Phases are those that a source tells apart.",
    template="rl",
)
KINDS = {
    TableKind.TRAINING: TRAINING_KIND,
    TableKind.INFERENCE: INFERENCE_KIND,
    TableKind.RL: RL_KIND,
}


def kind_of(runs: Runs) -> Kind:
    """What is registered for the rows of a table."""
    return KINDS[runs.kind]


IMPOSSIBLE = "impossible"
"""In place of a basis where the columns of a run cannot be its layout."""

Progress = Callable[[int], None]


@steady()
def predict(
    runs: Runs, library: Library | None = None, progress: Progress | None = None
) -> list[Prediction]:
    """A prediction for every row, in the order of the rows."""
    shelf, kind = library or Library(), kind_of(runs)
    found = [_placed(run, shelf, kind) for run in runs.rows]
    groups: defaultdict[Hashable, list[tuple[int, Case]]] = defaultdict(list)
    for index, prediction in enumerate(found):
        if prediction.case is not None:
            groups[prediction.case.group].append((index, prediction.case))
    done = len(found) - sum(map(len, groups.values()))
    for members in groups.values():
        cases = [case for _, case in members]
        faults = why_impossible(kind, [runs.rows[index] for index, _ in members], cases)
        answers = zip(members, kind.predict_group(cases), faults, strict=True)
        for (index, case), prediction, fault in answers:
            if prediction.reason:
                found[index] = prediction
                continue
            near = basis_of(case.software, case.gpu_class, case.kind, kind.tables)
            near = IMPOSSIBLE if fault else near
            found[index] = replace(prediction, basis=near, impossible=fault)
        done += len(members)
        if progress is not None:
            progress(done)
    return found


def ranges(prediction: Prediction, kind: Kind) -> dict[str, Range]:
    """The predicted quantities by name, each with its 90 % interval."""
    case = prediction.case
    if case is None or prediction.reason:
        return {}
    found, near = {}, prediction.basis
    for name, value in prediction.values.items():
        asked = kind.interval_names[name], case.keys, kind.tables, near
        low, high = interval_of(*asked, case.software.profile, case.lacks)
        if name in RATES:
            low, high = 1 / high, 1 / low if low else float("inf")
        found[name] = Range(value=value, low=value * low, high=value * high)
    value, chance = float(not prediction.fits), 1 - prediction.fit_probability
    low, high = float(chance > SUREST), float(chance > 1 - SUREST)
    found[OUT_OF_MEMORY] = Range(value=value, low=min(low, value), high=max(high, value))
    return found


def _placed(run: Run, library: Library, kind: Kind) -> Prediction:
    try:
        return Prediction(case=kind.case_of(run, library))
    except NotPredicted as reason:
        return Prediction(reason=str(reason))


def why_impossible(kind: Kind, runs: Sequence[Run], cases: Sequence[Case]) -> list[str]:
    """Why the columns of each run of a group cannot be its layout; empty where they can.

    A prediction for such a run is about something else: it is listed, and left out of the tables
    of errors. A run that ran out of memory needs not fit.
    """
    return [
        "" if run.flag(f"{MEASURED}{OUT_OF_MEMORY}") else fault
        for run, fault in zip(runs, kind.impossible(runs, cases), strict=True)
    ]
