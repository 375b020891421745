"""Deployments that run as published, and some that engines refuse (``published/deployments.csv``).

Each row names the guide, recipe or issue that says so; ``accepted`` 0: it is refused, or does not
fit.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

import planner

SIZES = ("tensor_parallel", "pipeline_parallel", "attention_data_parallel", "expert_parallel")


def deployments() -> list[dict[str, str]]:
    path = Path(__file__).parent / "published" / "deployments.csv"
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def why_not(row: Mapping[str, str], **more: object) -> str:
    """What rejects a deployment; empty if nothing does."""
    settings: dict[str, object] = {name: int(row[name]) for name in (*SIZES, "concurrency")}
    settings |= {name: row[name] for name in ("quantization", "kv_cache") if row[name]}
    return planner.estimate(
        workload="serve",
        model=row["model"],
        gpu=row["gpu"],
        engine=row["engine"],
        num_gpus=int(row["num_gpus"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        settings=settings,
        **more,
    ).rejected_by


def is_wrong(row: Mapping[str, str]) -> bool:
    """Whether it is judged otherwise than its engine does."""
    return (why_not(row) == "") != (row["accepted"] == "1")
