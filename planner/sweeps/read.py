"""A plan of a sweep, and of a file or a folder of any kind; all faults are told together."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planner.base.cells import cell_value
from planner.base.files import manifest_path
from planner.base.reading import RESULT, opened, read_csv, read_json
from planner.decide.explaining.against import changed_request
from planner.errors import LaunchError, PlannerError, SearchSpaceError, SpecError, did_you_mean
from planner.launch import MANIFEST
from planner.launch.assumed import LaunchFile
from planner.launch.judge import as_started
from planner.question.inputs import full_name, read, several
from planner.question.request import ALL, Request
from planner.question.terms import Term, glossary, plain_values, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.load import read_toml
from planner.specs.paths import SpecKind
from planner.specs.price import CONTRACTS
from planner.sweeps.plan import (
    DEFAULT_NAME,
    OBJECTIVES,
    SETTINGS,
    SPECS,
    TERMS,
    SweepPlan,
    Values,
    Work,
    askable,
    faults_of,
)
from planner.sweeps.store import PLAN
from planner.workloads.given import Said
from planner.workloads.pinned import PLAN_FILE, PinnedPlan
from planner.workloads.place import every_count
from planner.workloads.registry import workload_names

_WORK, _WORKLOAD = "work", "workload"
_TEXTS = ("name", "description")
_OTHERS = (*_TEXTS, _WORK, _WORKLOAD, SETTINGS, OBJECTIVES)
_MOST_FAULTS = 20


def read_plan(word: str, specs: Path | None = None) -> SweepPlan:
    """A plan by the path of its file, or by the name of one that is shipped.

    Raises
    ------
    SpecError, SearchSpaceError
        The file is missing or no TOML, or what it asks is unknown, contradictory or too much:
        one line for each fault.
    """
    path = Catalogue(specs).find(SpecKind.SWEEPS, word)
    try:
        return make_sweep(read_toml(path), specs, name=path.stem)
    except SearchSpaceError as error:
        lines = str(error).splitlines()
        raise SearchSpaceError("\n".join(f"{path}: {line}" for line in lines)) from error


def make_sweep(
    table: Mapping[str, object],
    specs: Path | None = None,
    name: str = DEFAULT_NAME,
    said: Said = str,
) -> SweepPlan:
    """A plan of the tables of a file; ``said`` is how messages call a question.

    Raises
    ------
    SearchSpaceError
        What it asks is unknown, contradictory or too much: one line for each fault.
    """
    reader = _Reader(specs=specs, said=said)
    plan = reader.plan(table, name)
    found = [*reader.faults, *faults_of(plan, said)]
    if found:
        found = list(dict.fromkeys(found))
        more = [f"... and {len(found) - _MOST_FAULTS} more."] if len(found) > _MOST_FAULTS else []
        raise SearchSpaceError("\n".join([*found[:_MOST_FAULTS], *more]))
    return plan


@dataclass
class _Reader:
    """Collects what is wrong with the tables of a plan."""

    specs: Path | None
    said: Said
    faults: list[str] = field(default_factory=list)

    def plan(self, table: Mapping[str, object], name: str) -> SweepPlan:
        given = table.get(_WORK, [{}])
        own: list[dict[str, object]] = [{}]
        if isinstance(given, list) and given and all(isinstance(one, dict) for one in given):
            own = given
        else:
            self.faults.append(f"{_WORK} is a table [[{_WORK}]] or several of them.")
        common = {key: value for key, value in table.items() if key not in (*_TEXTS, _WORK)}
        works = [
            self._work(title, workload, common, one)
            for one in own
            if (workload := self._workload(one, common))
            for title in [self._title(one, workload, own)]
        ]
        known = {name: term for work in works for name, term in askable(work.workload).items()}
        for word in common:
            if full_name(word, known) not in known and word not in _OTHERS:
                self.faults.append(self._unknown(word, known, "", ""))
        titles = [work.name for work in works]
        for title in dict.fromkeys(titles):
            if titles.count(title) > 1:
                self.faults.append(f"Several kinds of work are called {title!r}: name each.")
        texts = {key: str(table[key]) for key in _TEXTS if key in table}
        return SweepPlan(**{"name": name, **texts}, works=tuple(works), specs=self.specs)

    def _workload(self, own: Mapping[str, object], common: Mapping[str, object]) -> str | None:
        """The workload of a kind of work; None where it has no known one."""
        word = own.get(_WORKLOAD, common.get(_WORKLOAD, Request.workload))
        if word in workload_names():
            return str(word)
        hint = did_you_mean(str(word), workload_names())
        self.faults.append(f"Unknown {self.said(_WORKLOAD)} {word!r}.{hint}")
        return None

    def _title(self, own: Mapping[str, object], workload: str, every: Sequence[object]) -> str:
        number = f" {every.index(own) + 1}" if len(every) > 1 else ""
        return str(own.get("name", workload + number))

    def _work(
        self, title: str, workload: str, common: Mapping[str, object], own: Mapping[str, object]
    ) -> Work:
        """One kind of work: of what is common to all what it knows, and its own answers."""
        known = askable(workload)
        asked: dict[str, object] = {}
        for table in (common, own):
            for word, value in table.items():
                name = full_name(word, known)
                if name in known:
                    asked[name] = value
                elif table is own and word not in _OTHERS:
                    self.faults.append(self._unknown(word, known, workload, f"{title}: "))
        goals = own.get(OBJECTIVES, common.get(OBJECTIVES, []))
        axes = {name: self._values(known[name], value) for name, value in asked.items()}
        return Work(
            name=title,
            workload=workload,
            # The terms of GPUs last: scenarios that differ in these alone are neighbours.
            axes={
                name: axes[name]
                for name in sorted(axes, key=lambda name: known[name].group == TERMS)
                if axes[name]
            },
            settings={**self._settings(common), **self._settings(own)},
            objectives=self._listed(OBJECTIVES, goals) if goals else (),
        )

    def _settings(self, table: Mapping[str, object]) -> Mapping[str, object]:
        value = table.get(SETTINGS, {})
        if isinstance(value, Mapping):
            return value
        self.faults.append(f"{SETTINGS} is a table of parameters and values, not {value!r}.")
        return {}

    def _unknown(self, word: str, known: Mapping[str, Term], workload: str, where: str) -> str:
        names = [workload] if workload else workload_names()
        if any(
            full_name(word, terms_of(one, "parameter")) in terms_of(one, "parameter")
            for one in names
        ):
            return f"{where}{word} is a parameter: it goes into the table {SETTINGS}."
        of = [one for one in workload_names() if full_name(word, askable(one)) in askable(one)]
        if of:
            return f"{where}{word} is for workload {' or '.join(of)}."
        return f"{where}Unknown question or limit {word!r}.{did_you_mean(word, known)}"

    def _listed(self, name: str, given: object) -> Values:
        try:
            return tuple(dict.fromkeys(several(given, name)))
        except (PlannerError, TypeError) as error:
            self.faults.append(str(error))
            return ()

    def _values(self, term: Term, given: object) -> Values:
        """The values of a question, each once, whatever names it goes by."""
        if isinstance(given, Mapping) or (term.type == "price" and "=" in str(given)):
            return (given,)  # the prices of several GPUs are one answer
        values = self._listed(self.said(term.term), given)
        if values == (ALL,) and term.term == "num_gpus":
            return every_count(None)
        if values == (ALL,) and term.term in SPECS:
            return tuple(Catalogue(self.specs).names(SPECS[term.term]))
        if values == (ALL,):
            return CONTRACTS if term.term == "contract" else values
        if term.type in ("count", "counts"):
            return tuple(dict.fromkeys(self._count(term, value) for value in values))
        if term.term not in SPECS:
            return values
        places: dict[object, str] = {}
        for value in values:
            places.setdefault(self._place(term.term, value), str(value))
        return tuple(places.values())

    def _count(self, term: Term, value: object) -> object:
        try:
            return read(term, value, self.said(term.term))
        except PlannerError as error:
            self.faults.append(str(error))
            return 1

    def _place(self, name: str, value: object) -> object:
        """Where a spec is: names and aliases of one spec are one value."""
        try:
            return Catalogue(self.specs).find(SPECS[name], str(value))
        except PlannerError:
            return value  # a model of Hugging Face; else the check of the plan tells


# A column that the results of one workload alone have.
_TELLING = {"step_time_s": "train", "prefill_latency_s": "inference", "mode": "serve"}
_OF_POOLS = ("mode", "prefill_gpu")
# What a launch file may leave to the plan beside it.
_OF_LOAD = ("gpu", *terms_about("length", "serve"), "request_rate")
_HEAD = 2**12
# What the beginning of a plan or a result has, and no launch file.
_OURS = ("workload = ", '"workload":', '"rows":')


def is_launch_file(path: Path) -> bool:
    """Whether a file, or a folder of files, is a launch of the user's, not planner's own."""
    if os.path.isdir(path):
        return not any(os.path.isfile(path / name) for name in (MANIFEST, PLAN))
    if path.suffix == ".csv":
        return False
    if path.suffix not in (".toml", ".json"):
        return True
    try:
        with opened(path) as file:
            head = file.read(_HEAD).decode(errors="replace")
    except (PlannerError, OSError):
        return True
    return not any(word in head for word in _OURS)


def request_in(
    path: Path,
    row: int | None,
    asked: Mapping[str, object],
    specs: Path | None = None,
    said: Said = str,
    beside: Request | None = None,
) -> Request:
    """What a plan, a row of a result or a launch file asks, with other answers and settings.

    Of a launch file ``asked`` answers what it leaves open, too, else the request that is
    ``beside`` it, else what is assumed; its own is that of the configuration that is started.

    Raises
    ------
    SpecError, SearchSpaceError, LaunchError
        It cannot be read, holds no plan, has no such row, or does not tell its model.
    """
    if not is_launch_file(path):
        base = pinned_in(path, row, specs).request()
        return changed_request(base, asked, said) if asked else base
    found = LaunchFile(path=path, asked=asked, specs=specs, number=row, said=said).question()
    if beside is not None:
        read = found.imported
        own = read.values.keys() - read.defaults.keys() - read.assumed.keys()
        known = {name: getattr(beside, name) for name in _OF_LOAD if name not in own}
        asked = {**{name: value for name, value in known.items() if value is not None}, **asked}
        found = LaunchFile(path=path, asked=asked, specs=specs, number=row, said=said).question()
    return as_started(changed_request(found.request, asked, said))[0]


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
    found, manifest = (_json_row if path.suffix == ".json" else _csv_row)(path, row)
    return _pinned(path, found, manifest)


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


def _pinned(path: Path, row: object, manifest: object) -> PinnedPlan:
    """The plan of a row; what its columns do not say is what the search was asked."""
    if not isinstance(row, Mapping) or not isinstance(manifest, Mapping):
        raise LaunchError(f"{path}: its rows and its manifest are not those of a search.")
    workload = next((of for column, of in _TELLING.items() if column in row), None)
    if workload is None or "model" not in row:
        raise LaunchError(f"{path}: its columns are not those of a result of planner.")
    pools = terms_of(workload, "pool") if row.get("prefill_gpu") else {}
    plain = plain_values(workload)
    parameters = [*terms_of(workload, "parameter"), *pools]
    told = [name for name in parameters if row.get(name) is not None]
    if lacking := [one for one in parameters if one not in told and one not in plain]:
        raise LaunchError(f"{path}: the row lacks {', '.join(lacking[:4])}: it is not a full plan.")
    asked = manifest.get("answers", {})
    if not isinstance(asked, Mapping):
        raise LaunchError(f"{path}: the answers of its manifest are not a table.")
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


def pinned_in(path: Path, row: int | None, specs: Path | None = None) -> PinnedPlan:
    """The plan of a file or of a launch, of a row of a result, or of a scenario of a sweep.

    Raises
    ------
    SpecError, LaunchError
        It cannot be read, holds no plan, or has no such row.
    """
    if os.path.isdir(path) and os.path.isfile(path / MANIFEST):
        return PinnedPlan.read(path / PLAN_FILE)
    if os.path.isdir(path):
        return _pinned_scenario(path, row, specs)
    return plan_in(path, row)


def _pinned_scenario(folder: Path, number: int | None, specs: Path | None = None) -> PinnedPlan:
    """The plan that a sweep recommends in a scenario, by its column ``scenario``."""
    from planner.sweeps.parts import AGAIN
    from planner.sweeps.store import Sweep
    from planner.workloads.plan import make_plan

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
        return PinnedPlan.of(plan, row)
    except KeyError as error:
        raise LaunchError(
            f"{folder}: scenario {number} is not of what its plan asks: it was changed. {AGAIN}"
        ) from error
