"""Parts of a sweep: batches of scenarios, each stored in one compressed file."""

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
from types import NoneType
from typing import Any, cast

from planner.base.csv_cells import Row, Value
from planner.base.formatting import summarize_assumed
from planner.base.read_files import TABLE, open_regular_file, parse_json, read_lines
from planner.base.records import record
from planner.errors import PlannerError, SpecError
from planner.optimize.collector import main_rejection, value_or_none, values_or_none
from planner.optimize.reprice import search_with_shared_predictions
from planner.optimize.result import SearchResult, columns_of
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Columns, first_row
from planner.question.names import TOTAL_TOKENS
from planner.question.parse_values import limit_column, parse_value
from planner.question.terms import terms_of
from planner.show.presenters.infeasible import limit_texts
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import spec_name
from planner.sweeps.plan import PRECISION, TERMS, Scenario, SweepPlan, questions_of
from planner.workloads.make_plan import Plan, make_plan

RERUN_HINT = "Run the sweep again with --fresh."
"""Advice for a damaged file of a sweep."""

SCENARIOS_OF_A_PART = 16
"""The overhead of 2 to 5 ms is then near 1 %, and a killed process loses little work."""

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
        """Name of the file of the part."""
        return f"{self.number:06d}.jsonl.gz"


def parts_of(num_scenarios: int) -> Iterator[ScenarioBatch]:
    """All parts of a sweep, in order."""
    for number, first in enumerate(range(0, num_scenarios, SCENARIOS_OF_A_PART)):
        yield ScenarioBatch(number, first, min(first + SCENARIOS_OF_A_PART, num_scenarios))


def run_part(plan: SweepPlan, part: ScenarioBatch) -> bytes:
    """Run a batch of scenarios; return its file: column types, then row and front of each."""
    results = [*run_scenarios(plan.scenarios(range(part.first, part.end)), plan.specs)]
    head = {"rows": _kinds(results, front=False), "fronts": _kinds(results, front=True)}
    lines = [head, *(line for result in results for line in (result.row, result.front))]
    text = "".join(
        json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines
    )
    return gzip.compress(text.encode(), _LEVEL, mtime=0)


def read_head(path: Path) -> Mapping[str, Mapping[str, str]]:
    """Read the types of the columns of rows and of fronts from a part file.

    Raises SpecError if the file cannot be read, or is no part.
    """
    head = next(_read(path, 0), {})
    kinds = {name: kind for name in ("rows", "fronts") if isinstance(kind := head.get(name), dict)}
    if len(kinds) < 2:
        raise SpecError(f"{path}: does not begin with the kinds of its columns. {RERUN_HINT}")
    return kinds


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of the scenarios of a part, in order; raises SpecError as `read_head`."""
    return cast(Iterator[Row], _read(path, 1))


def read_results(path: Path) -> Iterator[tuple[Row, Mapping[str, list[Value]]]]:
    """The row and the columns of the front of each scenario; raises SpecError as `read_head`."""
    lines = cast(Iterator[Any], _read(path, 1, step=1))
    return zip(lines, lines, strict=False)


def _read(path: Path, first: int, step: int = 2) -> Iterator[dict[str, object]]:
    """Yield the JSON objects of every ``step``-th line of a gzip file, from ``first`` (0-based)."""
    with open_regular_file(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
        try:
            for text in islice(read_lines(unpacked, path, max_bytes=TABLE), first, None, step):
                line = parse_json(text, str(path))
                if not isinstance(line, dict):
                    raise SpecError(f"{path}: has a line that is not an object. {RERUN_HINT}")
                yield line
        except (EOFError, zlib.error) as error:
            raise SpecError(f"{path}: is cut off or damaged ({error}). {RERUN_HINT}") from error


def is_complete_part(path: Path, part: ScenarioBatch) -> bool:
    """Return True if the file of a batch exists with all scenarios and a valid checksum."""
    try:
        with open_regular_file(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
            return sum(1 for _ in unpacked) == 1 + 2 * (part.end - part.first)
    except (SpecError, OSError, EOFError, zlib.error):
        return False


def _kinds(outcomes: list[ScenarioResult], *, front: bool) -> dict[str, str]:
    """Return the type of each column (``flag``, ``count``, ...) of the rows, or of the fronts."""
    kinds: dict[str, str] = {}
    for outcome in outcomes:
        values = outcome.front.items() if front else ((n, (v,)) for n, v in outcome.row.items())
        for name, column in values:
            for kind in {*map(type, column)} - {NoneType}:
                kinds[name] = joint_kind(kinds.get(name, ""), _KINDS[kind])
            kinds.setdefault(name, "")
    return kinds


def joint_kind(first: str, second: str) -> str:
    """The kind of a column with values of both kinds; empty if both are unknown."""
    if not first or not second or first == second:
        return first or second
    return "number" if {first, second} == {"count", "number"} else "text"


# Terms in the columns of fronts. Only the recommended plan has all predictions.
_FRONT_TERM_KINDS = ("parameter", "derived", "pool", "objective", "limit")


@record(kw_only=True)
class ScenarioResult:
    """The result of a scenario: a row of values by column, and the columns of its front."""

    row: Row
    front: Mapping[str, list[Value]] = field(default_factory=dict)


def run_scenarios(
    scenarios: Iterable[Scenario], specs: Path | None = None
) -> Iterator[ScenarioResult]:
    """Search each scenario; yield its row and front, or the reason for no plan in the row.

    Neighbouring scenarios that differ only in contracts, prices and tokens of a training run share
    one prediction.
    """
    for _, group in groupby(scenarios, _question_of_predictions):
        scenarios_of_group, plans = [*group], list[Plan | PlannerError]()
        for scenario in scenarios_of_group:
            try:
                plans.append(make_plan(scenario.request(specs)))
            except PlannerError as error:
                plans.append(error)
        results = iter(
            search_with_shared_predictions(
                [plan.problem for plan in plans if isinstance(plan, Plan)]
            )
        )
        for scenario, plan in zip(scenarios_of_group, plans, strict=True):
            answers: dict[str, Value] = {"scenario": scenario.number, "work": scenario.work.name}
            answers["workload"] = scenario.work.workload
            answers |= _answer_columns(scenario, Catalogue(specs))
            if isinstance(plan, Plan):
                yield _outcome({**answers, **_common(plan)}, plan, next(results))
            else:
                reason = " ".join(str(plan).split())
                yield ScenarioResult(row={**answers, "feasible": False, "reason": reason})


def _question_of_predictions(scenario: Scenario) -> tuple[str, list[tuple[str, object]]]:
    """The question of a scenario without contracts, prices and tokens of a training run."""
    questions = questions_of(scenario.work.workload)
    unpredicted = {name for name, term in questions.items() if term.group == TERMS}
    unpredicted.add(TOTAL_TOKENS)
    values = scenario.values.items()
    return scenario.work.name, [pair for pair in values if pair[0] not in unpredicted]


def _outcome(answers: Row, plan: Plan, result: SearchResult) -> ScenarioResult:
    """Return the row of a scenario (best plan, or reason for none) and its Pareto front."""
    counts = {
        "configurations_evaluated": result.configurations_evaluated,
        "configurations_predicted": result.configurations_predicted,
        "configurations_feasible": result.configurations_feasible,
    }
    if not result.recommended_and_front:
        reason = _reason(result)
        return ScenarioResult(row={**answers, "feasible": False, "reason": reason, **counts})
    table = columns_of(result.recommended_and_front)
    first = {name: values[:1] for name, values in table.items()}
    others = {name: values[1:] for name, values in table.items()}
    row = {**answers, "feasible": True, "reason": None, **_recommended(plan, first), **counts}
    return ScenarioResult(row=row, front=_front(plan, others, answers))


def _answer_columns(scenario: Scenario, catalogue: Catalogue) -> dict[str, Value]:
    """Return the answers of a scenario by column, with the full names of specs."""
    questions = questions_of(scenario.work.workload)
    answers: dict[str, Value] = {}
    for name, value in scenario.values.items():
        term = questions.get(name)
        if term is None:
            answers[limit_column(name)] = str(value)
        elif name == PRECISION:
            answers[name] = str(value)
        elif not isinstance(value, Mapping):
            try:
                spec = spec_name(catalogue, name, str(value))
                answers[name] = parse_value(term, value) if spec is None else spec
            except PlannerError:
                # The search reports the error.
                answers[name] = value if isinstance(value, int | float) else str(value)
    return answers


def _common(plan: Plan) -> dict[str, Value]:
    """Return the named values that are the same for all GPUs and software of the plan."""
    named_values = [source.named for source in plan.problem.sources]
    return {
        name: value
        for name, value in named_values[0].items()
        if all(values[name] == value for values in named_values)
    }


def _recommended(plan: Plan, first: Columns) -> dict[str, Value]:
    """Return all columns of the recommended plan, with its assumptions and evidence."""
    table = full_columns(first, plan.problem.sources)
    row = first_row(table)
    row |= {"assumed": summarize_assumed(plan.assumed)}
    confidence = plan.source_of(row).confidence_of(row)
    if confidence is not None:
        row |= {"tie_factor": float(confidence.layout_tie_factor), "basis": confidence.basis}
    return {name: value_or_none(value) for name, value in row.items()}


def _front(plan: Plan, table: Columns, answers: Row) -> dict[str, list[Value]]:
    """Return the columns of the plans on the Pareto front, with the number of the scenario."""
    columns = _front_columns(plan.workload.name, tuple(table))
    named = plan.problem.sources[0].named
    number = len(table["num_gpus"])
    return {
        "scenario": [answers["scenario"]] * number,
        **{n: values_or_none(table[n]) for n in table if n in columns or n in named},
    }


@cache
def _front_columns(workload: str, columns: tuple[str, ...]) -> frozenset[str]:
    """The columns of fronts: parameters, objectives and limits."""
    terms = terms_of(workload, *_FRONT_TERM_KINDS)
    return frozenset(name for name in columns if {name, name.rpartition("_")[0]} & set(terms))


def _reason(result: SearchResult) -> str:
    """Return the reason for no plan, with value and bound of the nearest miss."""
    name = main_rejection(result.problem, result.groups)
    misses = [miss for miss in result.nearest_misses if miss.rejection == name]
    if misses:
        (nearest,) = misses
        if not math.isfinite(nearest.value):
            return f"{nearest.rejection} is unknown"
        bound, value = limit_texts(nearest, result.problem)
        return f"{nearest.rejection.replace('_', ' ')}: {value} against {bound}"
    return name.replace("_", " ")
