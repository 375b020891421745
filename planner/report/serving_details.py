"""One way to serve in full: its memory, latencies, rates and prices, the operators of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.base import text
from planner.base.units import GIB
from planner.estimators.inference.burst import Burst
from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.percentiles import percentile
from planner.estimators.inference.step import InferenceStep
from planner.estimators.inference.timeline import step_timeline
from planner.estimators.timeline.spans import Timeline
from planner.optimize.collector import first_row
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.report.console import make_table, print_pairs, print_title
from planner.report.details import Details, print_memory, print_sure
from planner.report.electricity import electricity_pairs
from planner.report.engine_start import start_pairs
from planner.report.parts import first
from planner.report.step_operators import print_steps, step_parts, step_rows
from planner.report.told import token_costs, token_costs_of
from planner.workloads.base import Evaluation
from planner.workloads.batches import Batches
from planner.workloads.replicas import Replicas
from planner.workloads.serving_timed import decode_step, inference_steps

_SHARES = (0.5, 0.9, 0.99)


def _deployment(console: Console, plan: Plan, candidates: Any) -> None:
    row, at_load = first_row(candidates.columns()), candidates.at_load
    pairs = _speed_pairs(row)
    if not isinstance(candidates, Replicas):
        print_memory(console, candidates, of="decode GPU")
        pairs = {**_latency_pairs(row), **pairs}
    else:
        print_memory(console, candidates)
        held = at_load.in_flight if "capacity_requests_per_s" in row else row["concurrency"]
        requests = text.count(first(held))
        print_title(console, f"Latency at {requests} requests a replica")
        console.print(_latency_table(console, at_load.estimate))
    _print_start(console, candidates, row)
    print_title(console, "Speed")
    print_pairs(console, pairs | electricity_pairs(candidates, row))
    print_sure(console, plan, candidates)


def _print_start(console: Console, candidates: Any, row: Mapping[str, Any]) -> None:
    """What the engine's log has at its start, to compare."""
    if pairs := start_pairs(candidates.setting, row):
        print_title(console, "As the engine's log has it")
        print_pairs(console, pairs)


def _latency_table(console: Console, estimate: ServingEstimate) -> Table:
    """Mean and percentiles of the latencies of the first row's requests."""
    served = estimate.served
    means = {
        "time_to_first_token": served.time_to_first_token,
        "time_per_output_token": served.time_per_output_token,
        "request_latency": estimate.request_latency,
    }
    table = make_table(console)
    table.add_column("of a request", no_wrap=True)
    for name in ("mean", *(f"p{100 * share:.0f}" for share in _SHARES)):
        table.add_column(name, justify="right", no_wrap=True)
    for name, mean in means.items():
        cells = [text.duration(first(percentile(estimate, name, share))) for share in _SHARES]
        table.add_row(name.replace("_", " "), text.duration(first(mean)), *cells)
    return table


def _speed_pairs(row: Mapping[str, Any]) -> dict[str, str]:
    """Rates and prices of a row."""
    pairs = {
        "tokens/s/user": text.significant(row["tokens_per_s_per_user"]),
        "requests/s": _rate(row),
        "output tokens/s": f"{text.significant(row['output_tokens_per_s'])} "
        f"({text.significant(row['output_tokens_per_s_per_gpu'])} per GPU)",
        "all tokens/s": f"{text.significant(row['tokens_per_s'])} "
        f"({text.significant(row['tokens_per_s_per_gpu'])} per GPU), prompts included",
        "utilization": f"{text.percent(row['utilization'])} of the time computes prompts",
        "most requests": f"{row['most_sequences']:,} per replica find room in its memory",
        "cost": "price unknown: give --price",
    }
    if row["prefill_gpu"] is not None:
        pairs["utilization"] = f"{text.percent(row['utilization'])} load of the prefill workers"
        pairs["KV transfer"] = text.duration(row["transfer_time_s"])
    hourly, million = row["cost_per_hour_usd"], row["cost_per_million_tokens_usd"]
    if math.isfinite(hourly):
        pairs["cost"] = (
            f"{text.dollars(million)} per million output tokens, {text.dollars(hourly)} per hour"
        )
        pairs["cost of tokens"] = f"{token_costs(token_costs_of(row))}, USD per million"
    return pairs


def _rate(row: Mapping[str, Any]) -> str:
    """Requests per second, beside what is carried at most where a load is stated."""
    words, most = text.significant(row["requests_per_s"]), row.get("capacity_requests_per_s")
    return words if most is None else f"{words} of {text.significant(most)} at most"


def _latency_pairs(row: Mapping[str, Any]) -> dict[str, str]:
    """Mean latencies of a row."""
    return {
        "time to first token": text.duration(row["time_to_first_token_s"]),
        "time per output token": text.duration(row["time_per_output_token_s"]),
        "request latency": text.duration(row["request_latency_s"]),
    }


def _more_of_deployment(console: Console, _: Plan, found: Evaluation) -> None:
    if isinstance(found.detail, Burst):
        _print_burst(console, found.detail)
    print_steps(console, _steps(found.candidates))


def _print_burst(console: Console, burst: Burst) -> None:
    print_title(console, f"A burst of {text.count(burst.num_requests)} requests at once")
    latencies = {f"p{100 * s:.0f}": burst.request_latency(s) for s in _SHARES}
    firsts = {f"p{100 * s:.0f}": burst.time_to_first_token(s) for s in _SHARES}
    waves = burst.per_replica / burst.in_a_wave
    print_pairs(
        console,
        {
            "makespan": text.duration(burst.makespan),
            "requests/s": text.significant(burst.num_requests / burst.makespan),
            "waves": f"{text.significant(waves)} of {text.count(burst.in_a_wave)} requests "
            f"a replica, {text.duration(burst.wave)} each",
            "time to first token": _listed(firsts),
            "request latency": _listed(latencies),
        },
    )


def _listed(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {text.duration(value)}" for name, value in seconds.items())


def _batch(console: Console, plan: Plan, candidates: Candidates) -> None:
    row = first_row(candidates.columns())
    print_memory(console, candidates)
    print_title(console, "A batch from its start to its end")
    rate, requests = row["output_tokens_per_s"], text.count(row["concurrency"])
    pairs = {
        "prefill latency": _prefill(candidates, row["prefill_latency_s"]),
        "decode latency": f"{text.duration(row['decode_latency_s'])} per token",
        "total latency": text.duration(row["request_latency_s"]),
        "output tokens/s": f"{text.significant(rate)} with {requests} requests a replica",
        "all tokens/s": f"{text.significant(row['tokens_per_s'])}, prompts included",
        "cost": "price unknown: give --price",
    }
    cost = row["cost_per_million_tokens_usd"]
    if math.isfinite(cost):
        pairs["cost"] = f"{text.dollars(cost)} per million output tokens"
        pairs["cost of tokens"] = f"{token_costs(token_costs_of(row))}, USD per million"
    print_pairs(console, pairs | electricity_pairs(candidates, row))
    print_sure(console, plan, candidates)


def _prefill(batches: Any, seconds: float) -> str:
    step = first(batches.batch.prefill_step.total)
    if math.isclose(step, seconds):
        return f"{text.duration(seconds)}, one step"
    return f"{text.duration(seconds)}, of steps of {text.duration(step)}"


def _more_of_batch(console: Console, _: Plan, found: Evaluation) -> None:
    room = f"largest batch: {text.count(found.detail)} requests of full length a replica"
    console.print()
    console.print(room)
    print_steps(console, _steps(found.candidates))


def _operators(found: Evaluation) -> list[dict[str, Any]]:
    return [
        {"step": name, **_with_unit(asdict(row))}
        for name, step in _steps(found.candidates).items()
        for row in step_rows(step)
    ]


def _with_unit(row: dict[str, Any]) -> dict[str, Any]:
    return {("time_s" if name == "time" else name): value for name, value in row.items()}


def _steps(candidates: Any) -> dict[str, InferenceStep]:
    """The steps whose operators tell where the time goes."""
    if isinstance(candidates, Batches):
        static = candidates.batch
        return {"prefill": static.prefill_step, "decode": static.decode_step}
    return {"decode": decode_step(candidates)}


def _times(candidates: Any) -> dict[str, dict[str, float]]:
    """Seconds of each kind of step by part."""
    return {name: step_parts(step) for name, step in inference_steps(candidates).items()}


def _timelines(candidates: Any) -> list[Timeline]:
    """Each kind of step over time; the memory is what the GPU holds throughout.

    Of workers that compute prompts alone it is not told: the row has that of those that decode.
    """
    row = first_row(candidates.columns())
    capacity = candidates.source.setting.machine.gpu.allocatable_memory
    apart = row.get("prefill_gpu") is not None
    return [
        step_timeline(
            step,
            f"{name} step",
            memory=0.0 if apart and name == "prefill" else row["peak_memory_gib"] * GIB,
            capacity=capacity,
        )
        for name, step in inference_steps(candidates).items()
    ]


DEPLOYMENTS = Details(
    memory_and_speed=_deployment,
    more=_more_of_deployment,
    operators=_operators,
    times=_times,
    timelines=_timelines,
)
BATCHES = Details(
    memory_and_speed=_batch,
    more=_more_of_batch,
    operators=_operators,
    times=_times,
    timelines=_timelines,
)
