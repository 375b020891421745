"""What more requests and busier replicas may not do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import Request
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.closed_loop import RequestMeans
from planner.estimators.inference.serving_estimate import evaluate_serving
from planner.workloads.make_plan import make_plan
from planner.workloads.serving.replicas import ReplicaSource

SLOW = settings(max_examples=examples(25, 5))
MODELS = ("llama-3.1-8b", "qwen3-30b-a3b", "gemma-2-9b", "llama-3.1-70b")
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb")
ENGINES = ("vllm", "sglang", "tensorrt-llm")
CONCURRENCY = np.array([1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 25, 26, 28, 32, 48])
# Prompts that fill a step together are computed with a little less work each.
LITTLE = 1 - 2e-3
DRAWN = {
    "model": st.sampled_from(MODELS),
    "gpu": st.sampled_from(GPUS),
    "engine": st.sampled_from(ENGINES),
    "lengths": st.sampled_from([(200, 50), (1000, 200), (4000, 32), (8000, 100), (500, 1000)]),
    "tensor": st.sampled_from([1.0, 8.0]),
}


@cache
def _source(
    model: str, gpu: str, engine: str, lengths: tuple[int, int], rate: float | None
) -> ReplicaSource:
    asked = Request(
        model=model,
        gpu=gpu,
        engine=engine,
        workload="serve",
        num_gpus=8,
        mode="aggregated",
        input_tokens=lengths[0],
        output_tokens=lengths[1],
        request_rate=rate,
    )
    (source,) = make_plan(asked).problem.sources
    assert isinstance(source, ReplicaSource)
    return source


def _served(source: ReplicaSource, tensor: float) -> tuple[RequestMeans, np.ndarray]:
    """One replica with ever more requests, and which of them have room."""
    (one,) = (block.rows(np.array([0])) for block in [source.mesh.table()])
    same = {name: np.repeat(getattr(one, name), CONCURRENCY.size) for name in one.names()}
    layout = {"tensor_parallel": tensor, "num_gpus": 8.0, "concurrency": CONCURRENCY * 1.0}
    c = ServingConfigurations(**same)
    ones = dict.fromkeys(("pipeline_parallel", "attention_data_parallel", "expert_parallel"), 1.0)
    broadcast = {k: np.broadcast_to(v, CONCURRENCY.shape) for k, v in {**layout, **ones}.items()}
    estimate = evaluate_serving(source.inputs, replace(c, **broadcast))
    return estimate.served, estimate.memory.most_sequences >= CONCURRENCY


def _rises(values: np.ndarray, has_room: np.ndarray) -> np.ndarray:
    found = values[has_room]
    return found[1:] >= found[:-1] * LITTLE


@SLOW
@given(**DRAWN)
def test_tokens_do_not_come_faster_to_more_concurrent_requests(
    model: str, gpu: str, engine: str, lengths: tuple[int, int], tensor: float
) -> None:
    served, has_room = _served(_source(model, gpu, engine, lengths, None), tensor)
    assert np.all(_rises(served.time_per_output_token, has_room))
    assert np.all(_rises(served.time_to_first_token, has_room))
    assert np.all(_rises(served.request_rate, has_room))


@SLOW
@given(**DRAWN)
def test_first_tokens_do_not_come_sooner_at_higher_rates(
    model: str, gpu: str, engine: str, lengths: tuple[int, int], tensor: float
) -> None:
    """Up to rates at which prompts take half of the time: no queue is stable far beyond."""
    served, has_room = _served(_source(model, gpu, engine, lengths, 1.0), tensor)
    calm = has_room & (served.utilization < 0.5)
    order = np.argsort(served.request_rate[calm], kind="stable")
    first = served.time_to_first_token[calm][order]
    assert np.all(first[1:] >= first[:-1] * LITTLE)
