"""The report of one static batch, and of one configuration that serves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from planner.configurations.rules import OUT_OF_HOST_MEMORY
from planner.estimators.inference.burst import Burst
from planner.estimators.inference.estimate import OUT_OF_MEMORY
from planner.estimators.inference.serving import decode_batch
from planner.estimators.inference.step import InferenceStep, step_time
from planner.optimize.serving.single import InferenceEvaluation, ServingEvaluation, most_concurrent
from planner.report import text
from planner.report.breakdown import first
from planner.report.console import print_pairs, print_title
from planner.report.infeasible import wrapped
from planner.report.manifest import plan_manifest
from planner.report.overview import print_assumed
from planner.report.rows import row_files
from planner.report.serving.operators import print_steps, step_rows
from planner.report.serving.parts import (
    latency_table,
    memory_parts_table,
    settings_text,
    speed_pairs,
)
from planner.report.serving.question import describe_serving, print_serving_question, where
from planner.report.serving.rows import serving_blocks
from planner.report.serving.sure import confidence_in, sure_pairs
from planner.serving_plan import ServingPlan
from planner.validation.confidence import ServingConfidence


def print_inference(console: Console, plan: ServingPlan, found: InferenceEvaluation) -> None:
    """The question, the configuration, its memory, its latency, its time by operator."""
    row = _row(found)
    _print_head(console, plan, row, found)
    print_title(console, "A batch from its start to its end")
    batch = first(found.static.batch)
    rate = row["output_tokens_per_s"]
    pairs = {
        "prefill latency": _prefill(found, row["prefill_latency_s"]),
        "decode latency": f"{text.duration(row['decode_latency_s'])} per token",
        "total latency": text.duration(row["request_latency_s"]),
        "output tokens/s": f"{text.significant(rate)} with {text.count(batch)} requests a replica",
        "all tokens/s": f"{text.significant(row['tokens_per_s'])}, prompts included",
        "largest batch": f"{text.count(found.largest_batch)} requests of full length a replica",
        "cost": "price unknown: give --price",
    }
    cost = row["cost_per_million_tokens_usd"]
    if math.isfinite(cost):
        pairs["cost"] = f"{text.dollars(cost)} per million output tokens"
    print_pairs(console, pairs)
    _print_sure(console, row, confidence_in(found.source, static=True))
    print_steps(console, _steps(found))
    print_assumed(console, plan)


def print_serving(console: Console, plan: ServingPlan, found: ServingEvaluation) -> None:
    """The question, the configuration, its memory, latencies, rates, and its decode step."""
    row = _row(found)
    _print_head(console, plan, row, found)
    print_title(console, f"Latency at {text.count(row['concurrency'])} requests a replica")
    console.print(latency_table(console, found.estimate))
    print_title(console, "Speed")
    print_pairs(console, speed_pairs(row))
    _print_sure(console, row, confidence_in(found.source))
    if found.burst is not None:
        _print_burst(console, found.burst)
    print_steps(console, _steps(found))
    print_assumed(console, plan)


def _print_sure(console: Console, row: dict[str, Any], sure: ServingConfidence | None) -> None:
    if sure is not None:
        print_title(console, "How sure")
        print_pairs(console, sure_pairs(row, sure))


def _print_head(
    console: Console,
    plan: ServingPlan,
    row: dict[str, Any],
    found: InferenceEvaluation | ServingEvaluation,
) -> None:
    print_serving_question(console, plan)
    print_title(console, "The configuration")
    console.print(settings_text(row))
    print_title(console, "Memory of the fullest GPU")
    console.print(memory_parts_table(console, row, found.source.pool.setting.machine))


def _prefill(found: InferenceEvaluation, seconds: float) -> str:
    step = first(found.static.prefill_step.total)
    if math.isclose(step, seconds):
        return f"{text.duration(seconds)}, one step"
    return f"{text.duration(seconds)}, of steps of {text.duration(step)}"


def _print_burst(console: Console, burst: Burst) -> None:
    print_title(console, f"A burst of {text.count(burst.num_requests)} requests at once")
    latencies = {f"p{100 * s:.0f}": burst.request_latency(s) for s in (0.5, 0.9, 0.99)}
    firsts = {f"p{100 * s:.0f}": burst.time_to_first_token(s) for s in (0.5, 0.9, 0.99)}
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


def misfit_message(plan: ServingPlan, found: InferenceEvaluation | ServingEvaluation) -> str:
    """Why the configuration is impossible, or how many requests would fit."""
    row = _row(found)
    name, reason = plan.problem.setting.model.name, found.rejected_by
    if reason not in (OUT_OF_MEMORY, OUT_OF_HOST_MEMORY.name):
        words = describe_serving(plan.problem, reason)
        return f"The configuration is impossible for {name} on {where(plan)}.\n" + wrapped(
            f"{words}: {_values(row)}", "  "
        )
    memory = found.memory if isinstance(found, InferenceEvaluation) else found.estimate.memory
    setting = found.source.pool.setting
    length = setting.workload.input_tokens + setting.workload.output_tokens
    if reason == OUT_OF_MEMORY:
        fixed = first(memory.weights + memory.activations + memory.reserved)
        has, each = setting.usable_memory, memory.room.longest
        held, of = "weights, activations and reserve take", f"that {setting.engine.name} may use"
    else:
        has, each = setting.machine.host_memory, memory.host_room.longest
        fixed = has - first(memory.host_room.size)
        held, of = "offloaded weights take", "of host memory that a GPU has"
    fits = _fits(found)
    lines = [
        f"The configuration does not fit {name} on {where(plan)}.",
        wrapped(
            f"{held} {text.gibibytes(fixed)} of the {text.gibibytes(has)} {of}; "
            f"a request of {length:,} tokens takes {text.gibibytes(first(each))}",
            "  ",
        ),
        f"  room for {fits:,} of {row['concurrency']:,} requests",
    ]
    if fits:
        lines.append(f"Try --set concurrency={fits}.")
    else:
        lines.append("Try a larger tensor_parallel, a smaller quantization, or another GPU.")
    return "\n".join(lines)


def _fits(found: InferenceEvaluation | ServingEvaluation) -> int:
    if isinstance(found, InferenceEvaluation):
        return found.largest_batch
    return most_concurrent(found.source.pool.setting, found.estimate.configurations)


def _values(row: dict[str, Any]) -> str:
    names = ("num_gpus", "tensor_parallel", "pipeline_parallel", "attention_data_parallel",
             "expert_parallel", "quantization", "kv_cache")  # fmt: skip
    return " ".join(f"{name}={row[name]}" for name in names)


def write_serving(
    path: Path | None,
    plan: ServingPlan,
    found: InferenceEvaluation | ServingEvaluation,
    command: Sequence[str],
) -> None:
    """One JSON object: the manifest, the row, and the steps' time by operator.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    if path is None:
        return
    operators = [
        {"step": name, **_with_unit(asdict(row))}
        for name, step in _steps(found).items()
        for row in step_rows(step)
    ]
    with row_files(None, path) as files:
        static = isinstance(found, InferenceEvaluation)
        files.add(serving_blocks(found.table(), [found.source], static))
        files.finish(plan_manifest(plan, command), operators=operators)


def _with_unit(row: dict[str, Any]) -> dict[str, Any]:
    return {("time_s" if name == "time" else name): value for name, value in row.items()}


def _steps(found: InferenceEvaluation | ServingEvaluation) -> dict[str, InferenceStep]:
    if isinstance(found, InferenceEvaluation):
        return {"prefill": found.static.prefill_step, "decode": found.static.decode_step}
    estimate = found.estimate
    sequences = estimate.served.decoding / estimate.configurations.pipeline_parallel
    batch = decode_batch(estimate.setting, sequences)
    return {"decode": step_time(estimate.setting, estimate.configurations, batch, True)}


def _row(found: InferenceEvaluation | ServingEvaluation) -> dict[str, Any]:
    return {name: values[0] for name, values in found.table().items()}
