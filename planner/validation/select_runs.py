"""Select runs by conditions on their columns, and on what planner derives of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.errors import SearchSpaceError
from planner.question.conditions import WHERE, evaluate_condition, parse_condition
from planner.question.names import (
    CONCURRENCY,
    FRAMEWORK,
    GPU,
    INPUT_TOKENS,
    MODE,
    MODEL,
    NUM_GPUS,
    OUTPUT_TOKENS,
    PRECISION,
    SEQUENCE_LENGTH,
)
from planner.validation.accuracy import ComparedRun, kind_of
from planner.validation.case_prediction import Case
from planner.validation.run_tables import INFERENCE, MEASURED, RL, TRAINING, Run, Runs
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


def _model_kind(_: Run, case: Case | None) -> str:
    return case.kind if case is not None else ""


def _gpu_vendor(_: Run, case: Case | None) -> str:
    return case.gpu.vendor.lower() if case is not None else ""


def _is_consumer_gpu(_: Run, case: Case | None) -> bool:
    return case is not None and _CONSUMER.match(case.gpu.name) is not None


def _context_tokens(run: Run, _: Case | None) -> float:
    """The tokens of a sequence, or of a prompt and its answer."""
    return sum(run.number(name) or 0.0 for name in _LENGTHS)


def _is_first_run(_: Run, case: Case | None) -> bool:
    return case is not None and case.as_tuned is not None


DERIVED: Mapping[str, Callable[[Run, Case | None], str | float | bool]] = {
    "model_kind": _model_kind,
    "gpu_vendor": _gpu_vendor,
    "consumer_gpu": _is_consumer_gpu,
    "context_tokens": _context_tokens,
    "first_run": _is_first_run,
}
"""Columns that are derived of a run.

``model_kind`` is dense or moe, ``gpu_vendor`` in lower case, ``context_tokens`` a training sequence
or a prompt with its answer. ``consumer_gpu`` and ``first_run`` (not tuned) are true or false.
"""
