"""The interval of the memory and the fit probability are one distribution."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from draws import examples
from memory_fits import Ending, judged

import planner
from planner.base.units import GIB
from planner.confidence.intervals import INFERENCE_TABLES, TRAINING_TABLES, memory_errors
from planner.confidence.profile_rules import read_table
from planner.confidence.rl import RL_TABLES
from planner.errors import PlannerError
from planner.estimators.inference.serving_memory import needed_to_start
from planner.specs.catalogue import Catalogue

_NORMAL = NormalDist()
TRAIN = {
    "model": ("llama-3.1-8b", "llama-3-70b", "mixtral-8x7b"),
    "gpu": ("h100", "a100-sxm-80gb", "rtx4090-24gb"),
    "num_gpus": (1, 4, 8, 32, 256),
    "framework": ("megatron-lm", "pytorch-fsdp", "deepspeed"),
}
SERVE = {
    "model": ("llama-3.1-8b", "llama-3-70b", "gpt-oss-120b"),
    "gpu": ("h100", "a100-sxm-80gb", "l40s"),
    "num_gpus": (1, 2, 4, 8),
    "engine": ("vllm", "sglang", "tensorrt-llm"),
}


def implied_probability(row: Mapping[str, Any], usable: float | None = None) -> float:
    """P(peak <= usable) by the log-normal variable through both ends of a row's peak memory.

    ``usable``: bytes; None: all that programs may use of the GPU.
    """
    usable = usable or Catalogue(None).load_gpu(row["gpu"]).spec.allocatable_memory
    low, high = (math.log(row[f"peak_memory_{end}_gib"] * GIB) for end in ("low", "high"))
    deviation = (high - low) / 2 / _NORMAL.inv_cdf(0.95)
    return _NORMAL.cdf((math.log(usable) - (low + high) / 2) / deviation)


def drawn(seed: int, question: Mapping[str, tuple[Any, ...]], gate: int) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {name: draw.choice(values) for name, values in question.items()}
        for _ in range(examples(60, gate))
    ]


def test_search_and_estimate_of_training(seed: int) -> None:
    rows = 0
    for asked in drawn(seed, TRAIN, 6):
        for ask in (planner.search, planner.estimate):
            try:
                frame = ask(**asked).to_frame()
            except PlannerError:
                continue
            for row in frame.to_dict("records"):
                assert implied_probability(row) == pytest.approx(row["fit_probability"], abs=0.01)
                rows += 1
    assert rows


def test_size_of_training() -> None:
    found = planner.size(
        model="llama-2-13b",
        framework="megatron-lm",
        space="small",
        gpu="a100-sxm-80gb",
        total_tokens="100B",
        constraints={"calendar_time": "30d"},
    )
    for row in found.to_frame().to_dict("records"):
        assert implied_probability(row) == pytest.approx(row["fit_probability"], abs=0.01)


def test_serving(seed: int) -> None:
    """The peak includes the KV cache of all requests; it fits if the engine can start."""
    rows = 0
    for asked in drawn(seed, SERVE, 6):
        try:
            found = planner.estimate(workload="serve", **asked, settings={"concurrency": 16})
        except PlannerError:
            continue
        (row,) = found.to_frame().to_dict("records")
        estimate = found.candidates.estimate
        start = needed_to_start(estimate.inputs, estimate.memory, estimate.configurations)
        memory = estimate.memory
        usable = float(np.ravel(memory.usable * memory.total / start)[0])
        assert implied_probability(row, usable) == pytest.approx(row["fit_probability"], abs=0.01)
        rows += 1
    assert rows


def test_intervals_hold_the_shares_of_the_distribution() -> None:
    for tables in (TRAINING_TABLES, INFERENCE_TABLES, RL_TABLES):
        for row in read_table(tables.fits):
            errors = memory_errors(tables, row["software"], row["kind"], row["scale"], row["work"])
            low, high = errors.interval
            found = errors.fit_probability(predicted=1.0, usable=np.array([low, high]))
            assert found == pytest.approx([0.05, 0.95], abs=1e-6)


def _measured(work: str, publisher: str, software: str, error: float) -> Ending:
    keys = [("", "", ""), ("dense", "", ""), ("dense", software, "")]
    return Ending(
        keys=tuple(keys), publisher=publisher, room=2.0, error=error, ran_out=False, work=work
    )


def test_each_work_has_its_own_factor_and_so_has_software_without_runs_of_it() -> None:
    """Two publishers agree on each of two works; a third tunes with software of its own."""
    draw = random.Random(7)
    published = [
        ("pretrain", "one", "A", 0.05),
        ("pretrain", "two", "A", 0.05),
        ("finetune", "one", "B", 0.1),
        ("finetune", "two", "B", 0.1),
        ("finetune", "three", "C", 0.4),
    ]
    found = [
        _measured(work, name, software, draw.gauss(0.0, spread))
        for work, name, software, spread in published
        for _ in range(20)
    ]
    factors = judged(found).factors
    assert factors["finetune", False] > 1.5 * factors["finetune", True]
    assert factors["finetune", True] > factors["pretrain", True]
