"""The Pareto front as a table that fits the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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

# In the order of the table; the first to go when there is no room are the last of _RANKED.
_CONFIGURATION = tuple(name for name in LAYOUT if name != "gradient_accumulation_steps")
_RANKED = (
    "num_gpus",
    "tensor_parallel",
    "pipeline_parallel",
    "data_parallel",
    "micro_batch_size",
    "recompute",
    "offload",
    "context_parallel",
    "expert_parallel",
    "virtual_pipeline",
    "global_batch_size",
    "zero_stage",
    "data_parallel_replicas",
    "recompute_num_layers",
    "precision",
    "sequence_parallel",
    "flash_attention",
    "fp8_attention",
)
_WORDS = (
    "recompute",
    "offload",
    "precision",
    "sequence_parallel",
    "flash_attention",
    "fp8_attention",
)
_OF_OBJECTIVE = {
    "throughput": "step_time_s",
    "step_time": "step_time_s",
    "time_to_train": "time_to_train_days",
    "gpu_hours": "gpu_hours",
    "cost": "cost_usd",
    "memory_headroom": "peak_memory_gib",
}
_HEADERS = {
    "num_gpus": "GPUs",
    "step_time_s": "step time s",
    "time_to_train_days": "time to train days",
    "gpu_hours": "GPU- hours",
    "cost_usd": "cost USD",
    "peak_memory_gib": "peak memory GiB",
    "model_flops_utilization": "MFU",
    "tokens_per_s": "tokens /s",
    "tokens_per_s_per_gpu": "tokens /s /GPU",
}
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
    header = _HEADERS.get(name, name.replace("_", " "))
    return Column(
        name=name,
        header=header,
        cells=[_cell(name, value) for value in values],
        numeric=name not in _WORDS,
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
    if name in _RANKED:
        return 10 + _RANKED.index(name)
    results: Callable[[str], int] = ["#", "step_time_s", "cost_usd", "peak_memory_gib"].index
    return results(name) if name in ("#", "step_time_s", "cost_usd", "peak_memory_gib") else 30


def _short(column: Column) -> Column:
    if not column.name.endswith(_PARALLEL) or column.name == "sequence_parallel":
        return column
    return replace(column, header=column.name.removesuffix(_PARALLEL))
