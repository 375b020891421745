"""A question has the same names on the command line and in Python."""

from __future__ import annotations

from dataclasses import fields

import pytest

import planner as planning
from planner.question.request import Request
from planner.question.terms import glossary
from planner.workloads.build_request import make_request

QUESTIONS = {
    name: term for name, term in glossary().items() if {"question", "sizing"} & {*term.kind}
}
FIELDS = {field.name for field in fields(Request)}
TRAIN = {"model": "llama-7b", "gpu": "h100", "num_gpus": 8}
RL = {
    "workload": "rl", "model": "qwen3-8b", "gpu": "h100", "prompts_per_step": 64,
    "samples_per_prompt": 16, "output_tokens": 1000, "framework": "verl",
}  # fmt: skip


def test_every_question_has_an_option_of_its_own_name() -> None:
    without = [
        name
        for name, term in QUESTIONS.items()
        if f"--{name.replace('_', '-')}" not in term.options and "parameter" not in term.kind
    ]
    assert not without


def test_every_option_of_a_question_is_a_name_in_python() -> None:
    steps = make_request({**RL, "steps": 100})
    assert steps == make_request({**RL, "max_steps": 100})
    assert make_request({**TRAIN, "tokens": "1T", "utilization": 0.5}) == make_request(
        {**TRAIN, "total_tokens": "1T", "term_utilization": 0.5}
    )
    owners: dict[str, str] = {}
    for name, term in QUESTIONS.items():
        for option in term.options if name in FIELDS else ():
            word = option.removeprefix("--").replace("-", "_")
            assert owners.setdefault(word, name) == name, f"{option} names two questions"
            assert word == name or word not in FIELDS


@pytest.mark.parametrize("words", [("--steps", "100"), ("--max-steps", "100")])
def test_both_names_are_options(planner, words) -> None:
    asked = ("--model", "llama-7b", "--gpu", "h100", "--gpus", "8", "--set", "mbs=1")
    ran = planner("estimate", *asked, *words)
    assert ran.exit_code == 0, ran.err


@pytest.mark.slow
def test_steps_of_reinforcement_learning_are_sized_at_a_confidence() -> None:
    """What is 90 % likely by default is so at any other share that is asked for."""
    asked = {**RL, "max_steps": 100, "constraints": {"time_to_train": "6h"}}
    even, sure = (planning.size(**asked, confidence=share) for share in (0.5, 0.95))
    assert even.best.fewest.num_gpus <= sure.best.fewest.num_gpus
    assert "95 % likely to keep: time to train" in sure.summary()
    assert "90 % likely to keep: time to train" in planning.size(**asked).summary()
