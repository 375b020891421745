"""Tables of one way to serve: its memory, its speed, its price."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from planner.estimators.inference.estimate import ServingEstimate
from planner.estimators.inference.memory import SERVING_MEMORY_PARTS
from planner.estimators.inference.percentiles import (
    request_latency_percentile,
    time_per_output_token_percentile,
)
from planner.estimators.machine import Machine
from planner.optimize.serving.columns import PARAMETERS
from planner.report import text
from planner.report.breakdown import add_host_memory, first
from planner.report.console import make_table
from planner.units import GIB

_SHARES = (0.5, 0.9, 0.99)


def settings_text(row: Mapping[str, Any]) -> str:
    """The settings of a row, as --set takes them."""
    names = ("mode", "gpu", "engine", "num_gpus", "replicas", *PARAMETERS)
    plain = [f"{name}={row[name]}" for name in names if name in row]
    if row.get("prefill_gpu") is not None:
        plain += [f"{name}={value}" for name, value in row.items() if name.startswith("prefill_")]
    return "  ".join(plain)


def memory_parts_table(console: Console, row: Mapping[str, Any], machine: Machine) -> Table:
    """Memory of the fullest GPU by part, in GiB and as a share of the capacity."""
    capacity = machine.gpu.allocatable_memory / GIB
    table = make_table(console)
    table.add_column("part", no_wrap=True)
    table.add_column("GiB", justify="right", no_wrap=True)
    table.add_column("%", justify="right", no_wrap=True)
    for part in SERVING_MEMORY_PARTS:
        amount = row[f"memory_{part}_gib"]
        table.add_row(part.replace("_", " "), f"{amount:.2f}", f"{100 * amount / capacity:.1f}")
    table.add_section()
    peak = row["peak_memory_gib"]
    table.add_row("peak", f"{peak:.2f}", f"{100 * peak / capacity:.1f}", style="bold")
    table.add_row("capacity", f"{capacity:.2f}", "100.0")
    add_host_memory(table, row["host_memory_gib"] * GIB, machine)
    return table


def latency_table(console: Console, estimate: ServingEstimate) -> Table:
    """Mean and percentiles of the latencies of the first row's requests."""
    served = estimate.served
    rows = {
        "time to first token": (served.time_to_first_token, estimate.time_to_first_token),
        "time per output token": (
            served.time_per_output_token,
            lambda share: time_per_output_token_percentile(estimate, share),
        ),
        "request latency": (
            estimate.request_latency,
            lambda share: request_latency_percentile(estimate, share),
        ),
    }
    table = make_table(console)
    table.add_column("of a request", no_wrap=True)
    for name in ("mean", *(f"p{100 * share:.0f}" for share in _SHARES)):
        table.add_column(name, justify="right", no_wrap=True)
    for label, (mean, percentile) in rows.items():
        cells = [text.duration(first(percentile(share))) for share in _SHARES]
        table.add_row(label, text.duration(first(mean)), *cells)
    return table


def speed_pairs(row: Mapping[str, Any]) -> dict[str, str]:
    """Rates and prices of a row."""
    pairs = {
        "tokens/s/user": text.significant(row["tokens_per_s_per_user"]),
        "requests/s": text.significant(row["requests_per_s"]),
        "output tokens/s": f"{text.significant(row['output_tokens_per_s'])} "
        f"({text.significant(row['output_tokens_per_s_per_gpu'])} per GPU)",
        "all tokens/s": f"{text.significant(row['tokens_per_s'])} "
        f"({text.significant(row['tokens_per_s_per_gpu'])} per GPU), prompts included",
        "utilization": f"{text.percent(row['utilization'])} of the time computes prompts",
        "most requests": f"{row['most_sequences']:,} per replica find room in its memory",
        "cost": "price unknown: give --price",
    }
    if row["mode"] != "aggregated":
        pairs["utilization"] = f"{text.percent(row['utilization'])} load of the prefill workers"
        pairs["KV transfer"] = text.duration(row["transfer_time_s"])
    hourly, million = row["cost_per_hour_usd"], row["cost_per_million_tokens_usd"]
    if math.isfinite(hourly):
        pairs["cost"] = (
            f"{text.dollars(million)} per million output tokens, {text.dollars(hourly)} per hour"
        )
    return pairs


def latency_pairs(row: Mapping[str, Any]) -> dict[str, str]:
    """Mean latencies of a row."""
    return {
        "time to first token": text.duration(row["time_to_first_token_s"]),
        "time per output token": text.duration(row["time_per_output_token_s"]),
        "request latency": text.duration(row["request_latency_s"]),
    }
