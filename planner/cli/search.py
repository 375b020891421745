"""``planner search``: the best configurations of a search space."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from planner.cli import options
from planner.cli import serving_options as serving

if TYPE_CHECKING:
    from planner.estimators.estimate import Estimate
    from planner.optimize.exhaustive import Sink
    from planner.optimize.result import SearchResult
    from planner.plan import Plan
    from planner.request import Request


def search(
    context: typer.Context,
    model: options.Model,
    gpus: options.Gpus = None,
    workload: serving.WorkloadChoice = serving.Workload.TRAIN,
    gpu: options.Gpu = None,
    cluster: options.Cluster = None,
    space: options.Space = None,
    framework: options.Framework = None,
    settings: options.Settings = None,
    sequence_length: options.SequenceLength = None,
    global_batch_size: options.GlobalBatchSize = None,
    tokens: options.Tokens = None,
    objective: options.Objectives = None,
    memory_headroom: options.MemoryHeadroom = None,
    step_time: options.StepTime = None,
    time_to_train: options.TimeToTrain = None,
    cost: options.Cost = None,
    mfu: options.ModelFlopsUtilization = None,
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
    ttft: serving.Ttft = None,
    tpot: serving.Tpot = None,
    latency: serving.Latency = None,
    cost_per_million: serving.CostPerMillion = None,
    engine: serving.Engine = None,
    mode: serving.Mode = None,
    prefill_gpu: serving.PrefillGpu = None,
    prefix_cache_hit_rate: serving.PrefixCacheHitRate = 0.0,
    draft_tokens: serving.DraftTokens = 0,
    acceptance_rate: serving.AcceptanceRate = 0.0,
    draft_cost: serving.DraftCost = 0.0,
    driver: options.DriverChoice = options.Driver.EXHAUSTIVE,
    trials: options.Trials = 2000,
    seed: options.Seed = 0,
    sampler: options.SamplerChoice = options.Sampler.NSGA2,
    storage: options.Storage = "planner-study.db",
    csv: options.Csv = None,
    json: options.Json = None,
    all_rows: options.AllRows = False,
    top: options.Top = 10,
    specs: options.Specs = None,
    quiet: options.Quiet = False,
) -> None:
    """Find the best configurations of a space."""
    given = locals()
    serving.check_options(given)
    if workload is serving.Workload.TRAIN:
        _search(given)
    else:
        from planner.cli.search_serving import search_serving

        search_serving(given)


def _search(given: dict[str, Any]) -> None:
    from planner.errors import InfeasibleError
    from planner.plan import make_plan
    from planner.report.files import check_outputs
    from planner.report.infeasible import infeasible_message
    from planner.report.manifest import make_manifest
    from planner.report.rows import result_blocks, row_files
    from planner.request import Request

    request = options.make_request(
        given,
        objectives=options.objectives(given["objective"]) or Request.objectives,
        constraints=options.limits(given),
    )
    csv, json, all_rows = given["csv"], given["json"], given["all_rows"]
    check_outputs(csv, json)
    how = options.how(given)
    plan = make_plan(request)
    with row_files(csv, json) as files:

        def add(estimate: Estimate) -> None:
            files.add(result_blocks(plan.problem, estimate))

        result = _drive(plan, how, add if all_rows else None, quiet=given["quiet"])
        if result.estimate is None:
            raise InfeasibleError(infeasible_message(request, result))
        if not all_rows:
            add(result.estimate)
        files.finish(make_manifest(plan, result, given["context"].obj, how))
    if not given["quiet"]:
        _show(request, plan, result, given["top"], stdout_taken=Path("-") in (csv, json))


def _drive(plan: Plan, how: dict[str, Any], sink: Sink | None, *, quiet: bool) -> SearchResult:
    from planner.report.progress import progress_bar

    problem = plan.problem
    if how["driver"] == options.Driver.EXHAUSTIVE:
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
