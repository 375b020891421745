"""The closed forms of waits and their spread against a simulation, request by request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from event_replica import Lengths, Replica, Seen, StepCosts

import planner
from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.continuous_batching import Phases
from planner.estimators.inference.percentiles import (
    request_latency_percentile,
    time_per_output_token_percentile,
    time_to_first_token_percentile,
)
from planner.estimators.inference.serving_estimate import ServingEstimate, evaluate_serving
from planner.estimators.machine import Machine
from planner.specs.catalogue import default_cluster, load_gpu, load_model
from planner.specs.serving_workload import ServingWorkload
from planner.specs.software_profile import load_engine

STEP_TOKENS = 8192
REQUESTS = 20_000
SHARES = (0.5, 0.9, 0.99)
PERCENTILES: dict[str, Callable[[ServingEstimate, float], Any]] = {
    "first": time_to_first_token_percentile,
    "per_token": time_per_output_token_percentile,
    "latency": request_latency_percentile,
}
# Model, GPUs, engine, tokens in, tokens out: dense on one GPU and on four, experts, long
# answers, long prompts, and an engine that stops decoding for prompts.
DEPLOYMENTS = [
    ("llama-3.1-8b", 1, "vllm", 1024, 256),
    ("llama-3.1-8b", 1, "vllm", 4000, 300),
    ("llama-3.1-70b", 4, "vllm", 1024, 256),
    ("llama-3.1-70b", 4, "vllm", 256, 1024),
    ("mixtral-8x7b", 2, "vllm", 1024, 256),
    ("llama-3.1-8b", 1, "tgi", 1024, 256),
]


def deployment(
    model: str, num_gpus: int, engine: str, tokens: tuple[int, int], variation: float
) -> tuple[ServingInputs, ServingConfigurations]:
    """Poisson arrivals at H100s, and every number of requests in flight."""
    gpu = load_gpu("h100-sxm-80gb")
    setting = ServingInputs(
        machine=Machine(gpu=gpu, cluster=default_cluster(gpu)),
        model=load_model(model),
        engine=replace(load_engine(engine).spec, front_end=None),  # its time is not simulated
        workload=ServingWorkload(
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            input_variation=variation,
            output_variation=variation,
            request_rate=1.0,
        ),
    )
    return setting, ServingConfigurations.of(
        num_gpus=num_gpus,
        tensor_parallel=num_gpus,
        pipeline_parallel=1,
        attention_data_parallel=1,
        expert_parallel=1,
        concurrency=np.arange(1.0, 700.0),
        max_num_batched_tokens=STEP_TOKENS,
        quantization=Quantization.W16A16,
        expert_quantization=Quantization.W16A16,
        kv_cache=CacheType.BF16,
        weight_offload=0.0,
        kv_offload=0.0,
    )


def phases_of(phases: Phases, at: Callable[[Any], float]) -> Phases:
    """Those of one configuration."""
    return Phases(
        **{each.name: np.asarray(at(getattr(phases, each.name))) for each in fields(Phases)}
    )


def first_of(values: Any) -> float:
    return float(np.ravel(values)[0])


@pytest.mark.few(2)
@pytest.mark.parametrize("load", [0.3, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("variation", [0.0, 1.0])
@pytest.mark.parametrize(("model", "num_gpus", "engine", "prompt", "answer"), DEPLOYMENTS)
def test_waits_and_percentiles_are_those_of_a_simulation(
    model: str, num_gpus: int, engine: str, prompt: int, answer: int, variation: float, load: float
) -> None:
    setting, c = deployment(model, num_gpus, engine, (prompt, answer), variation)
    estimate = evaluate_serving(setting, c)
    fits = np.flatnonzero(
        (estimate.rejected_by == 0) & (c.concurrency <= setting.engine.scheduler.max_num_seqs)
    )
    row = int(np.argmax(estimate.request_rate >= load * estimate.request_rate[fits[-1]]))

    def at(values: Any) -> float:
        return float(np.broadcast_to(values, c.shape)[row])

    served = estimate.served
    phases = phases_of(served.phases, at)
    places = min(at(estimate.memory.most_sequences), setting.engine.scheduler.max_num_seqs)
    seen = Replica(
        costs=StepCosts.of(phases, prompt, setting.engine.scheduler.chunked_prefill),
        places=int(places),
        step_tokens=STEP_TOKENS,
        prompts=Lengths(mean=prompt, variation=variation),
        answers=Lengths(mean=answer, variation=variation),
    ).poisson(at(estimate.request_rate), REQUESTS)

    outside = setting.engine.execution.request_overhead
    first = at(served.time_to_first_token) - outside
    # Where the places of an engine are nearly all taken, waiting for one rises steeply.
    assert first == pytest.approx(Seen.mean(seen.first), rel=0.1 if load < 0.9 else 0.18)
    assert at(served.time_per_output_token) == pytest.approx(Seen.mean(seen.per_token), rel=0.1)
    if load > 0.8:
        return
    for name, percentile in PERCENTILES.items():
        values = getattr(seen, name)
        for share in SHARES:
            found = at(percentile(estimate, share)) - (name != "per_token") * outside
            assert found == pytest.approx(Seen.within(values, share), rel=0.2), (name, share)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("engine", "clients"), [("vllm", 2), ("vllm", 16), ("vllm", 64), ("tgi", 2), ("tgi", 16)]
)
def test_a_closed_loop_of_clients_that_pause(engine: str, clients: int) -> None:
    """As many requests come in a step as answers end in it, however long it takes.

    The events know no requests that keep starting together (`Scheduler.clustering`).
    """
    setting, c = deployment("llama-3.1-8b", 1, engine, (1024, 256), 0.5)
    apart = replace(setting.engine.scheduler, clustering=0.0)
    setting = replace(
        setting,
        workload=replace(setting.workload, request_rate=None),
        engine=replace(setting.engine, scheduler=apart),
    )
    estimate = evaluate_serving(setting, replace(c, concurrency=np.asarray(float(clients))))
    served = estimate.served
    seen = Replica(
        costs=StepCosts.of(served.phases, 1024, setting.engine.scheduler.chunked_prefill),
        places=128,
        step_tokens=STEP_TOKENS,
        prompts=Lengths(mean=1024, variation=0.5),
        answers=Lengths(mean=256, variation=0.5),
        pause=0.04,
    ).closed(clients, min(8000, 1000 * clients))
    first = float(served.time_to_first_token) - setting.engine.execution.request_overhead
    assert first == pytest.approx(Seen.mean(seen.first), rel=0.4)
    assert float(served.request_rate) == pytest.approx(seen.rate, rel=0.05)
    for share in SHARES:
        token = float(time_per_output_token_percentile(estimate, share))
        assert token == pytest.approx(Seen.within(seen.per_token, share), rel=0.1)


@pytest.mark.parametrize("clients", [4, 16, 48, 100])
def test_prompts_that_the_host_launches_are_computed_with_those_that_wait(clients: int) -> None:
    """Steps of prompts as long as several of decoding gather what comes while they run."""
    setting, c = deployment("qwen3-next-80b-a3b", 4, "sglang", (300, 200), 0.0)
    setting = replace(setting, workload=replace(setting.workload, request_rate=None))
    estimate = evaluate_serving(setting, replace(c, concurrency=np.asarray(float(clients))))
    served = estimate.served
    costs = StepCosts.of(served.phases, 300, setting.engine.scheduler.chunked_prefill)
    assert costs.start > 10 * costs.token * 300
    seen = Replica(
        costs=costs,
        places=512,
        step_tokens=STEP_TOKENS,
        prompts=Lengths(mean=300, variation=0.0),
        answers=Lengths(mean=200, variation=0.5),
        pause=setting.engine.execution.request_overhead,
    ).closed(clients, 4000)
    assert float(served.request_rate) == pytest.approx(seen.rate, rel=0.1)
    token = Seen.mean(seen.per_token)
    assert float(served.time_per_output_token) == pytest.approx(token, rel=0.1)


@pytest.mark.few(4)
@pytest.mark.parametrize("beyond", [1.3, 2.0, 8.0])
@pytest.mark.parametrize(("engine", "variation"), [("vllm", 0.0), ("vllm", 0.7), ("tgi", 0.0)])
def test_requests_that_come_faster_than_they_are_answered(
    engine: str, variation: float, beyond: float
) -> None:
    """2,000 at an empty replica of 128 places: what the first tokens wait, and the end."""
    lengths = {"input_variation": variation, "output_variation": variation}
    asked: dict[str, Any] = {
        "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
        "engine": engine, "input_tokens": 1024, "output_tokens": 256, "num_requests": 2000,
        "settings": {"concurrency": 128}, **lengths,
    }  # fmt: skip
    capacity = planner.estimate(**asked, request_rate=1.0).candidates.capacity.item()
    found = planner.estimate(**asked, request_rate=capacity * beyond).candidates
    served = found.estimate.served
    phases = phases_of(served.phases, first_of)
    replica = Replica(
        costs=StepCosts.of(phases, 1024, found.inputs.engine.scheduler.chunked_prefill),
        places=128,
        step_tokens=found.inputs.engine.scheduler.max_num_batched_tokens,
        prompts=Lengths(mean=1024, variation=variation),
        answers=Lengths(mean=256, variation=variation),
    )
    seen = replica.ending(capacity * beyond, 2000)
    first = found.time_to_first_token.item()
    assert first == pytest.approx(Seen.mean(seen.first), rel=0.15)
    assert found.promises.makespan.item() == pytest.approx(2000 / seen.rate, rel=0.15)
    for share in (0.5, 0.9):
        within = found.percentile("time_to_first_token", share).item()
        assert within == pytest.approx(Seen.within(seen.first, share), rel=0.2), share


@pytest.mark.few(4)
@pytest.mark.parametrize("number", [20, 100, 200, 1000])
@pytest.mark.parametrize("load", [0.5, 0.95, 1.3])
@pytest.mark.parametrize(("engine", "variation"), [("vllm", 0.0), ("vllm", 0.7), ("tgi", 0.0)])
def test_a_short_run_meets_a_replica_that_fills_and_empties(
    engine: str, variation: float, load: float, number: int
) -> None:
    """Of 200 at 0.95 of the capacity an answer is a quarter faster than of those without end."""
    lengths = {"input_variation": variation, "output_variation": variation}
    asked: dict[str, Any] = {
        "workload": "serve", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
        "engine": engine, "input_tokens": 1024, "output_tokens": 256,
        "settings": {"concurrency": 128}, **lengths,
    }  # fmt: skip
    rate = load * planner.estimate(**asked, request_rate=1.0).candidates.capacity.item()
    found = planner.estimate(**asked, request_rate=rate, num_requests=number).candidates
    phases = phases_of(found.estimate.served.phases, first_of)
    runs = [
        Replica(
            costs=StepCosts.of(phases, 1024, found.inputs.engine.scheduler.chunked_prefill),
            places=128,
            step_tokens=found.inputs.engine.scheduler.max_num_batched_tokens,
            prompts=Lengths(mean=1024, variation=variation),
            answers=Lengths(mean=256, variation=variation),
            seed=seed,
        ).ending(rate, number)
        for seed in range(1, 9)
    ]

    def mean(of: Callable[[Seen], float]) -> float:
        return float(np.mean([of(seen) for seen in runs]))

    token = mean(lambda seen: Seen.mean(seen.per_token))
    assert found.time_per_output_token.item() == pytest.approx(token, rel=0.15)
    latency = mean(lambda seen: Seen.mean(seen.latency))
    assert found.request_latency.item() == pytest.approx(latency, rel=0.15)
    for share in (0.5, 0.9):
        within = found.percentile("time_per_output_token", share).item()
        seen_within = mean(lambda seen, share=share: Seen.within(seen.per_token, share))
        assert within == pytest.approx(seen_within, rel=0.25), share
    in_flight = mean(lambda seen: number * Seen.mean(seen.latency) / seen.end)
    assert found.in_flight.item() == pytest.approx(in_flight, rel=0.35)
