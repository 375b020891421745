"""Sweeps made by hand: a plan and rows, as directories have them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from planner.show.presenters.row_tables import csv_cell
from planner.sweeps.plan import SweepPlan
from planner.sweeps.scenario_batches import parts_of

GPUS, COUNTS = ["a100", "b200", "h100"], [8, 16, 32]
_LAYOUT = {
    "context_parallel": 1, "pipeline_parallel": 1, "virtual_pipeline": 1, "expert_parallel": 1,
    "data_parallel": 1, "micro_batch_size": 2, "zero_stage": 0, "data_parallel_replicas": 1,
    "recompute": "none", "recompute_num_layers": 0, "offload": "none", "precision": "bf16",
}  # fmt: skip


def plan_of(name: str = "train", **axes: Iterable[Any]) -> SweepPlan:
    """The plan of one kind of training."""
    work = {"name": name, "workload": "train", "axes": axes, "settings": {}, "objectives": []}
    return SweepPlan.of_dict({"name": "made", "description": "", "specs": None, "works": [work]})


def row_of(
    number: int,
    gpu: str,
    num_gpus: int,
    cost: float | None = None,
    time: float | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A scenario with a plan that costs so much; of no cost and time, one that has none."""
    row = {"scenario": number, "work": "train", "workload": "train", "model": "LLaMA 65B"}
    row |= {"gpu": gpu, "num_gpus": num_gpus, "framework": "fsdp"}
    if cost is None and time is None:
        return {**row, "feasible": False, "reason": "out of memory: 9.0 GiB against 8.0 GiB"} | more
    row |= {"feasible": True, "reason": None, "tensor_parallel": number + 1, **_LAYOUT}
    row |= {"cost_usd": cost, "time_to_train_days": time, "tie_factor": 1.2, "basis": "measured"}
    for name, value, unit in (("cost", cost, "usd"), ("time_to_train", time, "days")):
        if value is not None:
            row |= {f"{name}_low_{unit}": value * 0.9, f"{name}_high_{unit}": value * 1.1}
    return row | more


def rows_of(values: Mapping[tuple[str, int], tuple[float, float] | None]) -> list[dict[str, Any]]:
    """A row for every GPU and number of GPUs; None: it does not fit."""
    spots = product(GPUS, COUNTS)
    return [row_of(n, *spot, *(values[spot] or ())) for n, spot in enumerate(spots)]


def write(
    folder: Path, plan: SweepPlan, rows: list[dict[str, Any]], done: int | None = None
) -> Path:
    """The directory of a finished sweep; with ``done``, of one that has so many parts."""
    (folder / "parts").mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"plan": plan.to_dict()}))
    columns = [*dict.fromkeys(name for row in rows for name in row)]
    if done is not None:
        for part in [*parts_of(plan.num_scenarios)][:done]:
            head = {"rows": dict.fromkeys(columns, "text"), "fronts": {}}
            found = [line for row in rows[part.first : part.end] for line in (row, {})]
            text = "".join(json.dumps(line) + "\n" for line in (head, *found))
            (folder / "parts" / part.name).write_bytes(gzip.compress(text.encode()))
        return folder
    for name, found in (("scenarios", rows), ("front", [row for row in rows if row["feasible"]])):
        lines = [",".join(csv_cell(row.get(column)) for column in columns) for row in found]
        (folder / f"{name}.csv").write_text("\n".join([",".join(columns), *lines]) + "\n")
    (folder / "manifest.json").write_text(json.dumps({"scenarios": len(rows)}))
    return folder
