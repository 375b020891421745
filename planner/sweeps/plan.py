"""The plan of a sweep: lists of models, GPUs, counts, contracts etc., and all combinations."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TypeAlias

from planner.base.formatting import format_count
from planner.base.read_files import require_entry
from planner.base.records import record
from planner.errors import PlannerError, SearchSpaceError
from planner.optimize.problem import constraints
from planner.question.parse_values import (
    Answer,
    check_price,
    limit_column,
    parse_value,
    price_of_contract,
)
from planner.question.renamed import current_keys
from planner.question.request import ALL, Answers, Request, Settings
from planner.question.terms import Term, glossary, terms_about, terms_of
from planner.specs.catalogue import Catalogue
from planner.specs.spec_paths import SpecKind
from planner.workloads.assumptions import PlanNotes
from planner.workloads.build_request import NEEDS, OptionNamer, make_request
from planner.workloads.make_plan import make_plan
from planner.workloads.priced_hardware import read_priced_hardware
from planner.workloads.registry import as_workload_name, workload_of
from planner.workloads.saved_plan import toml_value

MAX_SCENARIOS = 1_000_000
"""Maximum number of scenarios; larger plans are mostly typing errors."""

SETTINGS, OBJECTIVES = "settings", "objectives"
PRICE, CONTRACT = "price", "contract"
PRECISION = "precision"
"""The question of number formats; its parameter depends on the workload."""
DEFAULT_NAME = "sweep"
TERMS = "money"
"""The group of questions about contracts and prices."""
QUESTIONS = ("question", "limits")
"""The groups of questions about the work."""

Values: TypeAlias = tuple[object, ...]


def questions_of(workload: str) -> dict[str, Term]:
    """Return the questions of a workload by name, with number of GPUs and precision."""
    terms = terms_of(workload, "question", "parameter")
    questions = {n: t for n, t in terms.items() if "question" in t.kind or n == "num_gpus"}
    formats = terms.get(workload_of(workload).precision)
    return questions if formats is None else {**questions, PRECISION: formats}


def available_terms(workload: str) -> dict[str, Term]:
    """The questions and limits of a workload; a term of both kinds is a question."""
    return {**terms_of(workload, "limit"), **questions_of(workload)}


@record(kw_only=True)
class SweepWorkload:
    """A kind of work of a sweep.

    ``axes`` map questions and limits to one or several values; ``settings`` and ``objectives``
    are the same in every scenario.
    """

    name: str
    workload: str
    axes: Mapping[str, Values]
    settings: Settings
    objectives: Values

    @property
    def num_scenarios(self) -> int:
        """Number of all combinations."""
        return math.prod(map(len, self.axes.values()))

    @property
    def varied(self) -> tuple[str, ...]:
        """The questions with several values."""
        return tuple(name for name, values in self.axes.items() if len(values) > 1)

    def values(self, number: int) -> dict[str, object]:
        """Return the values of the combination ``number``; the last axis changes fastest."""
        answers = {}
        for name, values in reversed([*self.axes.items()]):
            number, index = divmod(number, len(values))
            answers[name] = values[index]
        return dict(reversed(answers.items()))


def work_questions(work: SweepWorkload) -> tuple[str, ...]:
    """Questions and limits with several values about the work, not about the hardware."""
    questions = questions_of(work.workload)
    return tuple(n for n in work.varied if n not in questions or questions[n].group in QUESTIONS)


def work_columns(work: SweepWorkload) -> tuple[str, ...]:
    """Columns of scenarios for `work_questions`."""
    questions = questions_of(work.workload)
    return tuple(name if name in questions else limit_column(name) for name in work_questions(work))


@record(kw_only=True)
class Scenario:
    """One scenario of a sweep: the ``values`` of its questions and limits."""

    number: int
    work: SweepWorkload
    values: Answers

    def request(self, specs: Path | None, option_name: OptionNamer = str) -> Request:
        """Return the scenario as a search request; ``option_name`` names questions in errors.

        Raises SpecError or SearchSpaceError if a value is invalid, or belongs to another workload.
        """
        work = self.work
        questions = questions_of(work.workload)
        limits = {name: value for name, value in self.values.items() if name not in questions}
        answers = {name: value for name, value in self.values.items() if name in questions}
        if {PRICE, CONTRACT} <= answers.keys() and len(work.axes[CONTRACT]) > 1:
            price = _price_of_contracts(work, answers[PRICE], option_name)
            answers[PRICE] = price_of_contract(
                price, str(_parse_answer(CONTRACT, answers[CONTRACT], option_name))
            )
        options = {"settings": work.settings, "objectives": work.objectives or None, "specs": specs}
        return make_request(
            {**answers, **options, "workload": work.workload, "constraints": limits},
            option_name=option_name,
        )


@record(kw_only=True)
class SweepPlan:
    """All scenarios of a sweep, numbered from 0, one work after the other.

    ``specs`` is the folder of the user's spec files.
    """

    name: str = DEFAULT_NAME
    description: str = ""
    works: tuple[SweepWorkload, ...]
    specs: Path | None = None

    @cached_property
    def num_scenarios(self) -> int:
        """Number of scenarios of all works."""
        return sum(work.num_scenarios for work in self.works)

    @cached_property
    def _end_numbers(self) -> list[int]:
        return [*accumulate(work.num_scenarios for work in self.works)]

    def scenario(self, number: int) -> Scenario:
        """Return the scenario with this number (from 0)."""
        index = next(index for index, end in enumerate(self._end_numbers) if number < end)
        first = self._end_numbers[index - 1] if index else 0
        work = self.works[index]
        return Scenario(number=number, work=work, values=work.values(number - first))

    def scenarios(self, numbers: range | None = None) -> Iterator[Scenario]:
        """The scenarios of some numbers, or all."""
        yield from map(self.scenario, range(self.num_scenarios) if numbers is None else numbers)

    @property
    def varied(self) -> tuple[str, ...]:
        """The questions with several values in some work, in order."""
        names = [name for work in self.works for name in work.varied]
        return tuple(dict.fromkeys(["work", *names] if len(self.works) > 1 else names))

    def to_dict(self) -> dict[str, object]:
        """Return the plan as tables of simple values, for `of_dict`."""
        return {
            "name": self.name,
            "description": self.description,
            "specs": None if self.specs is None else str(self.specs),
            "works": [
                {
                    "name": work.name,
                    "workload": work.workload,
                    "axes": {name: list(values) for name, values in work.axes.items()},
                    SETTINGS: dict(work.settings),
                    OBJECTIVES: list(work.objectives),
                }
                for work in self.works
            ],
        }

    def to_toml(self) -> str:
        """Return the plan as TOML text, which reads back to an equal plan."""
        texts = {"name": self.name, "description": self.description}
        lines = [f"{name} = {toml_value(text)}\n" for name, text in texts.items() if text]
        for work in self.works:
            lines.append("\n[[work]]\n")
            entries: dict[str, object] = {"name": work.name, "workload": work.workload}
            entries |= work.axes
            entries |= {OBJECTIVES: work.objectives} if work.objectives else {}
            lines += [f"{name} = {_format_toml_values(value)}\n" for name, value in entries.items()]
            if work.settings:
                lines.append(f"[work.{SETTINGS}]\n")
                lines += [f"{n} = {_format_toml_values(v)}\n" for n, v in work.settings.items()]
        return "".join(lines)

    @classmethod
    def of_dict(cls, table: object) -> SweepPlan:
        """Build the plan from the tables of `to_dict`.

        Raises SearchSpaceError if the tables are invalid or have unknown questions.
        """
        has_none = isinstance(table, dict) and table.get("specs", "") is None
        return cls(
            name=require_entry(table, "name", str, SearchSpaceError),
            description=require_entry(table, "description", str, SearchSpaceError),
            works=tuple(map(_parse_work, require_entry(table, "works", list, SearchSpaceError))),
            specs=None if has_none else Path(require_entry(table, "specs", str, SearchSpaceError)),
        )

    @cached_property
    def digest(self) -> str:
        """SHA-256 digest of the questions and answers, without the name of the plan."""
        content = {name: value for name, value in self.to_dict().items() if name == "works"}
        return hashlib.sha256(json.dumps(content, sort_keys=False).encode()).hexdigest()


def _parse_work(table: object) -> SweepWorkload:
    """Parse a workload of a stored sweep plan; raises SearchSpaceError if it is invalid."""
    workload = as_workload_name(require_entry(table, "workload", str, SearchSpaceError))
    axes = current_keys(require_entry(table, "axes", dict, SearchSpaceError), "axes")
    for name in axes:
        if name not in available_terms(workload):
            raise SearchSpaceError(f"axes.{name}: is not an input of workload {workload}.")
    return SweepWorkload(
        name=require_entry(table, "name", str, SearchSpaceError),
        workload=workload,
        axes={name: _parse_values(axes, name) for name in axes},
        settings=require_entry(table, SETTINGS, dict, SearchSpaceError),
        objectives=_parse_values(table, OBJECTIVES),
    )


def _parse_values(table: object, name: str) -> Values:
    """Return the values of an axis or of the objectives; raises SearchSpaceError if invalid."""
    values = require_entry(table, name, list, SearchSpaceError)
    if not values and name != OBJECTIVES:
        raise SearchSpaceError(f"{name} has no value.")
    if not all(isinstance(value, str | int | float | dict) for value in values):
        raise SearchSpaceError(f"{name} has a value that is not a word or number.")
    return tuple(values)


def _format_toml_values(value: object) -> str:
    return toml_value(value[0] if isinstance(value, tuple | list) and len(value) == 1 else value)


SPECS = {name: SpecKind(f"{name.rpartition('_')[2]}s") for name in terms_about("spec")}
"""Kind of spec by question, for questions that name spec files."""

# A model for checks of a single answer.
_ANY_MODEL = "llama-7b"


def validation_errors(plan: SweepPlan, option_name: OptionNamer = str) -> Iterator[str]:
    """Yield errors of single answers and contradictions, or else of planning scenarios."""
    number = plan.num_scenarios
    if number > MAX_SCENARIOS:
        yield (
            f"{format_count(number)} scenarios are more than {format_count(MAX_SCENARIOS)}: "
            "leave out some values, or write several plans."
        )
        return
    catalogue = Catalogue(plan.specs)
    errors = [
        error
        for work in plan.works
        for name, values in work.axes.items()
        for value in values
        for error in _answer_errors(work, name, value, catalogue, option_name)
    ]
    errors += [error for work in plan.works for error in _contradictions(work, option_name)]
    yield from errors or (
        error for work in plan.works for error in _planning_errors(work, plan, option_name)
    )


def _answer_errors(
    work: SweepWorkload, name: str, value: object, catalogue: Catalogue, option_name: OptionNamer
) -> Iterator[str]:
    """Yield the errors of one answer that do not depend on other answers."""
    if name in NEEDS:
        return
    answers = {"model": _ANY_MODEL, "num_gpus": 1, name: value}
    scenario = Scenario(number=0, work=replace(work, settings={}, objectives=()), values=answers)
    try:
        request = scenario.request(catalogue.folder, option_name)
        if request.constraints:
            constraints(work.workload, request.constraints)
        if name == "model":
            catalogue.load_model(str(value))
        elif name in SPECS and value != ALL:
            catalogue.find(SPECS[name], str(value))
        else:  # hardware and contracts do not depend on the model
            read_priced_hardware(request, None, (), PlanNotes(catalogue), is_only=False)
    except PlannerError as error:
        yield str(error)


def _planning_errors(
    work: SweepWorkload, plan: SweepPlan, option_name: OptionNamer
) -> Iterator[str]:
    """Yield why no scenario can be planned; nothing if one of the first can."""
    reasons = []
    first = {name: values[0] for name, values in work.axes.items()}
    others = ({**first, n: value} for n, values in work.axes.items() for value in values[1:])
    for answers in (first, *others):
        scenario = Scenario(number=0, work=work, values=answers)
        try:
            make_plan(scenario.request(plan.specs, option_name))
        except PlannerError as error:
            reasons.append(str(error))
        else:
            return
    yield from dict.fromkeys(reasons)


def _parse_answer(name: str, value: object, option_name: OptionNamer) -> Answer:
    return parse_value(glossary()[name], value, option_name(name))


def _price_of_contracts(
    work: SweepWorkload, price: object, option_name: OptionNamer
) -> float | str | None:
    """Return a price after a check against all contracts of the work."""
    contracts = [
        str(_parse_answer(CONTRACT, contract, option_name)) for contract in work.axes[CONTRACT]
    ]
    stated = _parse_answer(PRICE, price, option_name)
    names = option_name(PRICE), option_name("purchase_price")
    return check_price(stated, contracts, *names)


def _contradictions(work: SweepWorkload, option_name: OptionNamer) -> Iterator[str]:
    """Yield errors of answers that contradict each other."""
    axes = work.axes
    if "gpu" in axes and "cluster" in axes:
        yield (
            f"{work.name}: give {option_name('gpu')} or {option_name('cluster')}, which sets "
            "the GPU."
        )
    for price in axes.get(PRICE, ()) if len(axes.get(CONTRACT, ())) > 1 else ():
        try:
            _price_of_contracts(work, price, option_name)
        except PlannerError as error:
            yield f"{work.name}: {error}"
    counts, max_counts = axes.get("num_gpus", ()), axes.get("max_gpus", ())
    if (
        counts
        and max_counts
        and min(map(int, map(str, counts))) > max(map(int, map(str, max_counts)))
    ):
        yield f"{work.name}: every number of GPUs is above {option_name('max_gpus')}."
