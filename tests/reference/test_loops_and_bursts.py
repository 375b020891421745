"""Each closed form of requests in a replica against a simulation of it, on drawn questions.

Of equal lengths whose prompts take most of the time the time per token and the first tokens of a
loop depend on which prompts happen to meet: tolerances are wider there.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from event_replica import Lengths, Replica, Seen, StepCosts
from test_event_replica import deployment

import planner
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.burst import share_until_the_end
from planner.estimators.inference.closed_loop import RequestMeans, served_at_concurrency
from planner.estimators.inference.percentiles import time_to_first_token_percentile
from planner.estimators.inference.serving_estimate import ServingEstimate
from planner.estimators.inference.serving_memory import serving_memory

DEPLOYMENTS = [
    ("llama-3.1-8b", 1, "vllm", (1024, 256)),
    ("llama-3.1-8b", 1, "vllm", (217, 202)),
    ("llama-3.1-70b", 4, "vllm", (1024, 256)),
    ("mixtral-8x7b", 2, "vllm", (256, 512)),
    ("llama-3.1-8b", 1, "tgi", (1024, 256)),
    ("llama-3.1-8b", 1, "vllm", (6000, 100)),
]
SEEDS = range(1, 5)
_BUSY = 0.6


def one(values: Any) -> float:
    return float(np.ravel(values)[0])


@dataclass(frozen=True)
class Question:
    """``number`` requests of ``clients`` who start at once, in a replica of some places."""

    inputs: ServingInputs
    configurations: ServingConfigurations
    tokens: tuple[int, int]
    clients: int
    number: int
    variation: float

    @staticmethod
    def drawn(chance: random.Random, beyond: Callable[[int], tuple[int, int]]) -> Question:
        """``beyond`` makes clients and number of the places."""
        model, gpus, engine, tokens = chance.choice(DEPLOYMENTS)
        variation = chance.choice([0.0, 0.5, 1.0])
        places = chance.choice([32, 64, 128])
        clients, number = beyond(places)
        setting, c = deployment(model, gpus, engine, tokens, variation)
        scheduler = replace(setting.engine.scheduler, max_num_seqs=places)
        workload = replace(
            setting.workload,
            request_rate=None,
            num_requests=number,
            equal_lengths=variation == 0,
        )
        setting = replace(
            setting, engine=replace(setting.engine, scheduler=scheduler), workload=workload
        )
        c = replace(c, concurrency=np.asarray(float(clients)))
        return Question(setting, c, tokens, clients, number, variation)

    def closed(self) -> tuple[ServingEstimate, float]:
        """What the closed form says, and the rate until the last answer."""
        setting, c = self.inputs, self.configurations
        least = min(self.clients, setting.engine.scheduler.max_num_seqs)
        memory = serving_memory(setting, replace(c, concurrency=np.asarray(float(least))))
        served = served_at_concurrency(setting, c, memory)
        running = np.asarray(min(self.clients, self.places(memory.most_sequences)), np.float64)
        number = np.asarray(float(self.number))
        # The simulation has one line for steps of all sizes.
        line = (served.phases.fixed, served.phases.slope)
        with patch("planner.estimators.inference.burst.decode_line", lambda *_: line):
            share = share_until_the_end(setting, c, served, running, number)
        found = ServingEstimate(
            inputs=setting, configurations=c, memory=memory, served=served,
            rejected_by=np.zeros((), np.int8),
        )  # fmt: skip
        return found, one(served.request_rate * share)

    def places(self, room: Any) -> int:
        return int(min(one(room), self.inputs.engine.scheduler.max_num_seqs))

    def seen(self, found: ServingEstimate) -> list[Seen]:
        """What the simulation says, of several seeds."""
        costs = StepCosts.of(
            found.served.phases,
            self.tokens[0],
            self.inputs.engine.scheduler.chunked_prefill,
        )
        return [
            Replica(
                costs=costs,
                places=self.places(found.memory.most_sequences),
                step_tokens=8192,
                prompts=Lengths(mean=self.tokens[0], variation=self.variation),
                answers=Lengths(mean=self.tokens[1], variation=self.variation),
                pause=self.inputs.engine.execution.request_overhead,
                seed=seed,
            ).benchmark(self.clients, self.number)
            for seed in SEEDS
        ]


def mean(seen: list[Seen], of: Callable[[Seen], float]) -> float:
    return float(np.mean([of(each) for each in seen]))


def first_of(served: RequestMeans, setting: ServingInputs) -> float:
    return one(served.time_to_first_token) - setting.engine.execution.request_overhead


def is_odd(question: Question, served: RequestMeans) -> bool:
    """Whether prompts of equal lengths fill the replica."""
    return question.variation == 0 and one(served.utilization) > _BUSY


@pytest.mark.few(10)
@pytest.mark.parametrize("seed", range(60))
def test_a_burst_drains(seed: int) -> None:
    """Of all requests at once, fewer than the places or several times as many."""
    chance = random.Random(seed)
    waves = chance.choice([0.2, 0.6, 1.0, 1.5, 3.0, 8.0])

    def beyond(places: int) -> tuple[int, int]:
        return (max(int(waves * places), 4),) * 2

    question = Question.drawn(chance, beyond)
    found, rate = question.closed()
    seen, served = question.seen(found), found.served
    odd = is_odd(question, served)
    first = first_of(served, question.inputs)
    assert first == pytest.approx(mean(seen, lambda one: Seen.mean(one.first)), rel=0.25)
    assert rate == pytest.approx(mean(seen, lambda one: question.number / one.end), rel=0.2)
    token = mean(seen, lambda one: one.token)
    assert one(served.time_per_output_token) == pytest.approx(token, rel=0.45 if odd else 0.2)
    overhead = question.inputs.engine.execution.request_overhead
    for share in (0.9, 0.99):
        within = one(time_to_first_token_percentile(found, share)) - overhead
        drawn = mean(seen, lambda one, share=share: Seen.within(one.first, share))
        assert within == pytest.approx(drawn, rel=0.3), share


@pytest.mark.parametrize(("places", "number"), [(8, 60), (24, 100), (100, 100)])
def test_long_prompts_of_one_length_fill_every_step(places: int, number: int) -> None:
    """Prompts of four steps each, in few places, in more, and in a place for all."""
    tokens = (32_000, 100)
    setting, c = deployment("llama-3.1-8b", 8, "vllm", tokens, 0.0)
    scheduler = replace(setting.engine.scheduler, max_num_seqs=places)
    workload = replace(setting.workload, request_rate=None, num_requests=number, equal_lengths=True)
    setting = replace(
        setting, engine=replace(setting.engine, scheduler=scheduler), workload=workload
    )
    c = replace(c, concurrency=np.asarray(float(number)))
    question = Question(setting, c, tokens, number, number, 0.0)
    found, rate = question.closed()
    seen, served = question.seen(found), found.served
    first = first_of(served, setting)
    assert first == pytest.approx(mean(seen, lambda one: Seen.mean(one.first)), rel=0.1)
    assert rate == pytest.approx(mean(seen, lambda one: number / one.end), rel=0.1)
    token = mean(seen, lambda one: one.token)
    assert one(served.time_per_output_token) == pytest.approx(token, rel=0.25)


FAMILIES = ("vllm", "sglang", "tensorrt-llm", "tgi", "lmdeploy", "llama.cpp", "vllm-v0")


def burst_question(seed: int) -> tuple[dict[str, Any], int]:
    """A question without a load, and a number of requests."""
    chance = random.Random(seed)
    gpus, input_tokens = chance.choice([1, 2]), chance.choice([60, 217, 1024, 4000])
    variation = chance.choice([0.0, 0.5, 1.0])
    question: dict[str, Any] = {
        "workload": "serve", "model": "llama-3.1-8b", "gpu": chance.choice(["h100", "a100-80gb"]),
        "num_gpus": gpus, "input_tokens": input_tokens, "output_tokens": chance.choice([40, 202]),
        "input_variation": variation, "output_variation": variation,
        "equal_lengths": variation == 0, "settings": {"tensor_parallel": 1},
    }  # fmt: skip
    return question, chance.choice([3, 40, 300, 1000, 2500])


@pytest.mark.few(3)
@pytest.mark.parametrize("engine", FAMILIES)
@pytest.mark.parametrize("seed", range(6))
def test_a_burst_is_a_number_of_requests_that_start_together(engine: str, seed: int) -> None:
    question, number = burst_question(seed)
    drained = planner.estimate(**question, engine=engine, num_requests=number)
    burst = planner.estimate(**question, engine=engine, burst=number)
    assert burst.rejected_by == drained.rejected_by
    candidates, detail = drained.candidates, burst.detail
    for name in ("time_to_first_token", "time_per_output_token", "request_rate"):
        values = [one(getattr(each.candidates, name)) for each in (burst, drained)]
        assert values[0] == values[1], name
    makespan = one(candidates.promises.makespan)
    assert detail.makespan == pytest.approx(makespan, rel=1e-9)
    for share in (0.5, 0.9, 0.99):
        first = one(candidates.percentile("time_to_first_token", share))
        latency = one(candidates.percentile("request_latency", share))
        assert detail.first_within(share) == pytest.approx(first, rel=1e-9)
        assert detail.answered_within(share) == pytest.approx(latency, rel=1e-9)
        assert detail.answered_within(share) <= makespan


@pytest.mark.few(3)
@pytest.mark.parametrize("places", [16, 64, 128])
@pytest.mark.parametrize("number", [40, 300, 1000])
def test_a_burst_beyond_a_concurrency_drains_through_so_many_places(
    places: int, number: int
) -> None:
    """The steady load of a question keeps its answer, whatever comes at once besides."""
    question, _ = burst_question(2)
    question |= {"engine": "vllm", "settings": {"tensor_parallel": 1, "concurrency": places}}
    question |= {"num_gpus": 1, "input_variation": 0.5, "output_variation": 0.5}
    asked = {**question, "equal_lengths": False}
    found, steady = planner.estimate(**asked, burst=number), planner.estimate(**asked)
    for name in ("time_to_first_token", "time_per_output_token", "request_rate"):
        assert one(getattr(found.candidates, name)) == one(getattr(steady.candidates, name))
    setting, tokens = found.candidates.inputs, (asked["input_tokens"], asked["output_tokens"])
    scheduler = setting.engine.scheduler
    runs = [
        Replica(
            costs=StepCosts.of(
                found.candidates.estimate.served.phases, tokens[0], scheduler.chunked_prefill
            ),
            places=places,
            step_tokens=scheduler.max_num_batched_tokens,
            prompts=Lengths(mean=tokens[0], variation=0.5),
            answers=Lengths(mean=tokens[1], variation=0.5),
            seed=seed,
        ).burst(number)
        for seed in SEEDS
    ]
    end = mean(runs, lambda one: one.end)
    assert found.detail.makespan == pytest.approx(end, rel=0.15)
    for share in (0.5, 0.9):
        latency = mean(runs, lambda one, share=share: Seen.within(one.latency, share))
        assert found.detail.answered_within(share) == pytest.approx(latency, rel=0.25), share


@pytest.mark.few(8)
@pytest.mark.parametrize("seed", range(60))
def test_clients_who_send_a_number_of_requests(seed: int) -> None:
    """Fewer of them than the places, or more, of whom some wait in a line."""
    chance = random.Random(seed)
    share, each = chance.choice([0.3, 0.8, 1.5, 3.0]), chance.uniform(2, 8)

    def beyond(places: int) -> tuple[int, int]:
        clients = max(int(share * places), 2)
        return clients, int(each * clients)

    question = Question.drawn(chance, beyond)
    found, rate = question.closed()
    seen, served = question.seen(found), found.served
    odd = is_odd(question, served)
    assert rate == pytest.approx(mean(seen, lambda one: question.number / one.end), rel=0.15)
    token = mean(seen, lambda one: one.token)
    assert one(served.time_per_output_token) == pytest.approx(token, rel=0.45 if odd else 0.18)
    # A mean first token of a tenth of a second is one of a few steps.
    near = {"rel": 0.35, "abs": 0.05}
    if not odd:
        first = first_of(served, question.inputs)
        assert first == pytest.approx(mean(seen, lambda one: Seen.mean(one.first)), **near)


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(30))
def test_requests_at_a_rate_with_and_without_an_end(seed: int) -> None:
    chance = random.Random(seed)
    model, gpus, engine, tokens = chance.choice(DEPLOYMENTS[:5])
    variation, load = chance.choice([0.0, 0.5]), chance.choice([0.4, 0.7, 1.5])
    # Faster than they are answered, more of them than fill the places twice.
    number = 1500 if load > 1 else chance.choice([None, 200, 1500])
    asked: dict[str, Any] = {
        "workload": "serve", "model": model, "gpu": "h100", "num_gpus": gpus, "engine": engine,
        "input_tokens": tokens[0], "output_tokens": tokens[1], "input_variation": variation,
        "output_variation": variation,
        "settings": {"concurrency": 96, "tensor_parallel": gpus},
    }  # fmt: skip
    capacity = planner.estimate(**asked, request_rate=0.1).candidates.capacity.item()
    rate = load * capacity
    found = planner.estimate(**asked, request_rate=rate, num_requests=number).candidates
    scheduler = found.inputs.engine.scheduler
    served = found.estimate.served
    runs = []
    for drawn in SEEDS:
        replica = Replica(
            costs=StepCosts.of(served.phases, tokens[0], scheduler.chunked_prefill),
            places=96,
            step_tokens=scheduler.max_num_batched_tokens,
            prompts=Lengths(mean=tokens[0], variation=variation),
            answers=Lengths(mean=tokens[1], variation=variation),
            seed=drawn,
        )
        runs.append(replica.poisson(rate, 3000) if number is None else replica.ending(rate, number))
    overhead = found.inputs.slowdown * found.inputs.engine.execution.request_overhead
    first = found.time_to_first_token.item() - overhead
    expected = mean(runs, lambda one: Seen.mean(one.first))
    assert first == pytest.approx(expected, rel=0.2)
    token = mean(runs, lambda one: one.token)
    assert found.time_per_output_token.item() == pytest.approx(token, rel=0.15)
    if number is not None:
        assert found.promises.makespan.item() == pytest.approx(
            mean(runs, lambda one: one.end), rel=0.15
        )
