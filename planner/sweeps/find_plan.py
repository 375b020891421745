"""Reads the plan of a sweep, or the plan or request in a file or folder of any kind."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from planner.base.atomic_write import manifest_path
from planner.base.csv_cells import cell_value
from planner.base.read_files import RESULT, UncheckedTable, open_regular_file, read_csv, read_json
from planner.decide.explain.plan_comparison import replace_answers
from planner.errors import LaunchError, PlannerError, SearchSpaceError, SpecError, did_you_mean
from planner.launch import MANIFEST
from planner.launch.read.launch_file import LaunchFile, apply_engine_start
from planner.question.parse_values import full_name, parse_value, split_items
from planner.question.renamed import current_keys, current_name
from planner.question.request import ALL, Answers, Request, Settings
from planner.question.terms import Term, glossary, parameter_defaults, terms_about, terms_of
from planner.show.presenters.row_tables import Manifest
from planner.specs.catalogue import Catalogue
from planner.specs.price import CONTRACTS
from planner.specs.spec_files import read_toml
from planner.specs.spec_paths import SpecKind
from planner.sweeps.plan import (
    DEFAULT_NAME,
    OBJECTIVES,
    SETTINGS,
    SPECS,
    TERMS,
    SweepPlan,
    SweepWorkload,
    Values,
    available_terms,
    validation_errors,
)
from planner.sweeps.sweep_folder import PLAN
from planner.workloads.build_request import OptionNamer
from planner.workloads.priced_hardware import powers_of_two_counts
from planner.workloads.registry import workload_names
from planner.workloads.saved_plan import PLAN_FILE, SavedPlan, with_one_length

# Columns that only the results of one workload have.
_WORKLOAD_COLUMNS = {
    "rollout_gpus": "rl",
    "step_time_s": "train",
    "prefill_latency_s": "inference",
    "mode": "serve",
}
_POOL_COLUMNS = ("mode", "prefill_gpu")
_GPUS = ("gpu", "prefill_gpu")
# Results have the provider of a price even if the question names none.
_RESULT_ONLY = ("provider",)
# Answers that a launch file may take from a fallback request.
_LOAD_TERMS = ("gpu", *terms_about("length", "serve"), "request_rate")
_HEAD = 2**12
# Texts at the beginning of plans and results, but not of launch files.
_PLANNER_MARKERS = ("workload = ", '"workload":', '"rows":')


def is_launch_file(path: Path) -> bool:
    """Return True for a launch file or folder of the user; False for files of planner."""
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
    return not any(marker in head for marker in _PLANNER_MARKERS)


def read_request_of_file(
    path: Path,
    row: int | None,
    answers: Answers,
    specs: Path | None = None,
    option_name: OptionNamer = str,
    fallback: Request | None = None,
) -> Request:
    """Read the request of a plan, a result row or a launch file, and change its answers.

    Values that a launch file does not set come from ``answers``, then from ``fallback``, and then
    from assumptions.

    Raises SpecError, SearchSpaceError or LaunchError if the file cannot be read, has no plan or
    no such row, or does not name its model.
    """
    if not is_launch_file(path):
        base = read_saved_plan(path, row, specs).request()
        return replace_answers(base, answers, option_name) if answers else base
    file = LaunchFile(
        path=path,
        answers=answers,
        specs=specs,
        number=row,
        option_name=option_name,
        workload=None if fallback is None else fallback.workload,
    )
    launch_question = file.question()
    if fallback is not None:
        imported = launch_question.imported
        specified = imported.values.keys() - imported.defaults.keys() - imported.assumed.keys()
        fallback_answers = {
            name: getattr(fallback, name) for name in _LOAD_TERMS if name not in specified
        }
        answers = {
            **{name: value for name, value in fallback_answers.items() if value is not None},
            **answers,
        }
        launch_question = replace(file, answers=answers).question()
    return apply_engine_start(replace_answers(launch_question.request, answers, option_name))[0]


def plan_of_file(path: Path, row: int | None) -> SavedPlan:
    """Read the plan in a file: a saved plan, a search's recommended plan, or a result row.

    ``row`` counts from 1; without it, the file of a search gives its recommended plan.

    Raises SpecError or LaunchError if the file cannot be read, or has no plan or no such row.
    """
    if path.suffix == ".toml" and row is not None:
        raise LaunchError(f"{path}: is one plan without rows: leave out --row.")
    if path.suffix == ".toml" or (row is None and _is_plan(path)):
        return SavedPlan.read(path)
    values, manifest = (_json_row if path.suffix == ".json" else _csv_row)(path, row)
    return _plan_of_row(path, values, manifest)


def _is_plan(path: Path) -> bool:
    """Return True if a file has a plan or a recommended plan, not only rows."""
    if path.suffix != ".json":
        return False
    table = read_json(path, RESULT)
    return not isinstance(table, dict) or "recommended" in table or "rows" not in table


def _csv_row(path: Path, row: int | None) -> tuple[object, object]:
    """Read a row (from 1; None: the first) of a CSV file, and the manifest of its folder."""
    lines = read_csv(path, LaunchError)
    _, names = next(lines, (1, []))
    row_cells: list[str] = []
    number = 0
    for number, (_, cells) in enumerate((line for line in lines if line[1]), start=1):
        if number == (row or 1):
            row_cells = cells
    _require_row(path, row, number)
    values = dict(zip(names, row_cells, strict=False))
    try:
        manifest = read_json(manifest_path(path))
    except SpecError:
        manifest = {}
    return {name: cell_value(cell) for name, cell in values.items() if name}, manifest


def _json_row(path: Path, row: int | None) -> tuple[object, object]:
    """Read a row (from 1; None: the first) and the manifest of the JSON file of a search."""
    table = read_json(path, RESULT, LaunchError)
    rows = table.get("rows") if isinstance(table, dict) else None
    if not isinstance(table, dict) or not isinstance(rows, list):
        raise LaunchError(f"{path}: is not the JSON file of a search: it has no rows.")
    _require_row(path, row, len(rows))
    return rows[(row or 1) - 1], table.get("manifest")


def _require_row(path: Path, row: int | None, num_rows: int) -> None:
    if row is None and num_rows > 1:
        raise LaunchError(f"{path}: has {num_rows:,} rows: choose one with --row.")
    if not 1 <= (1 if row is None else row) <= num_rows:
        raise LaunchError(f"{path}: has rows 1 to {num_rows:,}, not {1 if row is None else row}.")


def _plan_of_row(path: Path, row: object, manifest: object) -> SavedPlan:
    """Build the plan of a row; columns that the row lacks come from the manifest."""
    if not isinstance(row, Mapping) or not isinstance(manifest, Mapping):
        raise LaunchError(f"{path}: its rows and its manifest are not from a search.")
    row = {current_name("column", str(name)): value for name, value in row.items()}
    if row.get("feasible") is False:
        raise LaunchError(f"{path}: this row has no plan: {row.get('reason')}")
    workload = next(
        (workload_name for column, workload_name in _WORKLOAD_COLUMNS.items() if column in row),
        None,
    )
    if workload is None or "model" not in row:
        raise LaunchError(f"{path}: its columns are not from a result of planner.")
    pools = terms_of(workload, "pool") if row.get("prefill_gpu") else {}
    defaults = parameter_defaults(workload)
    parameters = [*terms_of(workload, "parameter"), *pools]
    specified = [name for name in parameters if row.get(name) is not None]
    if missing := [
        parameter
        for parameter in parameters
        if parameter not in specified and parameter not in defaults
    ]:
        raise LaunchError(f"{path}: the row lacks {', '.join(missing[:4])}: it is not a full plan.")
    manifest_answers = manifest.get("answers", {})
    if not isinstance(manifest_answers, Mapping):
        raise LaunchError(f"{path}: the answers of its manifest are not a table.")
    manifest_answers = current_keys(manifest_answers, str(path))
    answers = {name: value for name, value in manifest_answers.items() if name in glossary()}
    chosen = _RESULT_ONLY if manifest_answers else ()
    for name in terms_of(workload, "question"):
        if row.get(name) not in (None, "") and name not in (*parameters, *chosen):
            answers[name] = _spec_text(manifest, name, row[name])
    if not pools:
        answers = {name: value for name, value in answers.items() if name not in _POOL_COLUMNS}
    answers.pop("space", None)
    answers = with_one_length(answers)
    table = {
        "workload": workload,
        "answers": answers,
        "parameters": {name: row[name] for name in specified},
        "specs_folder": str(manifest_answers.get("specs") or ""),
    }
    return SavedPlan.from_dict(table, str(path))


def _spec_text(manifest: Manifest, name: str, value: object) -> object:
    """Return the user's name of a spec; values of other questions are unchanged."""
    texts_by_kind = manifest.get("words")
    kind = "gpu" if name in _GPUS else name
    names = texts_by_kind.get(kind) if isinstance(texts_by_kind, Mapping) else None
    return names.get(value, value) if isinstance(names, Mapping) else value


def read_saved_plan(path: Path, row: int | None, specs: Path | None = None) -> SavedPlan:
    """Read the plan of a file, a launch folder, a result row, or a scenario of a sweep.

    Raises SpecError or LaunchError if it cannot be read, or has no plan or no such row.
    """
    if os.path.isdir(path) and os.path.isfile(path / MANIFEST):
        return SavedPlan.read(path / PLAN_FILE)
    if os.path.isdir(path):
        return _pinned_scenario(path, row, specs)
    return plan_of_file(path, row)


def _pinned_scenario(folder: Path, number: int | None, specs: Path | None = None) -> SavedPlan:
    """Return the recommended plan of scenario ``number`` of the sweep in a folder."""
    from planner.sweeps.scenario_batches import RERUN_HINT
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
            f"{folder}: scenario {number} does not belong to the sweep's plan. {RERUN_HINT}"
        ) from error


_WORK, _WORKLOAD = "work", "workload"
_TEXTS = ("name", "description")
_FURTHER_KEYS = (*_TEXTS, _WORK, _WORKLOAD, SETTINGS, OBJECTIVES)
_MAX_ERRORS = 20


def read_plan(name_or_path: str, specs: Path | None = None) -> SweepPlan:
    """Read the sweep plan of a TOML file, or a built-in plan by name.

    Raises SpecError or SearchSpaceError if the file is missing or no TOML, or if its questions are
    unknown, contradictory or too many; one line for each error.
    """
    path = Catalogue(specs).find(SpecKind.SWEEPS, name_or_path)
    try:
        return make_sweep(read_toml(path), specs, name=path.stem)
    except SearchSpaceError as error:
        lines = str(error).splitlines()
        raise SearchSpaceError("\n".join(f"{path}: {line}" for line in lines)) from error


def make_sweep(
    table: UncheckedTable,
    specs: Path | None = None,
    name: str = DEFAULT_NAME,
    option_name: OptionNamer = str,
) -> SweepPlan:
    """Build a sweep plan from the tables of a file; ``option_name`` names questions in errors.

    Raises SearchSpaceError if its questions are unknown, contradictory or too many; one line for
    each error.
    """
    reader = _Reader(specs=specs, option_name=option_name)
    plan = reader.plan(table, name)
    errors = [*reader.errors, *validation_errors(plan, option_name)]
    if errors:
        errors = list(dict.fromkeys(errors))
        more = [f"... and {len(errors) - _MAX_ERRORS} more."] if len(errors) > _MAX_ERRORS else []
        raise SearchSpaceError("\n".join([*errors[:_MAX_ERRORS], *more]))
    return plan


@dataclass
class _Reader:
    """Reads the tables of a plan and collects their errors."""

    specs: Path | None
    option_name: OptionNamer
    errors: list[str] = field(default_factory=list)

    def plan(self, table: UncheckedTable, name: str) -> SweepPlan:
        """Parse the TOML table of a sweep into a plan; faults are appended to ``self.errors``."""
        work_tables = table.get(_WORK, [{}])
        tables: list[dict[str, object]] = [{}]
        if (
            isinstance(work_tables, list)
            and work_tables
            and all(isinstance(entry, dict) for entry in work_tables)
        ):
            tables = work_tables
        else:
            self.errors.append(f"{_WORK} is a table [[{_WORK}]] or several of them.")
        common = {key: value for key, value in table.items() if key not in (*_TEXTS, _WORK)}
        works = [
            self._work(title, workload, common, entry)
            for entry in tables
            if (workload := self._workload(entry, common))
            for title in [self._title(entry, workload, tables)]
        ]
        terms = {
            name: term for work in works for name, term in available_terms(work.workload).items()
        }
        for word in common:
            if full_name(word, terms) not in terms and word not in _FURTHER_KEYS:
                self.errors.append(self._unknown_name_message(word, terms, "", ""))
        titles = [work.name for work in works]
        for title in dict.fromkeys(titles):
            if titles.count(title) > 1:
                self.errors.append(f"Several kinds of work have the name {title!r}: name each.")
        texts = {key: str(table[key]) for key in _TEXTS if key in table}
        return SweepPlan(**{"name": name, **texts}, works=tuple(works), specs=self.specs)

    def _workload(self, table: UncheckedTable, common: Answers) -> str | None:
        """Return the workload of a kind of work; if unknown, record an error and return None."""
        name = table.get(_WORKLOAD, common.get(_WORKLOAD, Request.workload))
        if name in workload_names():
            return str(name)
        hint = did_you_mean(str(name), workload_names())
        self.errors.append(f"Unknown {self.option_name(_WORKLOAD)} {name!r}.{hint}")
        return None

    def _title(self, table: UncheckedTable, workload: str, tables: Sequence[object]) -> str:
        number = f" {tables.index(table) + 1}" if len(tables) > 1 else ""
        return str(table.get("name", workload + number))

    def _work(
        self,
        title: str,
        workload: str,
        common: Answers,
        specific: Answers,
    ) -> SweepWorkload:
        """Build one kind of work from the common answers that apply and its own answers."""
        terms = available_terms(workload)
        answers: dict[str, object] = {}
        for table in (common, specific):
            for key, value in table.items():
                name = full_name(key, terms)
                if name in terms:
                    answers[name] = value
                elif table is specific and key not in _FURTHER_KEYS:
                    self.errors.append(
                        self._unknown_name_message(key, terms, workload, f"{title}: ")
                    )
        goals = specific.get(OBJECTIVES, common.get(OBJECTIVES, []))
        axes = {name: self._values(terms[name], value) for name, value in answers.items()}
        return SweepWorkload(
            name=title,
            workload=workload,
            # Contracts and prices last: scenarios that differ only in these are neighbours.
            axes={
                name: axes[name]
                for name in sorted(axes, key=lambda name: terms[name].group == TERMS)
                if axes[name]
            },
            settings={**self._settings(common), **self._settings(specific)},
            objectives=self._parse_list(OBJECTIVES, goals) if goals else (),
        )

    def _settings(self, table: UncheckedTable) -> Settings:
        """Return the table of parameters and values; if it is no table, record an error."""
        value = table.get(SETTINGS, {})
        if isinstance(value, Mapping):
            return value
        self.errors.append(f"{SETTINGS} is a table of parameters and values, not {value!r}.")
        return {}

    def _unknown_name_message(
        self, word: str, terms: Mapping[str, Term], workload: str, where: str
    ) -> str:
        """Return the error text for an unknown name, with where it belongs or a similar name."""
        names = [workload] if workload else workload_names()
        if any(
            full_name(word, terms_of(workload_name, "parameter"))
            in terms_of(workload_name, "parameter")
            for workload_name in names
        ):
            return f"{where}{word} is a parameter: write it in the table {SETTINGS}."
        workloads = [
            workload_name
            for workload_name in workload_names()
            if full_name(word, available_terms(workload_name)) in available_terms(workload_name)
        ]
        if workloads:
            return f"{where}{word} is for workload {' or '.join(workloads)}."
        hint = did_you_mean(word, [*terms, *_FURTHER_KEYS])
        return f"{where}Unknown question or limit {word!r}.{hint}"

    def _parse_list(self, name: str, value: object) -> Values:
        """Return the different values of a list; if it is invalid, record an error, return ()."""
        try:
            return tuple(dict.fromkeys(split_items(value, name)))
        except (PlannerError, TypeError) as error:
            self.errors.append(str(error))
            return ()

    def _values(self, term: Term, answer: object) -> Values:
        """Return the values of a question, without duplicates or aliases of one spec."""
        if isinstance(answer, Mapping) or (term.type == "price" and "=" in str(answer)):
            return (answer,)  # the prices of several GPUs are one answer
        values = self._parse_list(self.option_name(term.term), answer)
        if values == (ALL,) and term.term == "num_gpus":
            return powers_of_two_counts(None)
        if values == (ALL,) and term.term in SPECS:
            return tuple(Catalogue(self.specs).names(SPECS[term.term]))
        if values == (ALL,):
            return CONTRACTS if term.term == "contract" else values
        if term.type in ("count", "counts"):
            return tuple(dict.fromkeys(self._parse_count(term, value) for value in values))
        if term.term not in SPECS:
            return values
        values_by_spec: dict[object, str] = {}
        for value in values:
            values_by_spec.setdefault(self._find_spec(term.term, value), str(value))
        return tuple(values_by_spec.values())

    def _parse_count(self, term: Term, value: object) -> object:
        """Return the parsed value of a term; 1, with an error recorded, if it is invalid."""
        try:
            return parse_value(term, value, self.option_name(term.term))
        except PlannerError as error:
            self.errors.append(str(error))
            return 1

    def _find_spec(self, name: str, value: object) -> object:
        """Return the path of a spec, the same for all its names; the value if there is no spec."""
        try:
            return Catalogue(self.specs).find(SPECS[name], str(value))
        except PlannerError:
            return value  # a model of Hugging Face, or an error of the later check
