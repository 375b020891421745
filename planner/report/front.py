"""The Pareto front as a table that fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from planner.estimators.estimate import Estimate
from planner.optimize.columns import columns
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.report import text
from planner.report.breakdown import LAYOUT, confidence_of
from planner.report.console import print_title
from planner.report.fitted import Column, print_fitted
from planner.terms import term_of_column

_CONFIGURATION = tuple(name for name in LAYOUT if name != "gradient_accumulation_steps")
_OF_OBJECTIVE = {
    "throughput": "step_time_s",
    "step_time": "step_time_s",
    "time_to_train": "time_to_train_days",
    "gpu_hours": "gpu_hours",
    "cost": "cost_usd",
    "memory_headroom": "peak_memory_gib",
}
_NO_RANK = "30"
_PARALLEL = "_parallel"


def print_front(console: Console, result: SearchResult, top: int) -> None:
    """The best rows of the front, best first, with the columns that vary."""
    if result.estimate is None:
        return
    problem = result.problem
    table = columns(result.estimate, problem.price_per_gpu_second)
    num_rows = len(table["num_gpus"])
    varying = [name for name in _CONFIGURATION if len(set(table[name][:top])) > 1]
    print_title(console, _title(problem, num_rows, min(top, num_rows)))
    known = {"num_gpus"} if len(problem.mesh.values["num_gpus"]) == 1 else set()
    constant = [name for name in _CONFIGURATION if name not in {*varying, *known}]
    _print_constant(console, {name: table[name] for name in constant})
    shown = [_column(name, table[name][:top]) for name in (*varying, *_results(problem))]
    ties = _ties(result.estimate, table["step_time_s"][:top])
    print_fitted(console, [_column("#", ties), *shown], rank=_rank, short=_short)
    if any(rank.endswith("=") for rank in ties):
        _print_tie(console, result.estimate)


def _ties(estimate: Estimate, step_times: Sequence[float]) -> list[str]:
    """Ranks, with = behind those whose step time published runs do not tell from the first."""
    sure = confidence_of(estimate)
    factor = 1.0 if sure is None else sure.layout
    best = step_times[0]
    return [
        f"{rank}=" if rank > 1 and best / factor < time < best * factor else str(rank)
        for rank, time in enumerate(step_times, start=1)
    ]


def _print_tie(console: Console, estimate: Estimate) -> None:
    sure = confidence_of(estimate)
    if sure is not None:
        console.print(
            f"= ties with the first: of published runs that differ in layout alone, 9 of 10 "
            f"pairs are told apart only beyond a factor of {sure.layout:.2f}."
        )


def _title(problem: Problem, num_rows: int, shown: int) -> str:
    goals = ", ".join(objective.name for objective in problem.objectives)
    if num_rows == 1:
        return f"Best by {goals}"
    some = f"{shown} of {num_rows}" if shown < num_rows else f"all {num_rows}"
    return f"Pareto front by {goals}: {some}, best first"


def _print_constant(console: Console, constant: dict[str, Sequence[object]]) -> None:
    same = [f"{name} {text.value(values[0])}" for name, values in constant.items()]
    if same:
        console.print(f"Same for all rows: {', '.join(same)}")
    console.print()


def _results(problem: Problem) -> list[str]:
    names = [_OF_OBJECTIVE.get(objective.name) for objective in problem.objectives]
    wanted = [*names, "step_time_s", "model_flops_utilization", "peak_memory_gib"]
    if len(problem.mesh.values["num_gpus"]) > 1:
        wanted.append("tokens_per_s")
    return list(dict.fromkeys(name for name in (*wanted, "tokens_per_s_per_gpu") if name))


def _column(name: str, values: Sequence[object]) -> Column:
    term = term_of_column(name)
    return Column(
        name=name,
        header=term.column_header if term else name,
        cells=[_cell(name, value) for value in values],
        numeric=term is None or not term.is_word,
    )


def _cell(name: str, value: object) -> str:
    if not isinstance(value, float):
        return text.value(value)
    if not math.isfinite(value):
        return "-"
    if name == "model_flops_utilization":
        return f"{100 * value:.1f}%"
    if name == "cost_usd":
        return text.count(value)
    return text.significant(value) if name != "peak_memory_gib" else f"{value:.1f}"


def _rank(name: str) -> int:
    term = term_of_column(name)
    return int(term.rank or _NO_RANK) if term else 0


def _short(column: Column) -> Column:
    if not column.name.endswith(_PARALLEL) or column.name == "sequence_parallel":
        return column
    return replace(column, header=column.name.removesuffix(_PARALLEL))
