"""``planner estimate``: one configuration in full."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from planner.cli import options
from planner.cli import serving_options as serving


def estimate(
    context: typer.Context,
    model: options.Model,
    gpus: options.Gpus = None,
    workload: serving.WorkloadChoice = serving.Workload.TRAIN,
    settings: options.Settings = None,
    gpu: options.Gpu = None,
    cluster: options.Cluster = None,
    framework: options.Framework = None,
    sequence_length: options.SequenceLength = None,
    global_batch_size: options.GlobalBatchSize = None,
    tokens: options.Tokens = None,
    price: options.Price = None,
    dropout: options.Dropout = False,
    mtp_num_layers: options.MtpNumLayers = None,
    adapter: options.Adapter = "none",
    lora_rank: options.LoraRank = None,
    lora_targets: options.LoraTargets = None,
    ideal: options.Ideal = False,
    flops_efficiency: options.FlopsEfficiency = None,
    memory_efficiency: options.MemoryEfficiency = None,
    input_tokens: serving.InputTokens = None,
    output_tokens: serving.OutputTokens = None,
    request_rate: serving.RequestRate = None,
    burst: serving.BurstSize = None,
    engine: serving.Engine = None,
    prefix_cache_hit_rate: serving.PrefixCacheHitRate = 0.0,
    draft_tokens: serving.DraftTokens = 0,
    acceptance_rate: serving.AcceptanceRate = 0.0,
    draft_cost: serving.DraftCost = 0.0,
    json: options.Json = None,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Show one configuration in full."""
    given = locals()
    serving.check_options(given)
    if workload is serving.Workload.TRAIN:
        _estimate(given)
    else:
        from planner.cli.estimate_serving import estimate_serving

        estimate_serving(given)


def _estimate(given: dict[str, Any]) -> None:
    from planner.errors import InfeasibleError, SearchSpaceError
    from planner.optimize.exhaustive import exhaustive_search
    from planner.plan import make_plan
    from planner.report.console import make_console
    from planner.report.estimate import print_estimate, print_misfit, write_estimate
    from planner.report.files import check_outputs
    from planner.report.infeasible import infeasible_message

    request = options.make_request(given)
    json, quiet = given["json"], given["quiet"]
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
    write_estimate(json, plan, result, given["context"].obj)
    if not quiet:
        print_estimate(console, plan, result)
