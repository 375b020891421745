"""``planner estimate``: one configuration in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli import options

if TYPE_CHECKING:
    from planner.request import Request


def estimate(
    context: typer.Context,
    model: options.Model,
    gpus: options.Gpus,
    settings: options.Settings = None,
    gpu: options.Gpu = None,
    cluster: options.Cluster = None,
    framework: options.Framework = None,
    sequence_length: options.SequenceLength = None,
    global_batch_size: options.GlobalBatchSize = None,
    tokens: options.Tokens = None,
    price: options.Price = None,
    ideal: options.Ideal = False,
    flops_efficiency: options.FlopsEfficiency = None,
    memory_efficiency: options.MemoryEfficiency = None,
    json: Annotated[
        Path | None, typer.Option(help="Write it as JSON; - is stdout.", metavar="FILE")
    ] = None,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Show one configuration in full."""
    request = options.make_request(
        model=model,
        gpus=gpus,
        gpu=gpu,
        cluster=cluster,
        space="single",
        framework=framework,
        settings=settings,
        sequence_length=sequence_length,
        global_batch_size=global_batch_size,
        tokens=tokens,
        price=price,
        ideal=ideal,
        flops_efficiency=flops_efficiency,
        memory_efficiency=memory_efficiency,
        specs=specs,
    )
    _estimate(request, json, command=context.obj, quiet=quiet)


def _estimate(request: Request, json: Path | None, *, command: list[str], quiet: bool) -> None:
    from planner.errors import InfeasibleError, SearchSpaceError
    from planner.optimize.exhaustive import exhaustive_search
    from planner.plan import make_plan
    from planner.report.console import make_console
    from planner.report.estimate import print_estimate, print_misfit, write_estimate
    from planner.report.files import check_outputs
    from planner.report.infeasible import infeasible_message

    check_outputs(None, json)
    plan = make_plan(request)
    if plan.problem.mesh.num_rows != 1:
        raise SearchSpaceError(
            f"That is {plan.problem.mesh.num_rows:,} configurations: give one value per "
            "parameter, or use `planner search`."
        )
    result = exhaustive_search(plan.problem)
    console = make_console(stderr=json == Path("-"))
    if result.estimate is None:
        if not quiet:
            print_misfit(console, plan, result)
        raise InfeasibleError(infeasible_message(request, result))
    write_estimate(json, plan, result, command)
    if not quiet:
        print_estimate(console, plan, result)
