"""Pieces of a sweep: some scenarios run together, kept as one compressed file."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from functools import cache
from itertools import groupby, islice
from pathlib import Path
from typing import cast

from planner.base import formatting
from planner.base.csv_cells import Row, Value, number_of_row
from planner.base.read_files import TABLE, open_regular_file, parse_json, read_lines
from planner.base.records import record
from planner.errors import PlannerError, SpecError
from planner.optimize.collector import value_or_none, why
from planner.optimize.reprice import searched
from planner.optimize.result import SearchResult, columns_of
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Columns, first_row, to_python_values
from planner.question.parse_values import limit_column, parse_value
from planner.question.terms import terms_of
from planner.show.presenters.infeasible import limit_texts
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import name_of
from planner.sweeps.plan import PRECISION, TERMS, Scenario, SweepPlan, questions_of
from planner.workloads.make_plan import Plan, make_plan

AGAIN = "Run the sweep again with --fresh."
"""What to do where a file of a sweep is damaged."""

SCENARIOS_OF_A_PART = 16
"""A task of 2 to 5 ms of its own is then a hundredth of the work, and little is lost by a kill."""

_LEVEL = 3
_KINDS: Mapping[type, str] = {bool: "flag", int: "count", float: "number", str: "text"}


@record()
class ScenarioBatch:
    """The scenarios ``first`` to ``end`` - 1 of a plan."""

    number: int
    first: int
    end: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.number:06d}.jsonl.gz"


def parts_of(num_scenarios: int, size: int = SCENARIOS_OF_A_PART) -> Iterator[ScenarioBatch]:
    """All parts of a sweep, in order."""
    for number, first in enumerate(range(0, num_scenarios, size)):
        yield ScenarioBatch(number, first, min(first + size, num_scenarios))


def run_part(plan: SweepPlan, part: ScenarioBatch) -> bytes:
    """The content of a part's file: the kinds of its columns, then a row and a front in turn."""
    found = [*run_scenarios(plan.scenarios(range(part.first, part.end)), plan.specs)]
    head = {"rows": _kinds(found, front=False), "fronts": _kinds(found, front=True)}
    lines = [head, *(line for one in found for line in (one.row, one.front))]
    text = "".join(
        json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines
    )
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


def read_head(path: Path) -> Mapping[str, Mapping[str, str]]:
    """The kinds of the columns of rows and of fronts.

    Raises SpecError if it cannot be read, or is no part, as of the next two.
    """
    head = next(_read(path, 0), {})
    kinds = {name: kind for name in ("rows", "fronts") if isinstance(kind := head.get(name), dict)}
    if len(kinds) < 2:
        raise SpecError(f"{path}: does not begin with the kinds of its columns. {AGAIN}")
    return kinds


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of the scenarios of a part, in order."""
    return cast(Iterator[Row], _read(path, 1))


def read_fronts(path: Path) -> Iterator[Mapping[str, list[Value]]]:
    """The columns of the fronts of the scenarios of a part, in order."""
    return cast(Iterator[Mapping[str, list[Value]]], _read(path, 2))


def _read(path: Path, first: int) -> Iterator[dict[str, object]]:
    with open_regular_file(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
        try:
            for text in islice(read_lines(unpacked, path, most=TABLE), first, None, 2):
                line = parse_json(text, str(path))
                if not isinstance(line, dict):
                    raise SpecError(f"{path}: has a line that is not an object. {AGAIN}")
                yield line
        except (EOFError, zlib.error) as error:
            raise SpecError(f"{path}: is cut off or damaged ({error}). {AGAIN}") from error


def is_whole(path: Path, part: ScenarioBatch) -> bool:
    """Whether a file is there with every scenario of the part.

    Its checksum tells whether what it says is what was written.
    """
    try:
        with open_regular_file(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
            return sum(1 for _ in unpacked) == 1 + 2 * (part.end - part.first)
    except (SpecError, OSError, EOFError, zlib.error):
        return False


def _kinds(outcomes: list[ScenarioResult], *, front: bool) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for outcome in outcomes:
        values = outcome.front.items() if front else ((n, [v]) for n, v in outcome.row.items())
        for name, column in values:
            for kind in {type(value) for value in column} - {type(None)}:
                kinds[name] = joint_kind(kinds.get(name, ""), _KINDS[kind])
            kinds.setdefault(name, "")
    return kinds


def joint_kind(one: str, other: str) -> str:
    """The kind of a column that has values of both kinds; empty: none is known."""
    if not one or not other or one == other:
        return one or other
    return "number" if {one, other} == {"count", "number"} else "text"


# Of the plans of a front the predictions in full are those of the recommended one alone.
_OF_FRONTS = ("parameter", "derived", "pool", "objective", "limit")


@record(kw_only=True)
class ScenarioResult:
    """What a scenario gave: a row of values by column, and the columns of its front."""

    row: Row
    front: Mapping[str, list[Value]] = field(default_factory=dict)


def run_scenarios(
    scenarios: Iterable[Scenario], specs: Path | None = None
) -> Iterator[ScenarioResult]:
    """Search scenarios; one that cannot be planned has its reason in the row.

    Neighbours that differ in the terms of GPUs alone are predicted once.
    """
    for _, alike in groupby(scenarios, _but_for_terms):
        several, plans = [*alike], list[Plan | PlannerError]()
        for scenario in several:
            try:
                plans.append(make_plan(scenario.request(specs)))
            except PlannerError as error:
                plans.append(error)
        results = iter(searched([one.problem for one in plans if isinstance(one, Plan)]))
        for scenario, plan in zip(several, plans, strict=True):
            asked: dict[str, Value] = {"scenario": scenario.number, "work": scenario.work.name}
            asked["workload"] = scenario.work.workload
            asked |= _named(scenario, Catalogue(specs))
            if isinstance(plan, Plan):
                yield _outcome({**asked, **_common(plan)}, plan, next(results))
            else:
                reason = " ".join(str(plan).split())
                yield ScenarioResult(row={**asked, "feasible": False, "reason": reason})


def _but_for_terms(scenario: Scenario) -> tuple[str, list[tuple[str, object]]]:
    """What a scenario asks, but for the terms of its GPUs."""
    questions = questions_of(scenario.work.workload)
    money = {name for name, term in questions.items() if term.group == TERMS}
    return scenario.work.name, [pair for pair in scenario.values.items() if pair[0] not in money]


def _outcome(answers: Row, plan: Plan, result: SearchResult) -> ScenarioResult:
    counts = {
        "configurations_evaluated": result.configurations_evaluated,
        "configurations_predicted": result.configurations_predicted,
        "configurations_feasible": result.configurations_feasible,
    }
    if not result.chosen:
        reason = _reason(result)
        return ScenarioResult(row={**answers, "feasible": False, "reason": reason, **counts})
    table = columns_of(result.chosen)
    first = {name: values[:1] for name, values in table.items()}
    others = {name: values[1:] for name, values in table.items()}
    row = {**answers, "feasible": True, "reason": None, **_recommended(plan, first), **counts}
    return ScenarioResult(row=row, front=_front(plan, others, answers))


def _named(scenario: Scenario, catalogue: Catalogue) -> dict[str, Value]:
    """The values that were asked for, specs by the names that results have."""
    questions = questions_of(scenario.work.workload)
    found: dict[str, Value] = {}
    for name, value in scenario.values.items():
        term = questions.get(name)
        if term is None:
            found[limit_column(name)] = str(value)
        elif name == PRECISION:
            found[name] = str(value)
        elif not isinstance(value, Mapping):
            try:
                known = name_of(catalogue, name, str(value))
                found[name] = parse_value(term, value) if known is None else known
            except PlannerError:
                # The search tells what is wrong with it.
                found[name] = value if isinstance(value, int | float) else str(value)
    return found


def _common(plan: Plan) -> dict[str, Value]:
    """What is the same wherever the plan looks."""
    several = [source.named for source in plan.problem.sources]
    return {
        name: value
        for name, value in several[0].items()
        if all(one[name] == value for one in several)
    }


def _recommended(plan: Plan, first: Columns) -> dict[str, Value]:
    """The recommended plan in full, and how sure it is."""
    table = full_columns(first, plan.problem.sources)
    row = first_row(table)
    row |= {"assumed": formatting.summarize_assumed(plan.assumed)}
    sure = plan.source_of(row).confidence(number_of_row(row, "num_gpus"))
    if sure is not None:
        row |= {"tie_factor": float(sure.layout), "basis": sure.basis}
    return {name: value_or_none(value) for name, value in row.items()}


def _front(plan: Plan, table: Columns, answers: Row) -> dict[str, list[Value]]:
    known = _of_fronts(plan.workload.name, tuple(table))
    named = plan.problem.sources[0].named
    number = len(table["num_gpus"])
    return {
        "scenario": [answers["scenario"]] * number,
        **{
            n: [*map(value_or_none, to_python_values(table[n]))]
            for n in table
            if n in known or n in named
        },
    }


@cache
def _of_fronts(workload: str, columns: tuple[str, ...]) -> frozenset[str]:
    """The columns that fronts have: parameters, and what plans are chosen or limited by."""
    terms = terms_of(workload, *_OF_FRONTS)
    return frozenset(name for name in columns if {name, name.rpartition("_")[0]} & set(terms))


def _reason(result: SearchResult) -> str:
    """What came closest to letting a plan through."""
    name = why(result.problem, result.groups)
    misses = [miss for miss in result.nearest_misses if miss.rejection == name]
    if misses:
        (nearest,) = misses
        if not math.isfinite(nearest.value):
            return f"{nearest.rejection} is unknown"
        bound, value = limit_texts(nearest, result.problem)
        return f"{nearest.rejection.replace('_', ' ')}: {value} against {bound}"
    return name.replace("_", " ")
