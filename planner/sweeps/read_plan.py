"""Reads the plan of a sweep from a file or from options and reports all errors together."""

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
    available_terms,
    validation_errors,
)
from planner.workloads.build_request import OptionNamer
from planner.workloads.priced_hardware import powers_of_two_counts
from planner.workloads.registry import workload_names

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
    table: Mapping[str, object],
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

    def plan(self, table: Mapping[str, object], name: str) -> SweepPlan:
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

    def _workload(self, table: Mapping[str, object], common: Mapping[str, object]) -> str | None:
        """Return the workload of a kind of work; if unknown, record an error and return None."""
        name = table.get(_WORKLOAD, common.get(_WORKLOAD, Request.workload))
        if name in workload_names():
            return str(name)
        hint = did_you_mean(str(name), workload_names())
        self.errors.append(f"Unknown {self.option_name(_WORKLOAD)} {name!r}.{hint}")
        return None

    def _title(self, table: Mapping[str, object], workload: str, tables: Sequence[object]) -> str:
        number = f" {tables.index(table) + 1}" if len(tables) > 1 else ""
        return str(table.get("name", workload + number))

    def _work(
        self,
        title: str,
        workload: str,
        common: Mapping[str, object],
        specific: Mapping[str, object],
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

    def _settings(self, table: Mapping[str, object]) -> Mapping[str, object]:
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
        return f"{where}Unknown question or limit {word!r}.{did_you_mean(word, terms)}"

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
