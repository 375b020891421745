"""Full report of a serving plan: memory, latencies, rates, prices and operators of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from planner.base.csv_cells import Row, Value, number_of_row
from planner.base.formatting import format_count, format_duration, format_significant
from planner.base.units import GIB
from planner.estimators.inference.burst import Burst
from planner.estimators.inference.engine_step import PARTS_WITHOUT_OPERATOR, InferenceStep
from planner.estimators.inference.percentiles import percentile
from planner.estimators.inference.serving_estimate import ServingEstimate
from planner.estimators.timeline.pipeline_schedule import Timeline
from planner.estimators.timeline.step_timelines import step_timeline
from planner.optimize.collector import value_or_none
from planner.optimize.source import Candidates, first_row
from planner.question.names import REQUEST_LATENCY, TIME_PER_OUTPUT_TOKEN, TIME_TO_FIRST_TOKEN
from planner.question.terms import is_answer_column, terms_about
from planner.show.output_blocks import (
    GAP,
    TOTAL,
    Block,
    KeyValues,
    Table,
    Title,
    make_lines,
    text_table,
)
from planner.show.presenters.format_results import (
    electricity_pairs,
    first,
    label,
    number_of,
    token_costs,
    token_costs_of,
)
from planner.show.presenters.load_check import start_pairs
from planner.show.presenters.workload_details import (
    OTHERS,
    UNKNOWN_PRICE,
    Details,
    by_module,
    memory_blocks,
    text_pairs,
    uncertainty_blocks,
)
from planner.specs.serving_workload import ServingWorkload
from planner.workloads.make_plan import Plan
from planner.workloads.serving.replicas import Replicas
from planner.workloads.serving.results import Deployments, TokenGeneration
from planner.workloads.serving.space import Batches
from planner.workloads.serving.wording import decode_step, inference_steps
from planner.workloads.workload import Evaluation

_SHARES = (0.5, 0.9, 0.99)


def _deployment(plan: Plan, candidates: Deployments) -> Iterator[Block]:
    """Yield memory, latency, log values, speed and uncertainty of the first deployment."""
    row, at_load = candidates.row, candidates.at_load
    pairs = _speed_pairs(row)
    if not isinstance(at_load, Replicas):
        yield from memory_blocks(candidates, gpu_label="decode GPU")
        pairs = text_pairs(row, _LATENCIES) | pairs
    else:
        yield from memory_blocks(candidates)
        num_requests = number_of_row(row, "concurrency")
        if "capacity_requests_per_s" in row:
            num_requests = first(at_load.in_flight)
        requests = format_count(num_requests)
        yield Title(text=f"Latency at {requests} requests a replica")
        yield _latency_table(at_load.estimate)
    if start := start_pairs(row, candidates.inputs.engine.memory):  # to compare
        yield Title(text="Values in the engine's log")
        yield KeyValues(pairs=start)
    yield Title(text="Speed")
    yield KeyValues(pairs=pairs | electricity_pairs(candidates, row))
    yield from uncertainty_blocks(plan, candidates)


def _latency_table(estimate: ServingEstimate) -> Table:
    """Return a table with mean and percentiles of the first row's request latencies."""
    served = estimate.served
    means = {
        TIME_TO_FIRST_TOKEN: served.time_to_first_token,
        TIME_PER_OUTPUT_TOKEN: served.time_per_output_token,
        REQUEST_LATENCY: estimate.request_latency,
    }
    shown = latencies_of(estimate.inputs.workload)
    rows = [
        (
            name.replace("_", " "),
            format_duration(first(mean)),
            *(format_duration(first(percentile(estimate, name, share))) for share in _SHARES),
        )
        for name, mean in means.items()
        if name in shown
    ]
    return text_table(("of a request", "mean", *(f"p{100 * share:.0f}" for share in _SHARES)), rows)


_LATENCIES = {
    "time to first token": "{time_to_first_token_s:time}",
    "time per output token": "{time_per_output_token_s:time}",
    "request latency": "{request_latency_s:time}",
}
_USED = {False: "of the time computes prompts", True: "load of the prefill workers"}
_AT_MOST = {False: "", True: " of {capacity_requests_per_s:number} at most"}


def _speed_pairs(row: Row) -> dict[str, str]:
    """Return the rates and prices of a row as text; with capacity if a load is specified."""
    has_pools = row["prefill_gpu"] is not None
    has_capacity = not math.isnan(number_of(row, "capacity_requests_per_s"))
    is_answered = not math.isnan(number_of(row, "output_tokens_per_s"))
    cost = (
        f"{{cost_per_million_tokens_usd:usd}} per million {_TOKENS[is_answered]}, "
        "{cost_per_hour_usd:usd} per hour"
    )
    templates = {
        "tokens/s/user": "{tokens_per_s_per_user:number}",
        "requests/s": f"{{requests_per_s:number}}{_AT_MOST[has_capacity]}",
        "output tokens/s": "{output_tokens_per_s:number} "
        "({output_tokens_per_s_per_gpu:number} per GPU)",
        "all tokens/s": "{tokens_per_s:number} ({tokens_per_s_per_gpu:number} per GPU), "
        "prompts included",
        "utilization": f"{{utilization:percent}} {_USED[has_pools]}",
        "most requests": "{most_sequences:count} per replica fit its memory",
        "cost": cost if math.isfinite(number_of(row, "cost_per_hour_usd")) else UNKNOWN_PRICE,
        "KV transfer": "{transfer_time_s:time}",
        "encoder": "{encoder_time_s:time} of a prompt, {encoder_share:percent} of the time",
        "cost of tokens": _tokens_cost(row),
    }
    if math.isnan(number_of(row, "kv_cache_tokens")):
        del templates["most requests"]  # there is no KV cache
    if not has_pools:
        del templates["KV transfer"]
    return text_pairs(row, templates)


_TOKENS = {False: "tokens", True: "output tokens"}


def _tokens_cost(row: Row) -> str:
    """Return the cost of each kind of token as text; "" if it is unknown."""
    costs = token_costs(token_costs_of(row))
    return f"{costs}, USD per million" if costs else ""


def _deployment_details(_: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield latencies of the first deployment, and its step times by module and operator."""
    if isinstance(evaluation.detail, Burst):
        yield from _burst_blocks(evaluation.detail)
    elif isinstance(evaluation.candidates, Deployments):
        yield from latency_blocks(evaluation.candidates)
    yield from steps_blocks(_steps(evaluation.candidates))


def _burst_blocks(burst: Burst) -> Iterator[Block]:
    """Yield the latencies of requests that arrive at once, and the time until all end."""
    yield Title(text=f"A burst of {format_count(burst.num_requests)} requests at once")
    latencies = {f"p{100 * s:.0f}": burst.answered_within(s) for s in _SHARES}
    firsts = {f"p{100 * s:.0f}": burst.first_within(s) for s in _SHARES}
    waves = burst.per_replica / burst.in_a_wave
    yield KeyValues(
        pairs={
            "makespan": format_duration(burst.makespan),
            "requests/s": format_significant(burst.num_requests / burst.makespan),
            "waves": (
                f"{format_significant(waves)} of {format_count(burst.in_a_wave)} requests a replica"
            ),
            "time to first token": _format_latencies(firsts),
            "request latency": _format_latencies(latencies),
        }
    )


def burst_line(burst: Burst) -> str:
    """Return a sentence on requests that arrive at once: when all are answered, and TTFT."""
    firsts = {f"p{100 * s:.0f}": burst.first_within(s) for s in _SHARES}
    return (
        f"A burst of {format_count(burst.num_requests)} requests is answered in "
        f"{format_duration(burst.makespan)}, in waves of {format_count(burst.in_a_wave)} requests "
        f"a replica; TTFT {_format_latencies(firsts)}."
    )


def _format_latencies(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {format_duration(value)}" for name, value in seconds.items())


def _batch(plan: Plan, candidates: Batches) -> Iterator[Block]:
    """Yield memory, latencies, rates and cost of a static batch, and their uncertainty."""
    row = candidates.row
    yield from memory_blocks(candidates)
    yield Title(text="A batch from its start to its end")
    step = {"prefill_step_s": first(candidates.batch.prefill_step.total)}
    is_one = math.isclose(step["prefill_step_s"], number_of_row(row, "prefill_latency_s"))
    has_price = math.isfinite(number_of_row(row, "cost_per_million_tokens_usd"))
    steps = "one step" if is_one else "of steps of {prefill_step_s:time}"
    templates = {
        "prefill latency": f"{{prefill_latency_s:time}}, {steps}",
        "decode latency": "{decode_latency_s:time} per token",
        "total latency": "{request_latency_s:time}",
        "output tokens/s": "{output_tokens_per_s:number} with {concurrency:count} requests a "
        "replica",
        "all tokens/s": "{tokens_per_s:number}, prompts included",
        "cost": "{cost_per_million_tokens_usd:usd} per million output tokens"
        if has_price
        else UNKNOWN_PRICE,
        "cost of tokens": _tokens_cost(row),
    }
    pairs = text_pairs({**row, **step}, templates)
    yield KeyValues(pairs=pairs | electricity_pairs(candidates, row))
    yield from uncertainty_blocks(plan, candidates)


def _batch_details(_: Plan, evaluation: Evaluation) -> Iterator[Block]:
    """Yield the largest batch that fits, and the step times by module and operator."""
    largest_batch = number_of_row(first_row(evaluation.more), "largest_batch")
    text = f"largest batch: {format_count(largest_batch)} requests of full length a replica"
    yield GAP
    yield make_lines(text, indent="")
    yield from steps_blocks(_steps(evaluation.candidates))


def _operators(evaluation: Evaluation) -> list[dict[str, Value]]:
    steps = _steps(evaluation.candidates).items()
    return [{"step": name, **row} for name, step in steps for row in _step_rows(step)]


def _steps(candidates: Candidates) -> dict[str, InferenceStep]:
    """Return the engine steps by kind whose operators are shown."""
    if isinstance(candidates, Batches):
        return inference_steps(candidates)
    if isinstance(candidates, TokenGeneration) and candidates.inputs.workload.embeds:
        return inference_steps(candidates)
    return {"decode": decode_step(candidates)}


def _times(candidates: TokenGeneration) -> dict[str, dict[str, float]]:
    """Seconds of each kind of step by part."""
    return {name: step_parts(step) for name, step in inference_steps(candidates).items()}


def _timelines(candidates: TokenGeneration) -> list[Timeline]:
    """Return each kind of step over time, with the constant memory of the GPU.

    Prefill workers have no memory here: the row has the memory of decode workers only.
    """
    row = candidates.row
    capacity = candidates.source.inputs.machine.gpu.allocatable_memory
    has_prefill_workers = row.get("prefill_gpu") is not None
    return [
        step_timeline(
            step,
            f"{name} step",
            memory=0.0
            if has_prefill_workers and name == "prefill"
            else number_of_row(row, "peak_memory_gib") * GIB,
            capacity=capacity,
        )
        for name, step in inference_steps(candidates).items()
    ]


LATENCIES = terms_about("latency", "serve")
"""The three times of a request that have a distribution."""


def latencies_of(work: ServingWorkload) -> list[str]:
    """The latencies of requests; without answers there is no time per output token."""
    return [name for name in LATENCIES if not (work.embeds and is_answer_column(f"{name}_s"))]


PERCENTS = tuple(range(1, 100))
_SHOWN = (1, 5, 10, 25, 50, 75, 90, 95, 99)


def latency_distribution(candidates: Deployments) -> Mapping[str, Sequence[object]]:
    """Return percentiles 1 to 99 of each latency [s] of the first row.

    Percentiles without bound are None.
    """
    curves: dict[str, Sequence[object]] = {"percent": PERCENTS}
    for name in latencies_of(candidates.inputs.workload):
        curves[f"{name}_s"] = [value_or_none(value) for value in _curve(candidates, name, PERCENTS)]
    return curves


def _curve(candidates: Deployments, name: str, percents: Sequence[int]) -> list[float]:
    at_load = candidates.at_load
    return [first(at_load.percentile(name, percent / 100)) for percent in percents]


def latency_blocks(candidates: Deployments) -> Iterator[Block]:
    """Yield a table with some percentiles of each request latency."""
    names = latencies_of(candidates.inputs.workload)
    curves = [_curve(candidates, name, _SHOWN) for name in names]
    rows = [
        (f"{percent} % within", *map(format_duration, times))
        for percent, *times in zip(_SHOWN, *curves, strict=True)
    ]
    yield Title(text="Latency of the requests, as a distribution")
    yield text_table(("share of requests", *(label(f"{name}_s") for name in names)), rows)


DEPLOYMENTS = Details(
    memory_and_speed=_deployment,
    more=_deployment_details,
    distributions=latency_distribution,
    operators=_operators,
    times=_times,
    timelines=_timelines,
)
BATCHES = Details(
    memory_and_speed=_batch,
    more=_batch_details,
    operators=_operators,
    times=_times,
    timelines=_timelines,
)


def _step_rows(step: InferenceStep) -> list[dict[str, str | float]]:
    """Return seconds and FLOPs per step of each operator, summed over all layers."""
    sums: dict[tuple[str, str], list[float]] = {}
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            row = sums.setdefault((operator.name, operator.module), [0.0, 0.0])
            row[0] += count * first(operator.forward)
            row[1] += count * first(operator.flops)
    others = {(part, OTHERS): [first(getattr(step, part)), 0.0] for part in PARTS_WITHOUT_OPERATOR}
    return [
        {"operator": name, "module": module, "time_s": time, "flops": flops}
        for (name, module), (time, flops) in (*sums.items(), *others.items())
        if time
    ]


def step_parts(step: InferenceStep) -> dict[str, float]:
    """Return the seconds of the first row's step by module, exchange and wait."""
    sums: dict[str, float] = {}
    for count, operators in (*step.layers, (1, step.ends)):
        for operator in operators:
            part = operator.module if operator.part == "compute" else operator.part
            sums[part] = sums.get(part, 0.0) + count * first(operator.forward)
    return sums | {part: first(getattr(step, part)) for part in PARTS_WITHOUT_OPERATOR}


def steps_blocks(steps: Mapping[str, InferenceStep]) -> Iterator[Block]:
    """Yield tables of step times [ms] by module and by operator, one column per kind of step."""
    tables = {name: _step_rows(step) for name, step in steps.items()}
    totals = {name: first(step.total) for name, step in steps.items()}
    yield Title(text="Time of a step by module, ms")
    yield _times_table({n: by_module(rows, ("time_s",)) for n, rows in tables.items()}, totals)
    yield Title(text="Time of a step by operator, ms")
    yield _times_table(tables, totals)


def _times_table(tables: Mapping[str, Sequence[Row]], totals: Mapping[str, float]) -> Table:
    """Return a table of times in ms and in % of the step, two columns per kind of step."""
    columns = {
        n: {str(row["operator"]): number_of(row, "time_s") for row in rows}
        for n, rows in tables.items()
    }
    names = dict.fromkeys(operator for times in columns.values() for operator in times)
    rows = []
    for operator in sorted(names, key=lambda name: name in PARTS_WITHOUT_OPERATOR):
        cells = [operator.replace("_", " ")]
        for name, times in columns.items():
            seconds = times.get(operator, 0.0)
            share = f"{100 * seconds / totals[name]:.1f}" if seconds else "-"
            cells += [f"{1e3 * seconds:,.3f}" if seconds else "-", share]
        rows.append(cells)
    sums = [cell for name in tables for cell in (f"{1e3 * totals[name]:,.3f}", "100.0")]
    heads = ["part", *(head for name in tables for head in (name, "%"))]
    return text_table(heads, [*rows, ["step", *sums]], marked=[*[""] * len(rows), TOTAL])
