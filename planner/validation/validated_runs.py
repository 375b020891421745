"""Measured runs with their predictions: selected, or those nearest to a plan."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from planner.base.csv_cells import Value, number_or_nan
from planner.base.read_files import packaged_rows
from planner.base.records import record
from planner.errors import PlannerError, SearchSpaceError
from planner.question.conditions import WHERE, evaluate_condition, parse_condition
from planner.question.names import (
    ATTENTION_DATA_PARALLEL,
    CAPACITY_REQUESTS_PER_S_PER_GPU,
    CONCURRENCY,
    ENGINE,
    FRAMEWORK,
    GPU,
    INPUT_TOKENS,
    MODE,
    MODEL,
    NUM_GPUS,
    OUTPUT_TOKENS,
    OUTPUT_TOKENS_PER_S_PER_GPU,
    PIPELINE_PARALLEL,
    PRECISION,
    QUANTIZATION,
    SEQUENCE_LENGTH,
    TENSOR_PARALLEL,
    TOKENS_PER_S_PER_GPU,
    TOKENS_PER_S_PER_USER,
)
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind
from planner.validation.accuracy import ComparedRun, Progress, joined, kind_of, predict
from planner.validation.run_tables import (
    INFERENCE,
    MEASURED,
    RL,
    SHIPPED,
    SHIPPED_INFERENCE,
    SHIPPED_RL,
    TRAINING,
    Case,
    Run,
    Runs,
    read_runs,
)
from planner.validation.spec_library import Library, NotPredicted

if TYPE_CHECKING:
    import pandas as pd


_EXAMPLE = "gpu_vendor == 'amd' and model_kind == 'moe'"
_FIRST = (
    "source", "publisher", FRAMEWORK, MODEL, GPU, NUM_GPUS, "workload", MODE, PRECISION,
    SEQUENCE_LENGTH, INPUT_TOKENS, OUTPUT_TOKENS, CONCURRENCY, "year",
)  # fmt: skip
"""Columns that messages list first, after the derived ones."""
_LENGTHS = (SEQUENCE_LENGTH, INPUT_TOKENS, OUTPUT_TOKENS)
_CONSUMER = re.compile(r"rtx[2-5]0[5-9]0|gtx|titan|rx\d|arc-[ab]|apple|strix")
"""Names of GPUs that are sold for desktops and laptops: GeForce, Radeon, Arc, Apple, Ryzen."""


def select_runs(tables: Sequence[Runs], where: Sequence[str], library: Library) -> list[Runs]:
    """Return the tables with the runs that meet all conditions; tables without such a run drop out.

    Conditions are pandas expressions over the columns of the tables and those of `DERIVED`.
    Numbers that a row lacks are NaN, and texts are empty.

    Raises SearchSpaceError if a condition is invalid, names an unknown column, or no run meets all.
    """
    if not where:
        return [*tables]
    columns = _column_names(tables)
    conditions = [parse_condition(text, columns, _EXAMPLE) for text in where]
    is_derived = any({*names} & {*DERIVED} for _, names in conditions)
    selected = []
    for table in tables:
        cases = [*_cases(table, library)] if is_derived else [None] * len(table.rows)
        numbers = _matching_rows(table, cases, conditions, columns)
        rows = tuple(table.rows[number] for number in numbers)
        selected += [replace(table, rows=rows)] if rows else []
    if not selected:
        texts = " and ".join(map(repr, where))
        raise SearchSpaceError(f"No run meets {WHERE} {texts}.")
    return selected


def select_compared(rows: Sequence[ComparedRun], where: str) -> list[ComparedRun]:
    """Return the runs of one table, already predicted, that meet a condition."""
    table = Runs(columns=tuple(rows[0].run.cells), rows=tuple(row.run for row in rows))
    schemas = (column for schema in (TRAINING, INFERENCE, RL) for column in schema.columns)
    columns = [*DERIVED, *dict.fromkeys(schemas)]
    conditions = [parse_condition(where, columns, _EXAMPLE)]
    cases = [row.prediction.case for row in rows]
    return [rows[number] for number in _matching_rows(table, cases, conditions, columns)]


def _matching_rows(
    table: Runs,
    cases: Sequence[Case | None],
    conditions: Sequence[tuple[str, Sequence[str]]],
    columns: Sequence[str],
) -> list[int]:
    """Return the indices of the rows of a table that meet all conditions."""
    frame = _frame(table, cases, [name for _, names in conditions for name in names])
    for expression, _ in conditions:
        frame = frame[evaluate_condition(expression, frame, columns, _EXAMPLE)]
    return [int(number) for number in frame.index]


def _column_names(tables: Iterable[Runs]) -> list[str]:
    """The names of columns that conditions may use: derived ones first."""
    names = [name for table in tables for name in (*table.columns, *table.schema.columns)]
    return [*DERIVED, *sorted(dict.fromkeys(names), key=lambda name: name not in _FIRST)]


def _frame(table: Runs, cases: Sequence[Case | None], names: Iterable[str]) -> pd.DataFrame:
    """Return columns of a table as a data frame."""
    import pandas as pd

    columns: dict[str, Sequence[object]] = {}
    for name in names:
        if name in DERIVED:
            derive = DERIVED[name]
            columns[name] = [derive(*pair) for pair in zip(table.rows, cases, strict=True)]
        elif name in table.schema.numeric or name.startswith(MEASURED):
            numbers = (run.number(name) for run in table.rows)
            columns[name] = [math.nan if number is None else number for number in numbers]
        else:
            columns[name] = [run.text(name) for run in table.rows]
    return pd.DataFrame(columns)


def _cases(table: Runs, library: Library) -> Iterable[Case | None]:
    """Yield the case of each run; None where nothing is predicted."""
    kind = kind_of(table)
    for run in table.rows:
        try:
            yield kind.case_of(run, library)
        except NotPredicted:
            yield None


DERIVED: Mapping[str, Callable[[Run, Case | None], str | float | bool]] = {
    "model_kind": lambda _, case: case.kind if case is not None else "",
    "gpu_vendor": lambda _, case: case.gpu.vendor.lower() if case is not None else "",
    "consumer_gpu": lambda _, case: case is not None and _CONSUMER.match(case.gpu.name) is not None,
    "context_tokens": lambda run, _: sum(run.number(name) or 0.0 for name in _LENGTHS),
    "first_run": lambda _, case: case is not None and case.as_tuned is not None,
}
"""Columns that are derived of a run.

``model_kind`` is dense or moe, ``gpu_vendor`` in lower case, ``context_tokens`` a training sequence
or a prompt with its answer. ``consumer_gpu`` and ``first_run`` (not tuned) are true or false.
"""


Bar: TypeAlias = "Callable[[int, str], AbstractContextManager[Progress | None]]"
"""Shows the progress of a number of steps with this name; yields a function for the steps done."""


@record(kw_only=True)
class ValidatedRuns:
    """Tables of runs, and each of their runs with its prediction, in the order of the rows."""

    tables: tuple[tuple[Runs, Sequence[ComparedRun]], ...]

    @property
    def runs(self) -> list[ComparedRun]:
        """The runs of all tables."""
        return [run for _, rows in self.tables for run in rows]

    @property
    def is_compared(self) -> bool:
        """Whether any run has both a measurement and a prediction."""
        return any(run.compared for run in self.runs)


def predict_runs(
    path: Path | None, where: Sequence[str], library: Library, bar: Bar
) -> ValidatedRuns:
    """Predict the runs of a table that meet conditions.

    Raises SpecError if the table has errors, SearchSpaceError if a condition is invalid or no run
    meets it.

    Parameters
    ----------
    path : a CSV file of runs; None: the published runs
    where : pandas expressions over the columns, see `planner.validation.validated_runs`
    """
    files = (SHIPPED, *SHIPPED_INFERENCE, SHIPPED_RL) if path is None else (path,)
    tables = select_runs([read_runs(file) for file in files], where, library)
    compared: list[tuple[Runs, Sequence[ComparedRun]]] = []
    for table in tables:
        with bar(len(table.rows), "runs") as progress:
            compared.append((table, joined(table, predict(table, library, progress=progress))))
    return ValidatedRuns(tables=tuple(compared))


MOST_RUNS = 60
"""Runs that are returned at most, those with the nearest lengths."""
_MOST_RATIO = 2.0
_STATIC = "static_batch"
_DEGREES = (TENSOR_PARALLEL, PIPELINE_PARALLEL, ATTENTION_DATA_PARALLEL)
_POOLS = ("prefill_", "decode_")
_DATE = re.compile(r"measured=(\d{4}-\d\d-\d\d)")
_FILE_DATE = re.compile(r"\d{4}-\d\d-\d\d")
# Publishers of rows whose source is the name of a file.
_PUBLISHERS = {
    "InferenceX": re.compile(r"db-dump|source_file=2026-|gap-analysis\.csv"),
    "aiconfigurator": re.compile(r"aic-"),
}
Cells = Mapping[str, str]


def nearest_runs(
    catalogue: Catalogue,
    model: str,
    gpus: Collection[str],
    input_tokens: float,
    output_tokens: float,
) -> list[dict[str, Value]]:
    """Return result rows of published closed-loop runs, those with the nearest lengths first.

    Both lengths differ by less than a factor of two. Where no rate was published, it follows from
    the requests in flight and their latency (Little's law).

    Parameters
    ----------
    catalogue : specs that names are looked up in
    model : name of the model; runs of models with the same layers count as well
    gpus : names of GPU types
    input_tokens : mean prompt length [tokens]
    output_tokens : mean answer length [tokens]
    """
    near: list[tuple[float, dict[str, Value]]] = []
    architecture = cache(partial(_architecture, catalogue))
    wanted_model = architecture(model)
    for cells in _runs_on(tuple(gpus)):
        lengths = _number(cells, INPUT_TOKENS), _number(cells, OUTPUT_TOKENS)
        ratios = [
            abs(math.log(length / wanted)) if length > 0 and wanted > 0 else math.inf
            for length, wanted in zip(lengths, (input_tokens, output_tokens), strict=True)
        ]
        if not max(ratios) < math.log(_MOST_RATIO):
            continue
        if wanted_model is None or architecture(cells[MODEL]) != wanted_model:
            continue
        if (row := _row(cells)) is not None:
            near.append((sum(ratios), row))
    near.sort(key=lambda distance_and_row: distance_and_row[0])
    return [row for _, row in near[:MOST_RUNS]]


@cache
def _runs_on(gpus: tuple[str, ...]) -> tuple[Cells, ...]:
    """Return the rows of shipped runs with answers of requests on some GPU types."""
    rows: list[Cells] = []
    for path in SHIPPED_INFERENCE:
        rows += [row for row in packaged_rows(path) if row[GPU] in gpus and row["mode"] != _STATIC]
    return tuple(rows)


def _architecture(catalogue: Catalogue, name: str) -> tuple[object, ...] | None:
    """Return what models with the same layers have in common; None: unknown model."""
    try:
        path = catalogue.find(SpecKind.MODELS, name.rsplit("/", 1)[-1])
        model = catalogue.load_model(path.stem)
    except PlannerError:
        return None
    return model.hidden_size, model.vocab_size, model.layer_groups


def _row(cells: Cells) -> dict[str, Value] | None:
    """Return the result columns of a run; None: its rate or its latency is unknown."""
    per_token = _number(cells, "measured_time_per_output_token_s")
    first = _number(cells, "measured_time_to_first_token_s")
    in_flight, answer = _number(cells, CONCURRENCY), _number(cells, OUTPUT_TOKENS)
    latency = first + per_token * (answer - 1)
    rate = _number(cells, "measured_output_tokens_per_s") / answer
    if math.isnan(rate):
        rate = in_flight / latency
    count = _num_gpus(cells)
    if not (math.isfinite(rate) and per_token > 0 and count > 0):
        return None
    tokens = answer + _number(cells, INPUT_TOKENS)
    return {
        MODEL: cells[MODEL],
        GPU: cells[GPU],
        NUM_GPUS: round(count),
        ENGINE: " ".join(filter(None, (cells["framework"], cells["framework_version"]))),
        QUANTIZATION: cells["weight_precision"],
        CONCURRENCY: in_flight if math.isfinite(in_flight) else None,
        CAPACITY_REQUESTS_PER_S_PER_GPU: rate / count,
        TOKENS_PER_S_PER_USER: 1 / per_token,
        "time_to_first_token_s": first if math.isfinite(first) else None,
        "time_per_output_token_s": per_token,
        TOKENS_PER_S_PER_GPU: rate * tokens / count,
        OUTPUT_TOKENS_PER_S_PER_GPU: rate * answer / count,
        "request_latency_s": latency if math.isfinite(latency) else None,
        INPUT_TOKENS: _number(cells, INPUT_TOKENS),
        OUTPUT_TOKENS: answer,
        "source": _source(cells),
        "date": _date(cells),
    }


def _num_gpus(cells: Cells) -> float:
    """Return the GPUs of a run; NaN: unknown."""
    if (count := _number(cells, NUM_GPUS)) > 0:
        return count
    pools = [sum(_gpus_of_pools(cells))] if cells.get("decode_num_workers") else []
    return next(iter(pools), _product(cells, ""))


def _gpus_of_pools(cells: Cells) -> Iterator[float]:
    for pool in _POOLS:
        yield _number(cells, f"{pool}num_workers") * _product(cells, pool)


def _product(cells: Cells, pool: str) -> float:
    """Return the GPUs of a worker: the product of its degrees; missing ones are 1."""
    degrees = [_number(cells, f"{pool}{name}") for name in _DEGREES]
    return math.prod(1.0 if math.isnan(degree) else degree for degree in degrees)


def _source(cells: Cells) -> str:
    """Return the address of a run, or its publisher and file."""
    if url := cells.get("source_url"):
        return url
    details = f"{cells['source']} {cells.get('source_details') or ''}"
    names = (name for name, pattern in _PUBLISHERS.items() if pattern.search(details))
    return " ".join(filter(None, (next(names, ""), cells["source"])))


def _date(cells: Cells) -> str:
    """Return the day of the measurement, or of its publication, or the year."""
    if match := _DATE.search(cells.get("source_details") or ""):
        return match[1]
    match = _FILE_DATE.search(cells["source"])
    return match[0] if match else cells.get("year") or ""


def _number(cells: Cells, column: str) -> float:
    """Return a cell as a number; NaN: empty."""
    return number_or_nan(float(cells[column]) if cells.get(column) else None)
