"""A recommended plan that may not fit names what fits surely."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.decide.fitting import options_that_raise_fit_probability
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.optimize.exhaustive import exhaustive_search
from planner.optimize.result_columns import fit_probability, full_row
from planner.question.request import Request
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import SavedPlan

LORA: dict[str, Any] = {
    "model": "llama-3.1-70b", "gpu": "a100", "num_gpus": 2, "adapter": "lora",
}  # fmt: skip


def recommended(request: Request) -> tuple[Plan, dict[str, Any]]:
    plan = make_plan(request)
    best = exhaustive_search(plan.problem).recommended
    assert best is not None
    return plan, dict(full_row(best, plan.problem.sources))


@pytest.mark.parametrize("length", [1024, 8192])
def test_lora_that_may_not_fit_names_qlora(length: int) -> None:
    plan, row = recommended(Request(**LORA, sequence_length=length, global_batch_size=8))
    assert fit_probability(row) < TARGET_FIT_PROBABILITY
    options = options_that_raise_fit_probability(plan, row)
    assert "--adapter qlora" in options
    assert min(options.values()) >= TARGET_FIT_PROBABILITY
    for option, chance in options.items():
        request = SavedPlan.of(plan, row).request()
        if option.startswith("--adapter"):
            request = replace(request, adapter=option.rpartition(" ")[2])
        else:
            pairs = dict(one.partition("=")[::2] for one in option.split() if "=" in one)
            request = replace(request, settings={**request.settings, **pairs})
        found = evaluate(make_single_plan(request))
        assert fit_probability(full_row(found.candidates, [found.source])) == pytest.approx(chance)


def test_a_plan_that_surely_fits_names_nothing() -> None:
    plan, row = recommended(Request(model="llama-3.1-8b", gpu="h100", num_gpus=8, adapter="lora"))
    assert fit_probability(row) >= TARGET_FIT_PROBABILITY
    assert options_that_raise_fit_probability(plan, row) == {}


def test_the_search_says_so(planner) -> None:
    done = planner("search", "--model", "llama-3.1-70b", "--gpu", "a100", "--gpus", "2",
                   "--adapter", "lora")  # fmt: skip
    text = " ".join(done.out.split())
    assert "Surer to fit: " in text
    assert "--adapter qlora (> 99 % likely)" in text


@pytest.mark.parametrize(("bits", "name"), [("4", "qlora of rank"), ("8", "8-bit lora of rank")])
def test_weights_of_eight_bits_are_no_qlora(planner, bits: str, name: str) -> None:
    done = planner("estimate", "--model", "llama-3.1-8b", "--gpu", "a100", "--gpus", "1",
                   "--adapter", "qlora", "--quantization-bits", bits)  # fmt: skip
    assert name in done.out
