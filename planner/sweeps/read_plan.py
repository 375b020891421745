"""A plan of a sweep from a file or from options; all faults are told together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from planner.errors import PlannerError, SearchSpaceError, did_you_mean
from planner.question.parse_values import full_name, parse_value, split_items
from planner.question.request import ALL, Request
from planner.question.terms import Term, terms_of
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
    askable,
    faults_of,
)
from planner.workloads.build_request import OptionNamer
from planner.workloads.priced_hardware import every_count
from planner.workloads.registry import workload_names

_WORK, _WORKLOAD = "work", "workload"
_TEXTS = ("name", "description")
_OTHERS = (*_TEXTS, _WORK, _WORKLOAD, SETTINGS, OBJECTIVES)
_MOST_FAULTS = 20


def read_plan(word: str, specs: Path | None = None) -> SweepPlan:
    """A plan by the path of its file, or by the name of one that is shipped.

    Raises SpecError or SearchSpaceError if the file is missing or no TOML, or what it asks is
    unknown, contradictory or too much: one line for each fault.
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
    option_name: OptionNamer = str,
) -> SweepPlan:
    """A plan of the tables of a file; ``option_name`` is how messages call a question.

    Raises SearchSpaceError if what it asks is unknown, contradictory or too much: one line for each
    fault.
    """
    reader = _Reader(specs=specs, option_name=option_name)
    plan = reader.plan(table, name)
    found = [*reader.faults, *faults_of(plan, option_name)]
    if found:
        found = list(dict.fromkeys(found))
        more = [f"... and {len(found) - _MOST_FAULTS} more."] if len(found) > _MOST_FAULTS else []
        raise SearchSpaceError("\n".join([*found[:_MOST_FAULTS], *more]))
    return plan


@dataclass
class _Reader:
    """Collects what is wrong with the tables of a plan."""

    specs: Path | None
    option_name: OptionNamer
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
        self.faults.append(f"Unknown {self.option_name(_WORKLOAD)} {word!r}.{hint}")
        return None

    def _title(self, own: Mapping[str, object], workload: str, every: Sequence[object]) -> str:
        number = f" {every.index(own) + 1}" if len(every) > 1 else ""
        return str(own.get("name", workload + number))

    def _work(
        self, title: str, workload: str, common: Mapping[str, object], own: Mapping[str, object]
    ) -> SweepWorkload:
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
        return SweepWorkload(
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

    def _unknown(self, word: str, terms: Mapping[str, Term], workload: str, where: str) -> str:
        names = [workload] if workload else workload_names()
        if any(
            full_name(word, terms_of(one, "parameter")) in terms_of(one, "parameter")
            for one in names
        ):
            return f"{where}{word} is a parameter: it goes into the table {SETTINGS}."
        of = [one for one in workload_names() if full_name(word, askable(one)) in askable(one)]
        if of:
            return f"{where}{word} is for workload {' or '.join(of)}."
        return f"{where}Unknown question or limit {word!r}.{did_you_mean(word, terms)}"

    def _listed(self, name: str, value: object) -> Values:
        try:
            return tuple(dict.fromkeys(split_items(value, name)))
        except (PlannerError, TypeError) as error:
            self.faults.append(str(error))
            return ()

    def _values(self, term: Term, given: object) -> Values:
        """The values of a question, each once, whatever names it goes by."""
        if isinstance(given, Mapping) or (term.type == "price" and "=" in str(given)):
            return (given,)  # the prices of several GPUs are one answer
        values = self._listed(self.option_name(term.term), given)
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
            return parse_value(term, value, self.option_name(term.term))
        except PlannerError as error:
            self.faults.append(str(error))
            return 1

    def _place(self, name: str, value: object) -> object:
        """Where a spec is: names and aliases of one spec are one value."""
        try:
            return Catalogue(self.specs).find(SPECS[name], str(value))
        except PlannerError:
            return value  # a model of Hugging Face; else the check of the plan tells
