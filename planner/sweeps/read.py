"""A plan of a sweep from a file or from options; all faults are told together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import PlannerError, SearchSpaceError, did_you_mean
from planner.given import Said
from planner.inputs import full_name, read, several
from planner.request import ALL, Request
from planner.specs.catalogue import Catalogue
from planner.specs.load import read_toml
from planner.specs.paths import SpecKind
from planner.sweeps.plan import (
    DEFAULT_NAME,
    LIMITS,
    MOST_SCENARIOS,
    OBJECTIVES,
    SETTINGS,
    Scenario,
    SweepPlan,
    Work,
)
from planner.terms import Term, terms_of
from planner.text import count
from planner.workloads.place import every_count
from planner.workloads.registry import workload_names, workload_of

_WORK = "work"
_TEXTS = ("name", "description")
# Questions that name spec files, and what kind of.
_SPECS = {
    "model": SpecKind.MODELS,
    "gpu": SpecKind.GPUS,
    "prefill_gpu": SpecKind.GPUS,
    "cluster": SpecKind.CLUSTERS,
    "framework": SpecKind.FRAMEWORKS,
    "engine": SpecKind.ENGINES,
    "space": SpecKind.SPACES,
}
_MOST_FAULTS = 20
_HINT = "see docs/sweeps.md, or search_spaces/sweeps/ for examples"


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
    table: Mapping[str, Any],
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
    if plan is not None and not reader.faults:
        reader.check(plan)
    if plan is None or reader.faults:
        found = list(dict.fromkeys(reader.faults))
        more = [f"... and {len(found) - _MOST_FAULTS} more."] if len(found) > _MOST_FAULTS else []
        raise SearchSpaceError("\n".join([*found[:_MOST_FAULTS], *more]))
    return plan


@dataclass
class _Reader:
    """Collects what is wrong with a plan."""

    specs: Path | None
    said: Said
    faults: list[str] = field(default_factory=list)

    def plan(self, table: Mapping[str, Any], name: str) -> SweepPlan | None:
        common = {key: value for key, value in table.items() if key not in (*_TEXTS, _WORK)}
        own = table.get(_WORK, [{}])
        if not isinstance(own, list) or not own or not all(isinstance(one, dict) for one in own):
            self.faults.append(f"[[{_WORK}]] is one table or several: {_HINT}.")
            return None
        kinds = self._workloads(common, own)
        known: set[str] = set()
        works = []
        for number, (one, workload) in enumerate(zip(own, kinds, strict=True), start=1):
            if workload is None:
                continue
            title = str(one.get("name", workload if len(own) == 1 else f"{workload} {number}"))
            works.append(self._work(title, workload, common, one, known))
        self._refuse_unknown(common, known)
        titles = [work.name for work in works]
        self.faults += [
            f"Two kinds of work are called {title!r}: give each its own name."
            for title in dict.fromkeys(titles)
            if titles.count(title) > 1
        ]
        texts = {key: str(table[key]) for key in _TEXTS if key in table}
        return SweepPlan(**{"name": name, **texts}, works=tuple(works), specs=self.specs)

    def _workloads(self, common: Mapping[str, Any], own: list[dict[str, Any]]) -> list[str | None]:
        """The workload of each kind of work; None of one that has no known one."""
        found: list[str | None] = []
        for one in own:
            word = one.get("workload", common.get("workload", Request.workload))
            if word not in workload_names():
                hint = did_you_mean(str(word), workload_names())
                self.faults.append(f"Unknown workload {word!r}.{hint}")
                word = None
            found.append(word)
        return found

    def _work(
        self,
        title: str,
        workload: str,
        common: Mapping[str, Any],
        own: Mapping[str, Any],
        known: set[str],
    ) -> Work:
        """One kind of work: what is common to all, where it knows it, and its own answers."""
        questions = terms_of(workload, "question") | _counted(workload)
        limits = terms_of(workload, "limit")
        asked: dict[str, Any] = {}
        for table, is_own in ((common, False), (own, True)):
            for word, value in table.items():
                name = full_name(word, questions)
                if name in questions:
                    known.add(word)
                    asked[name] = value
                elif is_own and word not in (*_TEXTS, "workload", LIMITS, SETTINGS, OBJECTIVES):
                    self.faults.append(self._unknown(word, questions, limits, f"{title}: "))
        bounds: dict[str, Any] = {}
        for table, is_own in ((common, False), (own, True)):
            for word, value in self._table(table, LIMITS).items():
                name = full_name(word, limits)
                if name in limits:
                    known.add(f"{LIMITS}.{word}")
                    bounds[name] = value
                elif is_own:
                    self.faults.append(self._unknown(word, limits, {}, f"{title}: limit "))
        goals = own.get(OBJECTIVES, common.get(OBJECTIVES, []))
        axes = {name: self._values(questions[name], value) for name, value in asked.items()}
        axes |= {f"{LIMITS}.{name}": self._listed(name, value) for name, value in bounds.items()}
        return Work(
            name=title,
            workload=workload,
            axes={name: values for name, values in axes.items() if values},
            settings={**self._table(common, SETTINGS), **self._table(own, SETTINGS)},
            objectives=self._listed(OBJECTIVES, goals) if goals else (),
        )

    def _table(self, table: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        value = table.get(key, {})
        if isinstance(value, Mapping):
            return value
        self.faults.append(f"{key} is a table of names and values, not {value!r}.")
        return {}

    def _refuse_unknown(self, common: Mapping[str, Any], known: set[str]) -> None:
        every = {
            name: term
            for workload in workload_names()
            for name, term in (terms_of(workload, "question") | _counted(workload)).items()
        }
        limits = {
            n: t for workload in workload_names() for n, t in terms_of(workload, "limit").items()
        }
        for word in common:
            if word not in {*known, "workload", LIMITS, SETTINGS, OBJECTIVES}:
                self.faults.append(self._unknown(word, every, limits, ""))
        for word in self._table(common, LIMITS):
            if f"{LIMITS}.{word}" not in known:
                self.faults.append(self._unknown(word, limits, {}, "limit "))

    def _unknown(
        self, word: str, known: Mapping[str, Term], limits: Mapping[str, Term], where: str
    ) -> str:
        if full_name(word, limits) in limits:
            return f"{where}{word} is a limit: it goes into [{LIMITS}]."
        if full_name(word, known) in known:
            return f"{where}{word} is of no workload of this plan."
        return f"{where}unknown {word!r}.{did_you_mean(word, known)} Known: {_HINT}."

    def _listed(self, name: str, given: Any) -> tuple[Any, ...]:
        try:
            return tuple(dict.fromkeys(several(given, name)))
        except (PlannerError, TypeError) as error:
            self.faults.append(str(error))
            return ()

    def _values(self, term: Term, given: Any) -> tuple[Any, ...]:
        """The values of a question, each once, whatever names it goes by."""
        if isinstance(given, Mapping):  # the prices of several GPUs are one answer
            return (given,)
        values = self._listed(self.said(term.term), given)
        if values == (ALL,):
            return self._every(term)
        if term.type == "count":
            return tuple(dict.fromkeys(self._count(term, value) for value in values))
        if term.term not in _SPECS:
            return values
        places: dict[Any, str] = {}
        for value in values:
            places.setdefault(self._place(term.term, value), str(value))
        return tuple(places.values())

    def _count(self, term: Term, value: Any) -> Any:
        try:
            return read(term, value, self.said(term.term))
        except PlannerError as error:
            self.faults.append(str(error))
            return value

    def _every(self, term: Term) -> tuple[Any, ...]:
        if term.term == "num_gpus":
            return every_count(None)
        if term.term in _SPECS:
            return tuple(Catalogue(self.specs).names(_SPECS[term.term]))
        if term.codes is not None:
            return tuple(term.shown(code) for code in term.codes)
        return (ALL,)

    def _place(self, name: str, value: Any) -> Any:
        """Where a spec is: names and aliases of one spec are one value."""
        try:
            return Catalogue(self.specs).find(_SPECS[name], str(value))
        except PlannerError:
            return value  # a model of Hugging Face; else the check of the plan tells

    def check(self, plan: SweepPlan) -> None:
        """Look at every value of every axis once, beside the first ones of the others."""
        number = plan.num_scenarios
        if number > MOST_SCENARIOS:
            self.faults.append(
                f"{count(number)} scenarios are more than {count(MOST_SCENARIOS)}: leave out some "
                "values, or make several plans."
            )
            return
        for work in plan.works:
            for scenario in _one_at_a_time(work):
                self._check_one(scenario)
            self._check_together(work)

    def _check_one(self, scenario: Scenario) -> None:
        try:
            request = scenario.request(self.specs, self.said)
            workload = workload_of(request.workload)
            for name in (*_SPECS, *workload.other_gpus):
                if (word := getattr(request, name, None)) is not None:
                    self._load(name, str(word))
        except PlannerError as error:
            self.faults.append(str(error))

    def _load(self, name: str, word: str) -> None:
        catalogue = Catalogue(self.specs)
        if name == "model":
            catalogue.load_model(word)
        elif word != ALL:
            catalogue.find(_SPECS[name], word)

    def _check_together(self, work: Work) -> None:
        """Answers that contradict each other whatever the others are."""
        axes = work.axes
        if "gpu" in axes and "cluster" in axes:
            self.faults.append(f"{work.name}: give gpu or cluster: a cluster has GPUs of its own.")
        if "price" in axes and len(axes.get("contract", ())) > 1:
            self.faults.append(
                f"{work.name}: at a price of its own every contract costs the same: leave out one."
            )
        most = axes.get(f"{LIMITS}.max_gpus")
        counts = axes.get("num_gpus", ())
        if most and counts and min(map(int, counts)) > max(map(int, most)):
            self.faults.append(f"{work.name}: all of num_gpus are above the limit max_gpus.")


def _counted(workload: str) -> dict[str, Term]:
    """The number of GPUs, which is a parameter that is asked for."""
    return {name: t for name, t in terms_of(workload, "parameter").items() if name == "num_gpus"}


def _one_at_a_time(work: Work) -> Iterator[Scenario]:
    first = {name: values[0] for name, values in work.axes.items()}
    yield Scenario(number=0, work=work, values=first)
    for name, values in work.axes.items():
        for value in values[1:]:
            yield Scenario(number=0, work=work, values={**first, name: value})
