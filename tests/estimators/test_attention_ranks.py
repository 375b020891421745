"""Data-parallel attention: a step waits for the rank with the most to do."""

from __future__ import annotations

from typing import Any

import pytest
from serving_cases import replicas, serving_setting

from planner.estimators.inference.continuous_batching import phases
from planner.estimators.inference.disaggregated import prefill_workers
from planner.estimators.inference.engine_step import InferenceStep
from planner.estimators.inference.static_batch import StaticBatch, static_batch

PROMPT = 8192


def batch_of(concurrency: int, ranks: int, **values: Any) -> StaticBatch:
    """So many prompts of a model of experts on as many GPUs as attention has ranks."""
    setting = serving_setting("qwen3-30b-a3b", "h200-sxm-141gb", input_tokens=PROMPT)
    layout = {"num_gpus": ranks, "attention_data_parallel": ranks, "expert_parallel": ranks}
    return static_batch(setting, replicas(**{**layout, "concurrency": concurrency, **values}))


def seconds_of(step: InferenceStep, operator: str) -> float:
    """Seconds of an operator in one layer of a step."""
    ((_, operators),) = step.layers
    (found,) = (o for o in operators if o.name == operator)
    return float(found.forward.ravel()[0])


@pytest.mark.parametrize("operator", ["qkv", "attention_prefill", "attention_output"])
def test_one_prompt_is_the_work_of_one_rank(operator: str) -> None:
    alone = seconds_of(batch_of(1, 1).prefill_step, operator)
    of_eight = seconds_of(batch_of(1, 8).prefill_step, operator)
    assert of_eight == pytest.approx(alone)
    assert seconds_of(batch_of(8, 8).prefill_step, operator) == pytest.approx(alone)


def test_its_experts_are_the_work_of_all_ranks() -> None:
    alone = seconds_of(batch_of(1, 1).prefill_step, "experts")
    assert seconds_of(batch_of(1, 8).prefill_step, "experts") < 0.4 * alone


def test_fewer_sequences_than_ranks_decode_no_faster_than_one_on_each() -> None:
    steps = {n: batch_of(n, 8).decode_step for n in (1, 4, 8, 64)}
    times = {n: seconds_of(step, "attention_decode") for n, step in steps.items()}
    assert times[1] == pytest.approx(times[8]) == pytest.approx(times[4])
    assert times[64] > 2 * times[8]


def test_a_prompt_longer_than_a_ranks_step_takes_several_steps() -> None:
    whole = batch_of(1, 8, max_num_batched_tokens=PROMPT)
    halves = batch_of(1, 8, max_num_batched_tokens=PROMPT / 2)
    half_step = float(halves.prefill_step.total.ravel()[0])
    assert float(halves.time_to_first_token.ravel()[0]) == pytest.approx(2 * half_step, rel=1e-6)
    assert half_step < float(whole.prefill_step.total.ravel()[0])


def test_prompts_of_a_server_are_computed_by_one_rank_each() -> None:
    setting = serving_setting("qwen3-30b-a3b", "h200-sxm-141gb", input_tokens=PROMPT)
    layout = {"num_gpus": 8, "attention_data_parallel": 8, "expert_parallel": 8}
    costs = phases(setting, replicas(**layout, concurrency=8), replicas(concurrency=8).concurrency)
    batch = batch_of(1, 8).prefill_step
    assert costs.prompt_time == pytest.approx(float(batch.total.ravel()[0]), rel=0.1)
    # Eight at once take a third of the time of eight, one after the other.
    assert float(costs.queued.ravel()[0]) < 0.4 * float(costs.prompt_time.ravel()[0])


def test_prompts_of_several_steps_are_computed_beside_those_of_other_ranks() -> None:
    """32,000 tokens in steps of 1,024 a rank: DeepSeek-V3.2 in SGLang was 3.4 times too slow."""
    setting = serving_setting("qwen3-30b-a3b", "h200-sxm-141gb", input_tokens=PROMPT)
    layout = {"num_gpus": 8, "attention_data_parallel": 8, "expert_parallel": 8}
    c = replicas(**layout, concurrency=64, max_num_batched_tokens=PROMPT / 32)
    costs = phases(setting, c, replicas(concurrency=64).concurrency)
    assert float(costs.parts.ravel()[0]) > 16
    assert costs.prefill == pytest.approx(costs.queued, rel=0.05)


def test_prefill_workers_take_a_prompt_on_every_rank() -> None:
    setting = serving_setting("qwen3-30b-a3b", "h200-sxm-141gb", input_tokens=2 * PROMPT)
    layout = {"num_gpus": 8, "attention_data_parallel": 8, "expert_parallel": 8}
    workers = prefill_workers(setting, replicas(**layout), inside_fabric=True)
    assert float(workers.configurations.concurrency.ravel()[0]) == 8
    one, queued = float(workers.prompt_time.ravel()[0]), float(workers.service_time.ravel()[0])
    assert one / 8 <= queued * (1 + 1e-9)
    assert queued < one / 3
