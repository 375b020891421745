"""Result columns of training are the estimate, in the units that their names say."""

from __future__ import annotations

import math

import numpy as np
import pytest

import planner

DAY, GIB = 86400.0, 2.0**30


def test_columns_are_the_estimate_in_their_units():
    settings = {"tensor_parallel": 2, "pipeline_parallel": 2, "recompute": "full"}
    found = planner.estimate(
        model="llama-2-13b",
        num_gpus=16,
        gpu="h100",
        price=3.0,
        region="SE",
        pue=1.2,
        total_tokens=1e12,
        settings=settings,
        reliability="ideal",
    )
    row, estimate = found.to_frame().iloc[0], found.estimate
    step = float(np.ravel(estimate.step_time)[0])
    tokens = row["global_batch_size"] * 4096
    steps = math.ceil(1e12 / tokens)
    fullest = estimate.memory.fullest
    parts = estimate.time.parts()
    computing = sum(parts[name] for name in ("forward", "backward", "recompute", "optimizer"))
    boards = 0.5 + (0.99 - 0.5) * float(np.ravel(computing)[0]) / step
    power = 16 * 0.7 * (boards + 0.47) / (1 - 0.07) * 1.2
    expected = {
        "step_time_s": step,
        "tokens_per_s": tokens / step,
        "tokens_per_s_per_gpu": tokens / step / 16,
        "time_to_train_days": steps * step / DAY,
        "calendar_time_days": steps * step / DAY,
        "gpu_hours": steps * step * 16 / 3600,
        "cost_usd": steps * step * 16 / 3600 * 3.0,
        # A PFLOP/s-day at 3 USD per GPU-hour: 24,000 GPU-hours per TFLOP/s that a GPU reaches.
        "cost_per_pflop_day_usd": 3.0 * 24_000 / row["tflops_per_gpu"],
        "power_kw": power,
        "energy_kwh": steps * step / 3600 * power,
        "carbon_kg": steps * step / 3600 * power * 0.040695,
        "peak_memory_gib": float(np.ravel(estimate.peak_memory)[0]) / GIB,
        "memory_weights_gib": float(np.ravel(fullest.weights)[0]) / GIB,
        "data_parallel": 4,
        "gradient_accumulation_steps": row["global_batch_size"] / 4,
    }
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=1e-9), name
    assert sum(row.filter(regex="^time_.*_s$")) == pytest.approx(step)
    memory = row.filter(regex="^memory_(?!headroom).*_gib$")
    assert sum(memory) == pytest.approx(row["peak_memory_gib"])
    assert (row["gpu"], row["framework"]) == ("h100-sxm-80gb", "Megatron-LM")
    assert row["tflops_per_gpu"] == pytest.approx(row["model_flops_utilization"] * 989.5, rel=1e-3)


def test_where_nothing_fits_no_time_is_predicted(monkeypatch):
    monkeypatch.setattr("planner.estimators.training.training_estimate.step_time", None)
    found = planner.search(model="llama-65b", num_gpus=1, constraints={"calendar_time": "1d"})
    assert [miss.rejection for miss in found.nearest_misses] == ["out_of_memory"]
    with pytest.raises(TypeError):
        planner.search(model="llama-7b", num_gpus=8)
