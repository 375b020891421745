"""The fewest GPUs are the fewest: every smaller number that counts fails a search of its own."""

import os
import random

import pytest
from drawn_questions import drawn, smaller_that_are_enough

from planner import Request
from planner.decide.sizing.fits import fewest_gpus_that_fit

SEED = int(os.environ.get("PLANNER_SEED", "20"))
NUMBER = 200
TRAINED = {"workload": "train", "sequence_length": None}
# The first numbers that are looked at make these look larger than they are.
KNOWN = {
    "few GPUs that fit slow plans alone": {
        **TRAINED,
        "model": "llama-3.1-8b",
        "gpu": "h100-sxm-80gb",
        "framework": "megatron-bridge",
        "total_tokens": 300e9,
        "constraints": {"calendar_time": "45d"},
    },
    "few GPUs that need all their memory": {
        **TRAINED,
        "model": "falcon-40b",
        "gpu": "mi300x-192gb",
        "framework": "megatron-lm",
        "total_tokens": 32e9,
        "constraints": {"time_to_train": "8.5d"},
        "sequence_length": 2048,
    },
    "a batch that powers of two do not divide": {
        **TRAINED,
        "model": "llama-3.2-1b",
        "gpu": "mi300x-192gb",
        "framework": "hf-trainer",
        "total_tokens": 8.2e12,
        "constraints": {"calendar_time": "84.7d"},
        "sequence_length": 2048,
        "global_batch_size": 96,
    },
}
SERVED = {"workload": "serve", "mode": "disaggregated", "confidence": 0.9}
POOLS = {
    "prompts that may wait": {
        **SERVED,
        "model": "llama-3.1-8b",
        "gpu": "a100-sxm-80gb",
        "engine": "vllm",
        "input_tokens": 1000,
        "output_tokens": 50,
        "request_rate": 12.22,
        "constraints": {"time_to_first_token": "3s", "time_per_output_token": "15ms"},
    },
    "prompts that may not": {
        **SERVED,
        "model": "llama-3.2-1b",
        "gpu": "l40s-48gb",
        "engine": "sglang",
        "input_tokens": 4000,
        "output_tokens": 300,
        "request_rate": 2.96,
        "constraints": {"time_to_first_token": "600ms", "time_per_output_token": "30ms"},
    },
}


def test_the_fewest_that_fit_may_lie_between_two_doublings():
    """16 bytes for each of 33 billion parameters: 30 GiB on each of 16 GPUs, and activations."""
    request = Request(
        model="llama-33b",
        gpu="a100-sxm-40gb",
        num_gpus=8,
        framework="fsdp",
        sequence_length=4096,
        global_batch_size=96,
        settings={"micro_batch_size": 1, "recompute": "full", "zero_stage": 3},
    )

    def fewest(counts=()):
        (size,) = fewest_gpus_that_fit([(request, lambda name, value: True)], counts=counts).sizes
        return size.fewest and size.fewest.num_gpus

    alone = [fewest((count,)) for count in (1, 2, 4, 8, 16, 24, 32, 48)]
    assert alone == [None, None, None, None, None, 24, 32, 48]
    assert fewest() == fewest((16, 24, 32)) == 24


@pytest.mark.few(1)
@pytest.mark.parametrize("question", [*KNOWN.values(), *POOLS.values()], ids=[*KNOWN, *POOLS])
def test_nothing_below_answers_that_were_too_large(question):
    size, enough = smaller_that_are_enough(question)
    assert size.fewest is not None
    assert not enough


def test_nothing_below_some_drawn_questions():
    _hold(random.Random(SEED).sample(drawn(SEED, NUMBER), 2))


@pytest.mark.drawn
def test_nothing_below_any_drawn_question():
    _hold(drawn(SEED, NUMBER))


def _hold(questions):
    print(f"PLANNER_SEED={SEED}")
    outcomes = [(question, *smaller_that_are_enough(question)) for question in questions]
    wrong = [(question, size.fewest, enough) for question, size, enough in outcomes if enough]
    answered = sum(size is not None and size.fewest is not None for _, size, _ in outcomes)
    print(f"{len(questions) - len(wrong)} of {len(questions)} hold, {answered} with an answer")
    assert not wrong
    assert answered >= len(questions) / 3
