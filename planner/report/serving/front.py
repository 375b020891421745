"""Ways to serve as a table that fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from planner.optimize.serving.columns import PARAMETERS
from planner.optimize.serving.problem import AGGREGATED, ServingProblem
from planner.optimize.serving.search import ServingResult
from planner.report import text
from planner.report.console import print_title
from planner.report.fitted import Column, print_fitted
from planner.report.serving.sure import confidence_in, ties
from planner.terms import glossary, term_of_column, terms_of

# What the layout tells in short has no column of its own.
_IN_LAYOUT = {
    term.short: name for name, term in terms_of("serve", "parameter").items() if term.short
}
_SETTINGS = (
    "mode",
    "gpu",
    "engine",
    "num_gpus",
    "layout",
    *(name for name in PARAMETERS if name not in _IN_LAYOUT.values()),
)
# Objectives that are as sure as the speed of a layout, and their columns.
_TIED = {
    "throughput_per_gpu": "output_tokens_per_s_per_gpu",
    "throughput": "output_tokens_per_s",
    "cost_per_million_tokens": "cost_per_million_tokens_usd",
    "interactivity": "tokens_per_s_per_user",
}
_MILLISECONDS = ("time_to_first_token_s", "time_per_output_token_s")
_RESULTS = (
    *_MILLISECONDS,
    "tokens_per_s_per_user",
    "output_tokens_per_s_per_gpu",
    "cost_per_million_tokens_usd",
)
_OF_OBJECTIVE = {
    "cost_per_hour": "cost_per_hour_usd",
    "throughput": "output_tokens_per_s",
    "request_latency": "request_latency_s",
    "memory_headroom": "memory_headroom_gib",
}
_SHORT_MODES = {"aggregated": "agg", "disaggregated": "disagg"}
_RANKED = (
    "#",
    "gpu",
    "layout",
    "num_gpus",
    *_RESULTS,
    *sorted(_SETTINGS, key=lambda name: int(glossary()[name].rank or 0) if name != "layout" else 0),
)


def print_serving_front(console: Console, result: ServingResult, top: int) -> None:
    """The best of each mode, then rows all along the front, best first."""
    if not result.table:
        return
    number = len(result.table["num_gpus"])
    rows = _spread(number, top, result.problem.best_per_gpu)
    if result.best_of_modes and number > 1:
        goal = result.problem.objectives[0].name
        print_title(console, f"The best of each mode by {goal}")
        _print_rows(console, result.problem, result.best_of_modes, [0, 1])
    print_title(console, _title(result.problem, number, len(rows)))
    _print_rows(console, result.problem, result.table, rows)


def _spread(number: int, top: int, in_order: bool) -> list[int]:
    """Rows from the first to the last: all, or ``top`` evenly apart."""
    if in_order or number <= top:
        return list(range(min(number, top)))
    return sorted({round(step * (number - 1) / max(top - 1, 1)) for step in range(top)})


def _print_rows(
    console: Console,
    problem: ServingProblem,
    table: Mapping[str, Sequence[Any]],
    rows: Sequence[int],
) -> None:
    chosen = {name: [values[row] for row in rows] for name, values in table.items()}
    shown = shown_columns(chosen)
    settings = [name for name in _SETTINGS if _matters(problem, name, shown)]
    varying = [
        name
        for name in settings
        if len(set(shown[name])) > 1 or name == "layout" or (name == "gpu" and problem.best_per_gpu)
    ]
    same = [f"{name} {text.value(shown[name][0])}" for name in settings if name not in varying]
    if same:
        console.print(f"Same for all rows: {', '.join(same)}")
    console.print(_legend(shown))
    console.print()
    wanted = [*varying, *_results(problem)]
    tied = _tied(problem, chosen)
    cells = [f"{row + 1}{'=' if tie else ''}" for row, tie in zip(rows, tied, strict=True)]
    ranks = Column(name="#", header="#", cells=cells, numeric=True)
    columns = [ranks, *(_column(name, shown[name]) for name in wanted)]
    print_fitted(console, columns, rank=lambda name: _rank(problem, name))
    if any(tied):
        factor = confidence_in(problem.sources[0])
        console.print(
            "= ties with the first: published runs that differ in layout alone are told apart "
            f"by their speed only beyond a factor of {factor.layout if factor else 1:.2f}."
        )


def _tied(problem: ServingProblem, table: Mapping[str, Sequence[Any]]) -> list[bool]:
    """Whether published runs tell a row's first objective from that of the first row."""
    goal = problem.objectives[0].name
    if goal not in _TIED:
        return [False] * len(table["mode"])
    return ties(table[_TIED[goal]], confidence_in(problem.sources[0]))


def _matters(problem: ServingProblem, name: str, shown: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a setting tells something that the title and other columns do not."""
    if name in ("gpu", "layout"):
        return name == "layout" or problem.best_per_gpu
    if glossary()[name].type == "share" and not any(shown[name]):
        return False
    if name == "expert_quantization":
        return list(shown[name]) != list(shown["quantization"])
    # Decode workers batch nothing but their requests.
    return name != "max_num_batched_tokens" or AGGREGATED in shown["mode"]


def shown_columns(table: Mapping[str, Sequence[Any]]) -> dict[str, list[Any]]:
    """The columns of a result and the layouts in short."""
    names = list(table)
    rows = [dict(zip(names, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return {
        **{name: list(values) for name, values in table.items()},
        "layout": [layout(row) for row in rows],
    }


def layout(row: Mapping[str, Any]) -> str:
    """``8 x tp4``: replicas and how each is split; ``2 x tp1 + 3 x tp2``: prefill and decode."""
    mine = f"{row['replicas']:,} x {_split(row, '')}"
    if row["mode"] == AGGREGATED:
        return mine
    return f"{row['prefill_replicas']:,} x {_split(row, 'prefill_')} + {mine}"


def _split(row: Mapping[str, Any], prefix: str) -> str:
    degrees = {short: row[prefix + name] for short, name in _IN_LAYOUT.items()}
    words = [f"{short}{n}" for short, n in degrees.items() if n > 1]
    return " ".join(words) or "tp1"


def _legend(shown: Mapping[str, Sequence[Any]]) -> str:
    shapes = "replicas x their split"
    if set(shown["mode"]) != {AGGREGATED}:
        shapes += ", or prefill + decode workers"
    return f"layout: {shapes} (tp tensor, pp pipeline, dp attention data, ep expert parallel)"


def _title(problem: ServingProblem, number: int, shown: int) -> str:
    goals = ", ".join(objective.name for objective in problem.objectives)
    some = f"{shown} of {number}" if shown < number else f"all {number}"
    if problem.best_per_gpu:
        return f"The best plan of each GPU by {goals}: {some}"
    if number == 1:
        return f"Best by {goals}"
    return f"Pareto front by {goals}: {some}, from one end to the other"


def _results(problem: ServingProblem) -> list[str]:
    extra = [_OF_OBJECTIVE[o.name] for o in problem.objectives if o.name in _OF_OBJECTIVE]
    return list(dict.fromkeys([*_RESULTS[:2], *extra, *_RESULTS[2:]]))


def _rank(problem: ServingProblem, name: str) -> int:
    if name in {_OF_OBJECTIVE.get(objective.name) for objective in problem.objectives}:
        return 3
    return _RANKED.index(name) if name in _RANKED else len(_RANKED)


def _column(name: str, values: Sequence[Any]) -> Column:
    term = term_of_column(name)
    return Column(
        name=name,
        header=term.column_header if term else name,
        cells=[_cell(name, value) for value in values],
        numeric=term is not None and not term.is_word,
    )


def _cell(name: str, value: Any) -> str:
    if name == "mode":
        return _SHORT_MODES[value]
    if not isinstance(value, float):
        return text.value(value)
    if not math.isfinite(value):
        return "-"
    return text.significant(1e3 * value if name in _MILLISECONDS else value)
