"""How layouts of training are told in short."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.terms import glossary, plain_values

DEGREES = (
    "tensor_parallel",
    "context_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "expert_parallel",
    "data_parallel",
)
TOLD = (
    "step_time_s",
    "tokens_per_s_per_gpu",
    "model_flops_utilization",
    "time_to_train_days",
    "cost_usd",
)
_NAMED = ("recompute", "recompute_num_layers", "offload", "data_parallel_replicas")


def degrees(row: Mapping[str, Any], names: tuple[str, ...] = DEGREES) -> str:
    """``tp4 pp4 vp20 dp128``: the degrees above 1."""
    terms = glossary()
    return " ".join(f"{terms[name].short}{row[name]}" for name in names if row[name] > 1)


def brief(row: Mapping[str, Any]) -> str:
    """``tp4 pp4 vp20 dp128 mbs4 zero1, recompute full``: the degrees, and what is not plain."""
    plain = plain_values("train")
    words = [degrees(row), f"mbs{row['micro_batch_size']}"]
    words += [f"zero{row['zero_stage']}"] if row["zero_stage"] else []
    others = [f"{name} {row[name]}" for name in _NAMED if row[name] != plain[name]]
    if row["precision"] != plain["precision"]:
        others.append(str(row["precision"]))
    return ", ".join([" ".join(filter(None, words)), *others])
