"""Room for the cache as engines logged it at their start (``published/start_logs.csv``).

Rows with ``fitted`` 1 gave the parameters of the profiles; the others did not.
"""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.configurations.serving import ServingConfigurations
from planner.enums import CacheType, Quantization
from planner.estimators.inference.memory import ServingMemory, sequence_bytes, serving_memory
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.machine import Machine
from planner.specs.catalogue import Catalogue, default_cluster
from planner.specs.serving import ServingWorkload
from planner.units import GIB

CATALOGUE = Catalogue(None)
LONG = 2**16


def logs() -> list[dict[str, str]]:
    with (Path(__file__).parent / "published" / "start_logs.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def setting_of(row: dict[str, str]) -> ServingSetting:
    gpu = CATALOGUE.load_gpu(row["gpu"]).spec
    engine = CATALOGUE.load_engine(row["engine"]).spec
    share = float(row["gpu_memory_utilization"])
    return ServingSetting(
        machine=Machine(gpu=gpu, cluster=default_cluster(gpu), catalogue=CATALOGUE),
        model=CATALOGUE.load_model(row["model"]),
        engine=replace(engine, memory=replace(engine.memory, gpu_memory_utilization=share)),
        workload=ServingWorkload(input_tokens=1024, output_tokens=1024),
    )


def layout_of(row: dict[str, str], setting: ServingSetting) -> ServingConfigurations:
    model = setting.model
    word = row["quantization"] or model.quantization or "w16a16"
    experts = row["quantization"] or model.expert_quantization or word
    codes = {code.word: code for code in Quantization}
    t, p = int(row["tensor_parallel"]), int(row["pipeline_parallel"])
    values: dict[str, Any] = {
        "num_gpus": t * p,
        "tensor_parallel": t,
        "pipeline_parallel": p,
        "attention_data_parallel": 1,
        "expert_parallel": 1,
        "concurrency": 1,
        "max_num_batched_tokens": int(row["max_num_batched_tokens"]),
        "quantization": codes[word],
        "expert_quantization": codes[experts],
        "kv_cache": CacheType.BF16,
        "weight_offload": 0,
        "kv_offload": 0,
    }
    return ServingConfigurations.of(**{name: [value] for name, value in values.items()})


def predicted(row: dict[str, str]) -> tuple[ServingMemory, float]:
    """The memory, and the measured room in bytes or none."""
    setting = setting_of(row)
    layout = layout_of(row, setting)
    each = float(sequence_bytes(setting, layout, LONG)[0]) / LONG
    measured = float(row["measured_kv_cache_gib"] or 0) * GIB
    return serving_memory(setting, layout), measured or each * float(
        row["measured_kv_cache_tokens"] or np.nan
    )


def room_error(row: dict[str, str]) -> float:
    memory, measured = predicted(row)
    return float(memory.room.size[0]) / measured - 1


def test_room_of_engines_that_share_a_model_between_gpus() -> None:
    rows = [row for row in logs() if int(row["tensor_parallel"]) >= 4 and row["fitted"] == "0"]
    errors = {
        row["case"] + row["version"]: room_error(row)
        for row in rows
        if row["measured_kv_cache_gib"] or row["measured_kv_cache_tokens"]
    }
    assert len(errors) >= 7
    assert max(abs(error) for error in errors.values()) < 0.1, errors


def test_room_of_all_logs() -> None:
    errors = np.array([room_error(row) for row in logs()])
    errors = np.abs(errors[np.isfinite(errors)])
    assert len(errors) >= 35
    assert np.median(errors) < 0.01
    assert np.mean(errors < 0.055) > 0.9


@pytest.mark.parametrize(
    "row", [row for row in logs() if row["measured_weights_gib"]], ids=lambda row: row["case"]
)
def test_weights_of_a_gpu(row: dict[str, str]) -> None:
    memory, _ = predicted(row)
    # gpt-oss pads its experts to widths that the kernels take.
    tolerance = 0.06 if "gpt-oss" in row["case"] else 0.02
    assert float(memory.weights[0]) / GIB == pytest.approx(
        float(row["measured_weights_gib"]), rel=tolerance
    )


def test_where_the_usual_sequences_leave_no_room_those_of_the_plan_do() -> None:
    row = next(row for row in logs() if row["case"] == "Qwen3 32B")
    setting = setting_of(row)
    one = layout_of(row, setting)
    few = serving_memory(setting, one)
    many = serving_memory(setting, replace(one, concurrency=np.array([14.0])))
    # 4.3 GiB remain where 1,024 sequences are sampled: 14 of 2,048 tokens need more.
    assert few.activations[0] > 2 * many.activations[0]
    assert few.room.size[0] < many.kv_cache[0] < many.room.size[0]


def test_peers_over_pcie_need_no_buffers() -> None:
    row = next(row for row in logs() if row["case"] == "Qwen3 32B tp 2")
    fast = predicted(row)[0].reserved[0]
    slow = predicted({**row, "gpu": "rtx4090-24gb"})[0].reserved[0]
    assert fast - slow == pytest.approx(1.85 * GIB)
