"""The Pareto front as a table that fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console

from planner import text
from planner.optimize.result import SearchResult
from planner.plan import Plan
from planner.report.console import print_title
from planner.report.fitted import Column, print_fitted
from planner.report.sure import ties
from planner.terms import glossary, term_of_column, terms_of

# What does not tell rows apart that something else does not tell, too.
_REDUNDANT = ("gradient_accumulation_steps", "pipeline_schedule")
_NO_RANK = "30"
_OF_OBJECTIVES = 3
_PARALLEL = "_parallel"
_SHORT_WORDS = {"aggregated": "agg", "disaggregated": "disagg"}


def print_front(console: Console, plan: Plan, result: SearchResult, top: int) -> None:
    """The best of each mode, then the front, best first, with the columns that vary."""
    if not result.table:
        return
    number = len(result.table["num_gpus"])
    rows = _chosen(plan, number, top)
    goal = plan.problem.objectives[0].name
    for axis, compared in result.comparisons.items():
        print_title(console, f"The best of each {axis} by {goal}")
        found = range(len(compared.losses))
        _print_rows(console, plan, compared.table, found, (axis,))
    print_title(console, _title(plan, number, len(rows)))
    _print_rows(console, plan, result.table, rows)


def _chosen(plan: Plan, number: int, top: int) -> list[int]:
    """Rows from the first to the last, or the first ones."""
    is_spread = plan.workload.wording.from_end_to_end
    if not is_spread or number <= top:
        return list(range(min(number, top)))
    return sorted({round(step * (number - 1) / max(top - 1, 1)) for step in range(top)})


def _title(plan: Plan, number: int, shown: int) -> str:
    goals = ", ".join(objective.name for objective in plan.problem.objectives)
    some = f"{shown} of {number}" if shown < number else f"all {number}"
    if number == 1:
        return f"Best by {goals}"
    order = "from one end to the other" if plan.workload.wording.from_end_to_end else "best first"
    return f"Pareto front by {goals}: {some}, {order}"


def _print_rows(
    console: Console,
    plan: Plan,
    table: Mapping[str, Sequence[Any]],
    rows: Sequence[int],
    named: Sequence[str] = (),
) -> None:
    wording = plan.workload.wording
    chosen = {name: [values[row] for row in rows] for name, values in table.items()}
    shown = _with_layout(plan, chosen)
    settings = [name for name in _settings(plan, shown) if _matters(plan, name, shown)]
    always = {"layout", *named}
    varying = [name for name in settings if len(set(shown[name])) > 1 or name in always]
    same = [f"{name} {text.value(shown[name][0])}" for name in settings if name not in varying]
    if same:
        console.print(f"Same for all rows: {', '.join(same)}")
    if legend := wording.legend(shown):
        console.print(legend)
    console.print()
    goals = [_of_objective(plan, o.name, shown) for o in plan.problem.objectives]
    wanted = dict.fromkeys([*varying, *goals, *wording.results(plan.counts)])
    tied, factor = _tied(plan, chosen)
    cells = [f"{row + 1}{'=' if tie else ''}" for row, tie in zip(rows, tied, strict=True)]
    ranks = Column(name="#", header="#", cells=cells, numeric=True)
    columns = [ranks, *(_column(name, shown[name]) for name in wanted if name in shown)]
    print_fitted(console, columns, rank=lambda name: _rank(name, goals), short=_short)
    if any(tied):
        console.print(
            "= ties with the first: of published runs that differ in layout alone, 9 of 10 "
            f"pairs are told apart only beyond a factor of {factor:.2f}."
        )


def _with_layout(plan: Plan, table: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """The columns and, where the workload has such words, the layouts in short."""
    layout = plan.workload.wording.layout
    if layout is None:
        return dict(table)
    rows = (dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True))
    return {**table, "layout": [layout(row) for row in rows]}


def _settings(plan: Plan, shown: Mapping[str, Any]) -> list[str]:
    """The columns that say what a configuration is, in the order of the terms."""
    hidden = {*_REDUNDANT, *plan.workload.wording.in_layout}
    named = [*plan.problem.cells[0], "num_gpus", "layout"]
    parameters = terms_of(plan.workload.name, "parameter", "derived")
    return [
        name
        for name in dict.fromkeys([*named, *parameters])
        if name in shown and name not in hidden
    ]


def _matters(plan: Plan, name: str, shown: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a setting tells something that the title and other columns do not."""
    if name in plan.problem.cells[0] or (name == "num_gpus" and plan.counts):
        return name in plan.problem.axes
    if name in glossary() and glossary()[name].type == "share" and not any(shown[name]):
        return False
    other = name.removeprefix("expert_")
    return other == name or other not in shown or list(shown[name]) != list(shown[other])


def _of_objective(plan: Plan, name: str, table: Mapping[str, Any]) -> str:
    """The column that tells an objective: the workload's choice, or its own."""
    chosen = plan.workload.wording.of_objective.get(name)
    own = (column for column in table if (term := term_of_column(column)) and term.term == name)
    return chosen or next(own, name)


def _tied(plan: Plan, table: Mapping[str, Sequence[Any]]) -> tuple[list[bool], float]:
    """Whether published runs tell a row's first objective from that of the first row."""
    goal = plan.problem.objectives[0].name
    row = {name: values[0] for name, values in table.items()}
    sure = plan.source_of(row).confidence(row["num_gpus"])
    if sure is None or not plan.problem.has_ties:
        return [False] * len(table["num_gpus"]), 1.0
    return ties(table[_of_objective(plan, goal, table)], sure), sure.layout


def _column(name: str, values: Sequence[Any]) -> Column:
    term = term_of_column(name)
    return Column(
        name=name,
        header=term.column_header if term else name,
        cells=[_cell(name, value) for value in values],
        numeric=term is not None and not term.is_word,
    )


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, float):
        words = text.value(value)
        return _SHORT_WORDS.get(words, words)
    if not math.isfinite(value):
        return "-"
    term = term_of_column(name)
    if name == "model_flops_utilization":
        return f"{100 * value:.1f}%"
    if name == "cost_usd":
        return text.count(value)
    if name == "peak_memory_gib":
        return f"{value:.1f}"
    is_in_ms = term is not None and term.column_header.endswith(" ms")
    return text.significant(1e3 * value if is_in_ms else value)


def _rank(name: str, goals: Sequence[str]) -> int:
    term = term_of_column(name)
    if term is None or name == "gpu":
        return 0
    own = int(term.rank or _NO_RANK)
    return min(own, _OF_OBJECTIVES) if name in goals else own


def _short(column: Column) -> Column:
    if not column.name.endswith(_PARALLEL) or column.name == "sequence_parallel":
        return column
    return replace(column, header=column.name.removesuffix(_PARALLEL))
