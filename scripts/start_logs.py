"""What engines logged of their memory at the start: ``published/start_logs.csv``.

Rows with ``fitted`` 1 gave parameters of engine profiles, the others did not. Sources are issues,
pull requests and tables of logs; ``quantization`` is empty where it is that of the checkpoint. The
share of gpt-oss-120b is what its weights, torch peak (7.4 GiB) and cache add up to.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.base.units import GIB
from planner.confidence.profile_rules import rule_of_profile
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_memory import (
    ServingMemory,
    longest_request,
    sequence_bytes,
    serving_memory,
)
from planner.estimators.machine import Machine
from planner.specs.catalogue import Catalogue, default_cluster
from planner.specs.serving_workload import ServingWorkload
from planner.specs.software_profile import engine_on

CATALOGUE = Catalogue(None)


def start_logs() -> list[dict[str, str]]:
    with (Path(__file__).parent / "published" / "start_logs.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def setting_of(row: dict[str, str]) -> ServingInputs:
    gpu = CATALOGUE.load_gpu(row["gpu"]).spec
    engine = engine_on(CATALOGUE.load_engine(row["engine"]).spec, gpu, row["version"])
    share = float(row["gpu_memory_utilization"])
    return ServingInputs(
        machine=Machine(gpu=gpu, cluster=default_cluster(gpu), catalogue=CATALOGUE),
        model=CATALOGUE.load_model(row["model"]),
        engine=replace(engine, memory=replace(engine.memory, gpu_memory_utilization=share)),
        workload=ServingWorkload(input_tokens=1024, output_tokens=1024),
    )


def layout_of(row: dict[str, str], setting: ServingInputs) -> ServingConfigurations:
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
    longest = longest_request(setting)  # of which engines print how many the cache holds
    each = float(sequence_bytes(setting, layout, longest)[0]) / longest
    measured = float(row["measured_kv_cache_gib"] or 0) * GIB
    return serving_memory(setting, layout), measured or each * float(
        row["measured_kv_cache_tokens"] or np.nan
    )


def logged_errors() -> Iterator[tuple[str, str, float, float]]:
    """Class, source, and logarithms of usable and of needed over predicted memory of each log.

    Memory is what one sequence of the plan needs on the fullest GPU: the engine had the room that
    it logged, and all else was taken.
    """
    for row in start_logs():
        memory, measured = predicted(row)
        if not math.isfinite(measured):
            continue
        setting = setting_of(row)
        needed = float(memory.needed_for(1.0)[0])
        more = float(memory.room.size[0]) - measured
        error = math.log1p(more / needed)
        engine = CATALOGUE.load_engine(row["engine"]).spec
        label = rule_of_profile(engine, row["gpu"]).label
        yield label, row["source"], math.log(setting.usable_memory / needed), error
