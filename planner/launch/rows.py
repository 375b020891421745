"""The plan of a row of a result file."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.cells import cell_value
from planner.errors import LaunchError
from planner.pinned import PinnedPlan
from planner.terms import glossary, plain_values, terms_of

_LARGEST_CELL = 2**20
# A column that the results of one workload alone have.
_TELLING = {"step_time_s": "train", "prefill_latency_s": "inference", "mode": "serve"}
_OF_POOLS = ("mode", "prefill_gpu")


def plan_in(path: Path, row: int | None) -> PinnedPlan:
    """The plan that a file holds: a plan, what a search recommends, or a row of its result.

    ``row`` counts from 1; without it the file of a search stands for its recommended plan.

    Raises
    ------
    SpecError, LaunchError
        The file cannot be read, holds no plan, or has no such row.
    """
    if path.suffix == ".toml" or (path.suffix == ".json" and row is None):
        if row is not None:
            raise LaunchError(f"{path}: is one plan, it has no rows: leave out --row.")
        return PinnedPlan.read(path)
    rows, manifest = _json_rows(path) if path.suffix == ".json" else _csv_rows(path)
    if row is None and len(rows) > 1:
        raise LaunchError(f"{path}: has {len(rows):,} rows: choose one with --row.")
    number = 1 if row is None else row
    if not 1 <= number <= len(rows):
        raise LaunchError(f"{path}: has rows 1 to {len(rows):,}, not {number}.")
    return _pinned(path, rows[number - 1], manifest)


def _csv_rows(path: Path) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    csv.field_size_limit(_LARGEST_CELL)
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows: list[Mapping[str, Any]] = [
                {name: cell_value(cell) for name, cell in row.items() if name and cell is not None}
                for row in csv.DictReader(file)
            ]
    except (OSError, ValueError, csv.Error) as error:
        raise LaunchError(f"{path}: cannot be read as the rows of a result ({error}).") from error
    manifest = path.with_name(f"{path.stem}.manifest.json")
    try:
        return rows, json.loads(manifest.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return rows, {}


def _json_rows(path: Path) -> tuple[list[Mapping[str, Any]], Mapping[str, Any]]:
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        return list(table["rows"]), dict(table["manifest"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LaunchError(f"{path}: is not the JSON file of a search ({error}).") from error


def _pinned(path: Path, row: Mapping[str, Any], manifest: Mapping[str, Any]) -> PinnedPlan:
    """The plan of a row; what its columns do not say is what the search was asked."""
    workload = next((of for column, of in _TELLING.items() if column in row), None)
    if workload is None or "model" not in row:
        raise LaunchError(f"{path}: its columns are not those of a result of planner.")
    pools = terms_of(workload, "pool") if row.get("prefill_gpu") else {}
    plain = plain_values(workload)
    parameters = [*terms_of(workload, "parameter"), *pools]
    told = [name for name in parameters if row.get(name) is not None]
    if lacking := [one for one in parameters if one not in told and one not in plain]:
        raise LaunchError(f"{path}: the row lacks {', '.join(lacking[:4])}: it is no whole plan.")
    asked = manifest.get("answers", {})
    answers = {name: value for name, value in asked.items() if name in glossary()}
    for name in terms_of(workload, "question"):
        if row.get(name) not in (None, "") and name not in parameters:
            answers[name] = row[name]
    if not pools:
        answers = {name: value for name, value in answers.items() if name not in _OF_POOLS}
    answers.pop("space", None)
    table = {
        "workload": workload,
        "answers": answers,
        "parameters": {name: row[name] for name in told},
        "specs_folder": str(asked.get("specs") or ""),
    }
    return PinnedPlan.from_dict(table, str(path))
