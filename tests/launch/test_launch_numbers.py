"""Numbers of launch files that follow from predictions, and of logs: how, worked out again."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from worked.asked import SPECS, job
from worked.plans import PLANS
from worked.said import said

from planner.launch.target import LaunchJob
from planner.launch.targets import target_of
from planner.logs.formats import read_log
from planner.logs.log_reader import SAMPLES, STEP_TIME, TOKENS, LoggedStep, LogSummary, steady_state
from planner.optimize.source import first_row
from planner.question.request import Request
from planner.validation.logs.log_comparison import compare
from planner.validation.logs.predicted_run import PredictedRun
from planner.workloads.make_plan import evaluate, make_single_plan
from planner.workloads.saved_plan import SavedPlan

GIB = 2**30
ALIKE = {"input_variation": 0.0, "output_variation": 0.0}


def written(target: str, of: LaunchJob, process: str = "serve") -> dict[str, str]:
    return said(target_of(target).make_draft(of), process)


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
    of = job({**plan, **ALIKE, "engine": engine})
    tokens = of.row["host_memory_gib"] * GIB / OF_A_TOKEN / 101
    assert 1009 < tokens < 1009 + 211 + 32
    value = float(written(target, of)[option]) * unit
    exact = OF_A_TOKEN * 101 * tokens
    assert value == pytest.approx(
        math.ceil(exact / unit) * unit if unit == 1e9 else exact, rel=1e-4
    )


def test_a_cache_on_the_hosts_of_a_server_is_of_all_its_gpus() -> None:
    of = job({**PLANS["vllm"]["experts"], **ALIKE})
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


def log(lines: int, every: int = 1, **more: Any) -> list[LoggedStep]:
    """A log with a line every so many steps; each takes as long as its number."""
    return [
        LoggedStep(number=number, stream="", value=float(number), **more)
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


def planned(**asked: Any) -> PredictedRun:
    of = make_single_plan(Request(**{"gpu": "h100-sxm", "specs": SPECS, **asked}))
    row = first_row(evaluate(of).candidates.columns())
    return PredictedRun.of(SavedPlan.of(of, row))


TRAINED = {
    "workload": "train", "model": "odd-llama", "framework": "megatron-lm", "num_gpus": 24,
    "global_batch_size": 168, "sequence_length": 1100, "settings": {"micro_batch_size": 7},
}  # fmt: skip


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        pytest.param(STEP_TIME, 2.5, id="seconds of a step"),
        # 168 sequences of 1,100 tokens on 24 GPUs are 7,700 tokens of each.
        pytest.param(TOKENS, 3080.0, id="tokens of a GPU in a second"),
        pytest.param(SAMPLES, 67.2, id="sequences of all GPUs in a second"),
    ],
)
def test_what_a_log_counts_becomes_the_time_of_a_step(quantity: str, value: float) -> None:
    steps = tuple(LoggedStep(number=number, stream="", value=value) for number in range(1, 13))
    reading = LogSummary(format="x", title="x", is_training=True, quantity=quantity, steps=steps)
    compared = compare(reading, planned(**TRAINED), "run")
    found = {one.name: one.measured for one in compared.quantities}
    assert found == pytest.approx({STEP_TIME: 2.5, TOKENS: 3080.0})
    assert compared.cells[f"measured_{STEP_TIME}"] == "2.5"


def test_timings_of_llama_server_are_of_a_token(tmp_path: Path) -> None:
    path = tmp_path / "llama.log"
    path.write_text(
        "prompt eval time =     303.00 ms /   101 tokens (  3.00 ms per token)\n"
        "       eval time =     350.00 ms /    50 tokens (  7.00 ms per token)\n"
    )
    read = read_log(path)
    assert read.values == pytest.approx(
        {"time_to_first_token_s": 0.303, "time_per_output_token_s": 0.007}
    )


@pytest.mark.parametrize(
    ("unit", "seconds"), [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("sec", 1.0)]
)
def test_times_of_aiperf_are_in_the_unit_that_it_names(
    unit: str, seconds: float, tmp_path: Path
) -> None:
    path = tmp_path / "profile.json"
    times = {"avg": 37.0, "p90": 41.0, "unit": unit}
    found = {"request_throughput": {"avg": 3.0}, "request_latency": times}
    path.write_text(json.dumps(found))
    read = read_log(path)
    assert read.values["request_latency_s"] == pytest.approx(37 * seconds)
    assert read.percentiles["request_latency_s", 90] == pytest.approx(41 * seconds)


def test_a_log_of_a_load_is_dealt_to_replicas_and_ranks() -> None:
    """3 replicas have 111 requests, 37 each; of 4 attention ranks none has more than 10."""
    served = {
        "workload": "serve", "model": "qwen3-30b-a3b", "engine": "vllm", "num_gpus": 12,
        "input_tokens": 1009, "output_tokens": 211,
    }  # fmt: skip
    layout = {"attention_data_parallel": 4, "expert_parallel": 4}
    plan = planned(**served, settings={**layout, "concurrency": 52})
    at_load = plan.at_load(111.0, None)
    assert at_load is not None
    assert (at_load.row["concurrency"], at_load.row["replicas"]) == (37, 3)
    reading = LogSummary(
        format="x", title="x", is_training=False, facts={"concurrency": 111.0},
        values={"requests_per_s": 3.0},
    )  # fmt: skip
    cells = compare(reading, plan, "run").cells
    assert (cells["concurrency"], cells["max_num_seqs"]) == ("111", "13")


def test_each_start_of_a_run_has_a_tenth_of_its_own_lines_as_warm_up() -> None:
    found = steady_state([*log(50), *log(80)], STEP_TIME)
    assert found.warmup == 5 + 8
