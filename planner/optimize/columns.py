"""Results as columns: glossary names with the unit at the end."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.configurations.table import word
from planner.configurations.training import NAMES
from planner.enums import PipelineSchedule
from planner.estimators.cost import run_cost
from planner.estimators.estimate import Estimate
from planner.estimators.memory import MEMORY_PARTS
from planner.units import DAY, GIB, HOUR, KILOWATT_HOUR, TERA


def columns(estimate: Estimate, price_per_gpu_second: float | None) -> dict[str, Any]:
    """One list per column: configuration, predictions, then memory and time by part."""
    shape = estimate.configurations.shape
    results = {
        **_predictions(estimate, price_per_gpu_second),
        **_memory_parts(estimate),
        **_time_parts(estimate),
    }
    flat = {name: np.broadcast_to(value, shape).ravel() for name, value in results.items()}
    return {**_configuration(estimate), **flat}


def _configuration(estimate: Estimate) -> dict[str, Any]:
    c = estimate.configurations
    table = {
        name: _words(name, np.broadcast_to(getattr(c, name), c.shape).ravel()) for name in NAMES
    }
    table["data_parallel"] = np.broadcast_to(c.data_parallel, c.shape).ravel().astype(int).tolist()
    table["gradient_accumulation_steps"] = (
        np.broadcast_to(c.num_micro_batches, c.shape).ravel().astype(int).tolist()
    )
    schedules = [PipelineSchedule(interleaved).word for interleaved in (0, 1)]
    table["pipeline_schedule"] = [schedules[chunks > 1] for chunks in table["virtual_pipeline"]]
    return table


def _words(name: str, values: Any) -> list[Any]:
    """`word` of every value; of equal ones once."""
    distinct, which = np.unique(values, return_inverse=True)
    words: list[Any] = np.array([word(name, v) for v in distinct], dtype=object)[which].tolist()
    return words


def _predictions(estimate: Estimate, price_per_gpu_second: float | None) -> dict[str, Any]:
    cost = run_cost(estimate, price_per_gpu_second)
    capacity = estimate.setting.machine.gpu.allocatable_memory
    return {
        "step_time_s": estimate.step_time,
        "tokens_per_s": estimate.tokens_per_second,
        "tokens_per_s_per_gpu": estimate.tokens_per_second / estimate.configurations.num_gpus,
        "model_flops_utilization": estimate.model_flops_utilization,
        "hardware_flops_utilization": estimate.hardware_flops_utilization,
        "tflops_per_gpu": estimate.model_flops_per_second_per_gpu / TERA,
        "peak_memory_gib": estimate.peak_memory / GIB,
        "memory_headroom_gib": (capacity - estimate.peak_memory) / GIB,
        "host_memory_gib": estimate.memory.host / GIB,
        "time_to_train_days": cost.time_to_train / DAY,
        "gpu_hours": cost.gpu_seconds / HOUR,
        "cost_usd": cost.cost,
        "energy_kwh": cost.energy / KILOWATT_HOUR,
    }


def _memory_parts(estimate: Estimate) -> dict[str, Any]:
    fullest = estimate.memory.fullest
    return {f"memory_{part}_gib": getattr(fullest, part) / GIB for part in MEMORY_PARTS}


def _time_parts(estimate: Estimate) -> dict[str, Any]:
    if estimate.is_flat:
        return {}
    return {f"time_{part}_s": seconds for part, seconds in estimate.time.parts().items()}
