"""The plan that a file or a folder of any kind holds, and what it asks."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from planner.base.atomic_write import manifest_path
from planner.base.csv_cells import cell_value
from planner.base.read_files import RESULT, open_regular_file, read_csv, read_json
from planner.decide.explain.plan_comparison import replace_answers
from planner.errors import LaunchError, PlannerError, SpecError
from planner.launch import MANIFEST
from planner.launch.launch_file import LaunchFile, apply_engine_start
from planner.question.renamed import current_keys, current_name
from planner.question.request import Request
from planner.question.terms import glossary, plain_values, terms_about, terms_of
from planner.sweeps.sweep_folder import PLAN
from planner.workloads.build_request import OptionNamer
from planner.workloads.saved_plan import PLAN_FILE, SavedPlan, with_one_length

# A column that the results of one workload alone have.
_WORKLOAD_COLUMNS = {
    "rollout_gpus": "rl",
    "step_time_s": "train",
    "prefill_latency_s": "inference",
    "mode": "serve",
}
_OF_POOLS = ("mode", "prefill_gpu")
_GPUS = ("gpu", "prefill_gpu")
# A column shows whose price it is also where the question names no seller.
_CHOSEN = ("provider",)
# What a launch file may leave to the plan beside it.
_OF_LOAD = ("gpu", *terms_about("length", "serve"), "request_rate")
_HEAD = 2**12
# What the beginning of a plan or a result has, and no launch file.
_PLANNER_MARKERS = ("workload = ", '"workload":', '"rows":')


def is_launch_file(path: Path) -> bool:
    """Whether a file, or a folder of files, is a launch of the user's, not planner's own."""
    if os.path.isdir(path):
        return not any(os.path.isfile(path / name) for name in (MANIFEST, PLAN))
    if path.suffix == ".csv":
        return False
    if path.suffix not in (".toml", ".json"):
        return True
    try:
        with open_regular_file(path) as file:
            head = file.read(_HEAD).decode(errors="replace")
    except (PlannerError, OSError):
        return True
    return not any(word in head for word in _PLANNER_MARKERS)


def request_in(
    path: Path,
    row: int | None,
    answers: Mapping[str, object],
    specs: Path | None = None,
    option_name: OptionNamer = str,
    beside: Request | None = None,
) -> Request:
    """What a plan, a row of a result or a launch file asks, with other answers and settings.

    Of a launch file ``answers`` answers what it leaves open, too, else the request that is
    ``beside`` it, else what is assumed; its own is that of the configuration that is started.

    Raises SpecError, SearchSpaceError or LaunchError if it cannot be read, holds no plan, has no
    such row, or does not tell its model.
    """
    if not is_launch_file(path):
        base = pinned_in(path, row, specs).request()
        return replace_answers(base, answers, option_name) if answers else base
    file = LaunchFile(
        path=path,
        answers=answers,
        specs=specs,
        number=row,
        option_name=option_name,
        workload=None if beside is None else beside.workload,
    )
    found = file.question()
    if beside is not None:
        read = found.imported
        own = read.values.keys() - read.defaults.keys() - read.assumed.keys()
        known = {name: getattr(beside, name) for name in _OF_LOAD if name not in own}
        answers = {**{name: value for name, value in known.items() if value is not None}, **answers}
        found = replace(file, answers=answers).question()
    return apply_engine_start(replace_answers(found.request, answers, option_name))[0]


def plan_in(path: Path, row: int | None) -> SavedPlan:
    """The plan that a file holds: a plan, what a search recommends, or a row of its result.

    ``row`` counts from 1; without it the file of a search stands for its recommended plan.

    Raises SpecError or LaunchError if the file cannot be read, holds no plan, or has no such row.
    """
    if path.suffix == ".toml" and row is not None:
        raise LaunchError(f"{path}: is one plan, it has no rows: leave out --row.")
    if path.suffix == ".toml" or (row is None and _is_plan(path)):
        return SavedPlan.read(path)
    found, manifest = (_json_row if path.suffix == ".json" else _csv_row)(path, row)
    return _pinned(path, found, manifest)


def _is_plan(path: Path) -> bool:
    """Whether a file is a plan, or one of a search that recommends one; not rows alone."""
    if path.suffix != ".json":
        return False
    table = read_json(path, RESULT)
    return not isinstance(table, dict) or "recommended" in table or "rows" not in table


def _csv_row(path: Path, row: int | None) -> tuple[object, object]:
    """A row of a CSV file, which may be large, and the manifest beside it."""
    lines = read_csv(path, LaunchError)
    _, names = next(lines, (1, []))
    found: list[str] = []
    number = 0
    for number, (_, cells) in enumerate((line for line in lines if line[1]), start=1):
        if number == (row or 1):
            found = cells
    _require_row(path, row, number)
    values = dict(zip(names, found, strict=False))
    try:
        manifest = read_json(manifest_path(path))
    except SpecError:
        manifest = {}
    return {name: cell_value(cell) for name, cell in values.items() if name}, manifest


def _json_row(path: Path, row: int | None) -> tuple[object, object]:
    table = read_json(path, RESULT, LaunchError)
    rows = table.get("rows") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(rows, list):
        raise LaunchError(f"{path}: is not the JSON file of a search: it has no rows.")
    _require_row(path, row, len(rows))
    return rows[(row or 1) - 1], table.get("manifest")


def _require_row(path: Path, row: int | None, most: int) -> None:
    if row is None and most > 1:
        raise LaunchError(f"{path}: has {most:,} rows: choose one with --row.")
    if not 1 <= (1 if row is None else row) <= most:
        raise LaunchError(f"{path}: has rows 1 to {most:,}, not {1 if row is None else row}.")


def _pinned(path: Path, row: object, manifest: object) -> SavedPlan:
    """The plan of a row; what its columns do not say is what the search was asked."""
    if not isinstance(row, Mapping) or not isinstance(manifest, Mapping):
        raise LaunchError(f"{path}: its rows and its manifest are not those of a search.")
    row = {current_name("column", str(name)): value for name, value in row.items()}
    if row.get("feasible") is False:
        raise LaunchError(f"{path}: this row has no plan: {row.get('reason')}")
    workload = next((of for column, of in _WORKLOAD_COLUMNS.items() if column in row), None)
    if workload is None or "model" not in row:
        raise LaunchError(f"{path}: its columns are not those of a result of planner.")
    pools = terms_of(workload, "pool") if row.get("prefill_gpu") else {}
    plain = plain_values(workload)
    parameters = [*terms_of(workload, "parameter"), *pools]
    told = [name for name in parameters if row.get(name) is not None]
    if lacking := [
        parameter for parameter in parameters if parameter not in told and parameter not in plain
    ]:
        raise LaunchError(f"{path}: the row lacks {', '.join(lacking[:4])}: it is not a full plan.")
    asked = manifest.get("answers", {})
    if not isinstance(asked, Mapping):
        raise LaunchError(f"{path}: the answers of its manifest are not a table.")
    asked = current_keys(asked, str(path))
    answers = {name: value for name, value in asked.items() if name in glossary()}
    chosen = _CHOSEN if asked else ()
    for name in terms_of(workload, "question"):
        if row.get(name) not in (None, "") and name not in (*parameters, *chosen):
            answers[name] = _word_of(manifest, name, row[name])
    if not pools:
        answers = {name: value for name, value in answers.items() if name not in _OF_POOLS}
    answers.pop("space", None)
    answers = with_one_length(answers)
    table = {
        "workload": workload,
        "answers": answers,
        "parameters": {name: row[name] for name in told},
        "specs_folder": str(asked.get("specs") or ""),
    }
    return SavedPlan.from_dict(table, str(path))


def _word_of(manifest: Mapping[str, object], name: str, value: object) -> object:
    """The word that named a spec in the question; what names none stays as it is."""
    words = manifest.get("words")
    kind = "gpu" if name in _GPUS else name
    names = words.get(kind) if isinstance(words, Mapping) else None
    return names.get(value, value) if isinstance(names, Mapping) else value


def pinned_in(path: Path, row: int | None, specs: Path | None = None) -> SavedPlan:
    """The plan of a file or of a launch, of a row of a result, or of a scenario of a sweep.

    Raises SpecError or LaunchError if it cannot be read, holds no plan, or has no such row.
    """
    if os.path.isdir(path) and os.path.isfile(path / MANIFEST):
        return SavedPlan.read(path / PLAN_FILE)
    if os.path.isdir(path):
        return _pinned_scenario(path, row, specs)
    return plan_in(path, row)


def _pinned_scenario(folder: Path, number: int | None, specs: Path | None = None) -> SavedPlan:
    """The plan that a sweep recommends in a scenario, by its column ``scenario``."""
    from planner.sweeps.scenario_batches import AGAIN
    from planner.sweeps.sweep_folder import Sweep
    from planner.workloads.make_plan import make_plan

    sweep = Sweep(folder)
    if number is None:
        raise LaunchError(f"{folder}: is a sweep: choose one of its scenarios with --row.")
    row = next((row for row in sweep.rows() if row["scenario"] == number), None)
    if row is None:
        raise LaunchError(f"{folder}: has no scenario {number} (column scenario), or not yet.")
    if not row["feasible"]:
        raise LaunchError(f"{folder}: scenario {number} has no plan: {row.get('reason')}")
    plan = make_plan(sweep.plan.scenario(number).request(specs))
    try:
        return SavedPlan.of(plan, row)
    except KeyError as error:
        raise LaunchError(
            f"{folder}: scenario {number} is not of what its plan asks: it was changed. {AGAIN}"
        ) from error
