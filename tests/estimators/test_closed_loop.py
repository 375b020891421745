"""What holds of clients who wait for their answers, whatever the engine is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from serving_cases import replicas
from serving_cases import serving_setting as setting

from planner.base.arrays import FloatArray
from planner.estimators.inference.disaggregated import Pools, disaggregated_run
from planner.estimators.inference.percentiles import (
    request_latency_percentile,
    time_per_output_token_percentile,
)
from planner.estimators.inference.queueing_delay import StepDemand, queue_state
from planner.estimators.inference.serving_estimate import evaluate_serving
from planner.specs.serving_workload import ServingWorkload

CLIENTS: FloatArray = np.array([1.0, 2.0, 3.0, 7.0, 40.0, 256.0, 3000.0])
ENGINES = ("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy", "vllm-v0")
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "llama-3.1-70b")
LENGTHS: dict[str, Any] = {
    "input_tokens": st.sampled_from([1, 60, 1000, 9000, 60_000]),
    "output_tokens": st.sampled_from([1, 2, 16, 300, 4000]),
    "equal_lengths": st.booleans(),
    "num_requests": st.sampled_from([None, 1, 10, 400, 10_000]),
    "draft_tokens": st.sampled_from([0, 3]),
}


@settings(max_examples=examples(300, 12))
@given(
    model=st.sampled_from(MODELS),
    engine=st.sampled_from(ENGINES),
    workload=st.fixed_dictionaries(LENGTHS),
)
def test_rate_times_latency_are_the_requests(
    model: str, engine: str, workload: dict[str, Any]
) -> None:
    """Little's law: clients who hold so many requests see them that often, fewer at their end."""
    found = evaluate_serving(
        setting(model, "h200-sxm-141gb", engine, acceptance_rate=0.6, **workload),
        replicas(num_gpus=4, tensor_parallel=4, concurrency=CLIENTS),
    )
    served = found.served
    # Tokens are passed on beside the engine's next steps.
    latency = served.request_latency(workload["output_tokens"]) - served.phases.passed_on
    number = workload["num_requests"]
    if number is not None:  # the server takes them in before the first of them runs
        clients = np.minimum(CLIENTS, number)
        latency = latency - clients / number * served.intake_time
    held = served.request_rate * latency
    if number is None:
        assert held == pytest.approx(CLIENTS, rel=0.015)
    assert np.all(held <= np.minimum(CLIENTS, number or np.inf) * 1.01)
    assert np.all(found.served.time_to_first_token > 0)


@settings(max_examples=examples(100, 20))
@given(
    prefill=st.integers(1, 9),
    decode=st.integers(1, 9),
    requests=st.integers(1, 3000),
    workload=st.fixed_dictionaries(LENGTHS),
    interval=st.sampled_from([1.0, 10.0]),
)
def test_rate_times_latency_are_the_requests_of_pools(
    prefill: int, decode: int, requests: int, workload: dict[str, Any], interval: float
) -> None:
    pools = Pools(
        prompt_time=np.array(0.2),
        service_time=np.array(0.15),
        transfer_time=np.array(0.01),
        prefill_workers=np.array(float(prefill)),
        decode_workers=np.array(float(decode)),
        fixed=np.array(0.02),
        slope=np.array(1e-4),
        places=np.array(64.0 * decode),
        stream_interval=np.array(interval),
    )
    own = setting("llama-3.1-70b", "h200-sxm-141gb", "vllm", **workload)
    found = disaggregated_run(own, pools, np.array(float(requests)))
    answer = (workload["output_tokens"] - 1) * found.time_per_output_token
    held = found.request_rate * (found.time_to_first_token + answer)
    assert float(held) == pytest.approx(requests, rel=0.01)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_nobody_waits_for_himself(model: str, engine: str) -> None:
    """Alone, the time per token is that of the same context, however long its prompt took."""
    alone = replicas(num_gpus=4, tensor_parallel=4, concurrency=1)
    times = [
        evaluate_serving(
            setting(
                model, "h200-sxm-141gb", engine, input_tokens=prompt, output_tokens=answer,
                prefix_cache_hit_rate=share,
            ),
            alone,
        ).served.time_per_output_token
        for prompt, answer, share in ((20_000, 16, 0.0), (20_000, 16, 0.9), (19_500, 1016, 0.0))
    ]  # fmt: skip
    assert times[0] == pytest.approx(times[1], rel=1e-9)
    assert times[0] == pytest.approx(times[2], rel=0.02)


def test_a_long_prompt_alone() -> None:
    """8B on H100, 114,688 tokens in: 11.5 ms a token are measured, however many come out."""
    alone = replicas(num_gpus=1, concurrency=1)
    for answer in (16, 128, 1280, 12_800):
        own = setting(
            "llama-3.1-8b", "h100-sxm-80gb", "vllm", input_tokens=114_688, output_tokens=answer
        )
        found = evaluate_serving(own, alone).served.time_per_output_token
        assert float(found) == pytest.approx(11.5e-3, rel=0.1)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_a_request_alone_has_no_slow_answers(engine: str) -> None:
    """Its prompt of 11 s stops no answer: one in a hundred takes no longer than the others."""
    own = setting("llama-3.1-8b", "h100-sxm-80gb", engine, input_tokens=114_688, output_tokens=16)
    found = evaluate_serving(own, replicas(num_gpus=1, concurrency=1))
    mean = float(found.served.time_per_output_token)
    assert float(time_per_output_token_percentile(found, 0.99)) == pytest.approx(mean, rel=1e-3)
    whole = float(found.served.time_to_first_token) + 15 * mean
    assert float(request_latency_percentile(found, 0.99)) == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_requests_of_one_length_that_start_together_wait_for_half_of_their_wave(
    engine: str,
) -> None:
    """The mean of a whole wave is half of what the last prompt waits, beside the latency of one."""
    workload = {"input_tokens": 1024, "output_tokens": 1024, "equal_lengths": True}
    own = setting("llama-3.1-8b", "h100-sxm-80gb", engine, num_requests=32, **workload)
    served = evaluate_serving(own, replicas(concurrency=32)).served
    costs = served.phases
    wave = float(costs.prompt_time + 31 * costs.queued)
    outside = own.engine.execution.request_overhead + float(served.intake_time)
    assert float(served.time_to_first_token) - outside == pytest.approx(0.55 * wave, rel=0.2)
    differing = setting("llama-3.1-8b", "h100-sxm-80gb", engine, num_requests=32_000, **workload)
    later = evaluate_serving(differing, replicas(concurrency=32)).served
    if own.engine.scheduler.chunked_prefill:
        assert later.time_to_first_token < served.time_to_first_token


def test_the_first_wave_counts_the_less_the_longer_a_benchmark_lasts() -> None:
    times = [
        evaluate_serving(
            setting("llama-3.1-8b", "h100-sxm-80gb", "vllm", num_requests=number),
            replicas(concurrency=64),
        ).served.time_to_first_token
        for number in (64, 128, 640, 64_000, None)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > 2 * times[2]
    assert times[3] == pytest.approx(times[4], rel=0.02)


def test_a_workload_says_how_many_requests_there_are() -> None:
    assert ServingWorkload(input_tokens=1, output_tokens=1).num_requests is None


@pytest.mark.parametrize(
    ("clients", "prompt", "rate", "wait", "others"),
    [
        (1, 0.1, 5.0, 0.0, 0.0),  # no other is there
        (5, 0.1, 5.0, 0.02 + 0.02, 2 * 0.5 * 0.04 / 2),
        # At most behind the one other: a step, its prompt, and the share of a step that this takes.
        (2, 0.5, 10.0, 0.02 + 0.5 + 0.02 / 4, 2 * 0.98 * 0.52 / 2),
    ],
)
def test_a_client_waits_for_half_a_step_and_what_came_with_it(
    clients: int, prompt: float, rate: float, wait: float, others: float
) -> None:
    """Steps of 20 ms, four prompts each: worked out by hand from the load."""
    lengths = SimpleNamespace(request_rate=None, input_variation=0.0, output_variation=0.0)
    engine = SimpleNamespace(scheduler=SimpleNamespace(chunked_prefill=True))
    inputs: Any = SimpleNamespace(workload=lengths, engine=engine)
    layout: Any = SimpleNamespace(pipeline_parallel=1, concurrency=clients)
    numbers = {"fixed": 0.02, "slope": 0.0, "prompt": prompt, "per_step": 4.0}
    work = StepDemand(
        **{name: np.asarray(number) for name, number in numbers.items()},
        steps=np.asarray(100.0), places=np.asarray(8.0),
    )  # fmt: skip
    state = queue_state(inputs, layout, work, np.asarray(rate), np.asarray(1.0))
    assert float(state.wait) == pytest.approx(wait)
    assert float(state.others) == pytest.approx(others)
