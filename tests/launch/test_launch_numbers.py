"""Numbers of launch files that follow from predictions, and of logs: how, worked out again."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from worked.plans import PLANS, job
from worked.said import said

from planner.launch.job import Job
from planner.launch.logs.reading import STEP_TIME, Step
from planner.launch.logs.steady import steady_state
from planner.launch.targets import target_of

GIB = 2**30


def written(target: str, of: Job, process: str = "serve") -> dict[str, str]:
    return said(target_of(target).drafted(of), process)


def test_what_an_engine_keeps_of_a_gpu_is_what_was_predicted() -> None:
    """SGLang's share is of weights and cache, TensorRT-LLM's of what they leave to the cache."""
    of = job(PLANS["sglang"]["replicas"])
    size = of.gpu.allocatable_memory / GIB
    every = of.profile.memory.gpu_memory_utilization
    beside = of.row["memory_activations_gib"] + of.row["memory_reserved_gib"]
    share = float(written("sglang", of)["--mem-fraction-static"])
    assert share == pytest.approx(every - beside / size, abs=1e-4)
    of = job(PLANS["tensorrt-llm"]["replicas"])
    every = of.profile.memory.gpu_memory_utilization
    names = ("weights", "activations", "reserved")
    free = size - sum(of.row[f"memory_{name}_gib"] for name in names)
    share = float(written("tensorrt-llm", of)["--kv_cache_free_gpu_memory_fraction"])
    assert share == pytest.approx((free - size * (1 - every)) / free, abs=1e-4)


# A token of Llama 3.1 8B takes 2 x 32 layers x 8 heads x 128 x 2 bytes of cache; half is kept.
OF_A_TOKEN = 2 * 32 * 8 * 128 * 2 / 2


@pytest.mark.parametrize(
    ("engine", "target", "option", "unit"),
    [
        pytest.param("vllm", "vllm", "--kv-offloading-size", GIB, id="vLLM says GiB"),
        pytest.param("sglang", "sglang", "--hicache-size", 1e9, id="SGLang says GB, whole ones"),
        pytest.param(
            "tensorrt-llm", "tensorrt-llm", "kv_cache_config.host_cache_size", 1,
            id="TensorRT-LLM says bytes",
        ),
    ],
)  # fmt: skip
def test_a_cache_on_the_host_has_the_unit_of_its_engine(
    engine: str, target: str, option: str, unit: float
) -> None:
    """101 requests at once whose mean length is between that of a prompt and of all its tokens."""
    plan = PLANS["tensorrt-llm"]["offloaded"]
    of = job({**plan, "engine": engine})
    tokens = of.row["host_memory_gib"] * GIB / OF_A_TOKEN / 101
    assert 1009 < tokens < 1009 + 211 + 32
    value = float(written(target, of)[option]) * unit
    exact = OF_A_TOKEN * 101 * tokens
    assert value == pytest.approx(math.ceil(exact / unit) * unit if unit == 1e9 else exact, rel=1e-4)


def test_a_cache_on_the_hosts_of_a_server_is_of_all_its_gpus() -> None:
    of = job(PLANS["vllm"]["experts"])
    size = float(written("vllm", of)["--kv-offloading-size"])
    assert size == pytest.approx(2 * of.row["host_memory_gib"], rel=1e-3)


@pytest.mark.parametrize(
    ("target", "option"),
    [
        ("megatron-lm", "--save-interval"),
        ("megatron-bridge", "checkpoint.save_interval"),
        ("megatron-deepspeed", "--save-interval"),
        ("maxtext", "checkpoint_period"),
    ],
)
def test_checkpoints_are_as_many_steps_apart_as_goodput_has_seconds(
    target: str, option: str
) -> None:
    plan = PLANS[target]["dense"]
    of = job({**plan, "reliability": "published"})
    steps = int(written(target, of, "train")[option])
    interval, step = of.row["checkpoint_interval_s"], of.row["step_time_s"]
    assert steps > 1
    assert abs(steps * step - interval) <= step / 2
    # Never fewer than one.
    rare = replace(of, row={**of.row, "step_time_s": 10 * interval})
    assert written(target, rare, "train")[option] == "1"


def log(lines: int, every: int = 1, **more: Any) -> list[Step]:
    """A log with a line every so many steps; each takes as long as its number."""
    return [
        Step(number=number, stream="", value=float(number), **more)
        for number in range(every, lines * every + 1, every)
    ]


@pytest.mark.parametrize(
    ("lines", "every", "left_out"),
    [
        pytest.param(1, 1, 0, id="one line is all there is"),
        pytest.param(2, 1, 1, id="never more than half"),
        pytest.param(5, 1, 2, id="nor of an odd number"),
        pytest.param(9, 1, 3, id="three steps"),
        pytest.param(39, 1, 3, id="until a tenth is more"),
        pytest.param(40, 1, 4, id="a tenth"),
        pytest.param(170, 1, 17, id="a tenth of many"),
        pytest.param(900, 1, 20, id="twenty at most"),
        pytest.param(12, 2, 2, id="three steps are two lines of two"),
        pytest.param(12, 10, 1, id="and one of ten"),
        pytest.param(50, 10, 5, id="a tenth of lines, not of steps"),
    ],
)
def test_how_many_lines_of_a_log_are_warm_up(lines: int, every: int, left_out: int) -> None:
    found = steady_state(log(lines, every), STEP_TIME)
    assert (found.warmup, found.lines) == (left_out, lines - left_out)
    # The median of what is left of steps that get slower one by one.
    assert found.value == every * (left_out + 1 + lines) / 2


def test_each_start_of_a_run_has_a_tenth_of_its_own_lines_as_warm_up() -> None:
    found = steady_state([*log(50), *log(80)], STEP_TIME)
    assert found.warmup == 5 + 8
