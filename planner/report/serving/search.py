"""The report of a search for ways to serve."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console

from planner.estimators.inference.estimate import evaluate_serving
from planner.optimize.serving.columns import configuration_of
from planner.optimize.serving.problem import AGGREGATED, ServingProblem, Source
from planner.optimize.serving.search import ServingResult
from planner.report.console import print_pairs, print_title
from planner.report.overview import print_assumed, print_counts
from planner.report.reproduce import estimate_command, folded
from planner.report.serving.front import print_serving_front
from planner.report.serving.parts import (
    latency_pairs,
    latency_table,
    memory_parts_table,
    settings_text,
    speed_pairs,
)
from planner.report.serving.question import describe_serving, print_serving_question
from planner.report.serving.sure import confidence_in, sure_pairs
from planner.request import Request
from planner.serving_plan import ServingPlan


def print_serving_search(
    console: Console, request: Request, plan: ServingPlan, result: ServingResult, top: int
) -> None:
    """The question, the front, its best plan in full, and the counts."""
    print_serving_question(console, plan)
    print_serving_front(console, result, top)
    if result.table:
        _print_best(console, request, result)
    _print_unfit(console, result)
    print_counts(console, result, describe_serving, "Plans")
    if not plan.problem.best_per_gpu:
        print_assumed(console, plan)


def _print_best(console: Console, request: Request, result: ServingResult) -> None:
    row = {name: values[0] for name, values in result.table.items()}
    source = source_of(result.problem, row)
    print_title(console, "The best plan")
    console.print(settings_text(row))
    console.print()
    of = "GPU" if row["mode"] == AGGREGATED else "decode GPU"
    console.print(f"Memory of the fullest {of}", style="bold")
    console.print(memory_parts_table(console, row, source.pool.setting.machine))
    print_title(console, "Speed")
    if row["mode"] == AGGREGATED:
        estimate = evaluate_serving(source.pool.setting, configuration_of(row))
        console.print(latency_table(console, estimate))
        console.print()
    else:
        print_pairs(console, latency_pairs(row))
    print_pairs(console, speed_pairs(row))
    sure = confidence_in(source)
    if sure is not None:
        print_title(console, "How sure")
        print_pairs(console, sure_pairs(row, sure))
    if row["mode"] == AGGREGATED:
        print_title(console, "To see it in full")
        chosen = {"gpu": row["gpu"]} | ({} if request.engine is None else {"engine": row["engine"]})
        command = estimate_command(request, row, **chosen)
        console.print(folded(command, console.width), soft_wrap=True)


def source_of(problem: ServingProblem, row: Mapping[str, object]) -> Source:
    """The source that a row of results comes from."""
    for source in problem.sources:
        engine = source.pool.setting.engine.name
        if (source.mode, source.pool.gpu, engine) == (row["mode"], row["gpu"], row["engine"]):
            return source
    return problem.sources[0]


def _print_unfit(console: Console, result: ServingResult) -> None:
    if not result.without_plan or not result.problem.best_per_gpu:
        return
    print_title(console, f"Without a plan: {len(result.without_plan)} GPUs")
    reasons: dict[str, list[str]] = {}
    for gpu, reason in result.without_plan.items():
        reasons.setdefault(describe_serving(result.problem, reason), []).append(gpu)
    for reason, gpus in sorted(reasons.items(), key=lambda item: -len(item[1])):
        console.print(f"{len(gpus)}  {reason}: {', '.join(gpus)}")
