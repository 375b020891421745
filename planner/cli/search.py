"""``planner search``: the best configurations of a search space."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli import options

if TYPE_CHECKING:
    from planner.optimize.exhaustive import Sink
    from planner.optimize.result import SearchResult
    from planner.plan import Plan
    from planner.request import Request


class Driver(StrEnum):
    """How a space is searched."""

    EXHAUSTIVE = "exhaustive"
    OPTUNA = "optuna"


class Sampler(StrEnum):
    """How Optuna chooses what to try."""

    NSGA2 = "nsga2"
    TPE = "tpe"


def search(
    context: typer.Context,
    model: options.Model,
    gpus: options.Gpus,
    gpu: options.Gpu = None,
    cluster: options.Cluster = None,
    space: Annotated[
        str | None,
        typer.Option(help="The search space: a name or a .toml file.", metavar="SPACE"),
    ] = None,
    framework: options.Framework = None,
    settings: options.Settings = None,
    sequence_length: options.SequenceLength = None,
    global_batch_size: options.GlobalBatchSize = None,
    tokens: options.Tokens = None,
    objective: Annotated[
        list[str] | None,
        typer.Option(
            help="One to three of throughput, step_time, time_to_train, gpu_hours, cost, "
            "memory_headroom, num_gpus.",
            metavar="NAME[,NAME]",
        ),
    ] = None,
    memory_headroom: Annotated[
        str | None, typer.Option(help="At least so much free memory, as 5GiB.", metavar="BYTES")
    ] = None,
    step_time: Annotated[
        str | None, typer.Option(help="At most so long a step, as 20s.", metavar="TIME")
    ] = None,
    time_to_train: Annotated[
        str | None, typer.Option(help="At most so long a run, as 30d.", metavar="TIME")
    ] = None,
    cost: Annotated[
        str | None, typer.Option(help="At most so many USD, as 1.5MUSD.", metavar="USD")
    ] = None,
    mfu: Annotated[
        str | None, typer.Option(help="At least this MFU, as 0.4 or 40%.", metavar="SHARE")
    ] = None,
    price: options.Price = None,
    ideal: options.Ideal = False,
    flops_efficiency: options.FlopsEfficiency = None,
    memory_efficiency: options.MemoryEfficiency = None,
    driver: Annotated[
        Driver, typer.Option(help="Try every configuration, or sample a very large space.")
    ] = Driver.EXHAUSTIVE,
    trials: Annotated[int, typer.Option(min=1, help="Optuna: configurations to try.")] = 2000,
    seed: Annotated[int, typer.Option(min=0, help="Optuna: the seed.")] = 0,
    sampler: Annotated[Sampler, typer.Option(help="Optuna: the sampler.")] = Sampler.NSGA2,
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna: the file that keeps the study, to resume it.", metavar="FILE"),
    ] = None,
    csv: Annotated[
        Path | None, typer.Option(help="Write the rows as CSV; - is stdout.", metavar="FILE")
    ] = None,
    json: Annotated[
        Path | None, typer.Option(help="Write the rows as JSON; - is stdout.", metavar="FILE")
    ] = None,
    all_rows: Annotated[
        bool, typer.Option("--all", help="Write every feasible row, not the front alone.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="Rows to show.")] = 10,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Find the best configurations of a space."""
    from planner.report.files import check_outputs

    limits = {
        "memory_headroom": options.quantity("--memory-headroom", memory_headroom, "byte"),
        "step_time": options.quantity("--step-time", step_time, "second"),
        "time_to_train": options.quantity("--time-to-train", time_to_train, "second"),
        "cost": options.quantity("--cost", cost, "usd", "USD"),
        "model_flops_utilization": options.quantity("--mfu", mfu, "1"),
    }
    request = options.make_request(
        model=model,
        gpus=gpus,
        gpu=gpu,
        cluster=cluster,
        space=space,
        framework=framework,
        settings=settings,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        tokens=tokens,
        objectives=_objectives(objective),
        constraints={name: bound for name, bound in limits.items() if bound is not None},
        price=price,
        ideal=ideal,
        flops_efficiency=flops_efficiency,
        memory_efficiency=memory_efficiency,
        specs=specs,
    )
    check_outputs(csv, json)
    how: dict[str, Any] = {"driver": driver.value}
    if driver is Driver.OPTUNA:
        how |= {"trials": trials, "seed": seed, "sampler": sampler.value, "storage": storage}
    _search(
        request,
        how,
        csv=csv,
        json=json,
        all_rows=all_rows,
        command=context.obj,
        show=(None if quiet else top),
    )


def _search(
    request: Request,
    how: dict[str, Any],
    *,
    csv: Path | None,
    json: Path | None,
    all_rows: bool,
    command: list[str],
    show: int | None,
) -> None:
    from planner.errors import InfeasibleError, SearchSpaceError
    from planner.plan import make_plan
    from planner.report.infeasible import infeasible_message
    from planner.report.manifest import make_manifest
    from planner.report.rows import row_files

    if all_rows and how["driver"] == Driver.OPTUNA:
        raise SearchSpaceError("--all writes every configuration: it needs --driver exhaustive.")
    plan = make_plan(request)
    with row_files(plan.problem, csv, json) as files:
        result = _drive(plan, how, files.add if all_rows else None, quiet=show is None)
        if result.estimate is None:
            raise InfeasibleError(infeasible_message(request, result))
        if not all_rows:
            files.add(result.estimate)
        files.finish(make_manifest(plan, result, command, how))
    if show is not None:
        _show(request, plan, result, show, stdout_taken=Path("-") in (csv, json))


def _drive(plan: Plan, how: dict[str, Any], sink: Sink | None, *, quiet: bool) -> SearchResult:
    from planner.report.progress import progress_bar

    problem = plan.problem
    if how["driver"] == Driver.EXHAUSTIVE:
        from planner.optimize.exhaustive import exhaustive_search

        with progress_bar(problem.mesh.num_rows, "configurations", quiet=quiet) as progress:
            return exhaustive_search(problem, progress=progress, sink=sink)
    from planner.optimize.optuna_search import optuna_search

    chosen = {name: value for name, value in how.items() if name != "driver"}
    with progress_bar(how["trials"], "trials", quiet=quiet) as progress:
        return optuna_search(problem, study_name=None, progress=progress, **chosen)


def _show(
    request: Request, plan: Plan, result: SearchResult, top: int, *, stdout_taken: bool
) -> None:
    from planner.report.console import make_console
    from planner.report.search import print_search

    print_search(make_console(stderr=stdout_taken), request, plan, result, top)


def _objectives(given: list[str] | None) -> tuple[str, ...]:
    from planner.request import Request

    words = [word.strip() for text in given or [] for word in text.split(",")]
    return tuple(word for word in words if word) or Request.objectives
