"""Drawn plans that are too large: what is said to fit does, what is said not to was tried."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.base.csv_cells import Value, number_or_nan
from planner.decide.fitting import MEMORIES, changes_that_fit, gpus_that_fit
from planner.decide.near import count_changed_parameters
from planner.decide.suggestions.changes import best_other_plan
from planner.errors import PlannerError
from planner.question.request import Request
from planner.workloads.make_plan import Plan, evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import non_default_parameters
from planner.workloads.workload import Evaluation

FRAMEWORKS = (
    "deepspeed", "hf-trainer", "hf-trainer-fsdp", "fsdp", "unsloth", "megatron-lm", "torchtitan",
)  # fmt: skip
MODELS = "llama-3.1-8b", "qwen2.5-14b", "qwen2.5-32b", "llama-3.1-70b", "qwen3-30b-a3b"
GPUS = "rtx3090", "rtx4090", "a100-sxm-40gb", "a100", "h100", "mi300x"
MOST_CHANGES = 3
DRAWS = 60


def drawn_request(seed: int) -> Request:
    """A training plan, most of which are too large for their GPUs."""
    choose = random.Random(seed).choice
    framework = choose(FRAMEWORKS)
    has_adapters = framework in ("deepspeed", "hf-trainer", "hf-trainer-fsdp", "unsloth")
    num_gpus, micro = choose((1, 2, 4, 8, 16)), choose((1, 1, 2, 4))
    return Request(
        model=choose(MODELS),
        gpu=choose(GPUS),
        num_gpus=num_gpus,
        framework=framework,
        adapter=choose(("none", "lora", "qlora")) if has_adapters else "none",
        sequence_length=choose((1024, 4096, 8192, 32_768)),
        global_batch_size=num_gpus * micro * choose((1, 2, 4)),
        settings={
            "micro_batch_size": micro,
            "recompute": choose(("none", "full")),
            "zero_stage": choose((2, 3)) if num_gpus > 1 else 0,
        },
    )


def drawn_misfit(seed: int) -> tuple[Request, Plan, Evaluation]:
    """The first drawn plan from a seed on whose memory is too small."""
    while True:
        request = drawn_request(seed)
        try:
            plan = make_single_plan(request)
            found = evaluate(plan)
        except PlannerError:
            found = None
        if found is not None and found.rejected_by in MEMORIES:
            return request, plan, found
        seed += DRAWS


def rejection(request: Request, row: Mapping[str, Any], **changed: Any) -> str:
    """What rejects the plan of a row, estimated anew."""
    again = replace(request, settings=non_default_parameters("train", row), **changed)
    return evaluate(make_single_plan(again)).rejected_by


def fits_within(
    request: Request, found: Evaluation, tried: Mapping[str, Sequence[Value]], changes: float
) -> bool:
    """Whether any combination of so many of the tried values fits, all estimated by a search."""
    own = found.candidates.row
    settings: dict[str, Any] = non_default_parameters("train", own)
    settings |= {name: [own[name], *values] for name, values in tried.items()}
    settings["sequence_parallel"] = [True, False]
    problem = make_plan(replace(request, space="single", settings=settings)).problem
    for source in problem.sources:
        for block in source.blocks(problem.objectives, problem.constraints):
            if block.candidates is not None:
                rows = np.flatnonzero((problem.codes(block.candidates) == 0).ravel())
                if np.any(count_changed_parameters(block.candidates, own, rows) <= changes):
                    return True
    return False


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_changes_fit_and_nothing_that_was_tried_does_where_none_is_named(seed: int) -> None:
    request, plan, found = drawn_misfit(seed)
    fitting = changes_that_fit(plan, found, lambda *_: True)
    for change in fitting.changes:
        assert rejection(request, change.row) == "", change.changed
    if fitting.changes:
        return
    assert not fits_within(request, found, fitting.tried, MOST_CHANGES)
    best = best_other_plan(plan, found)
    if best is None:
        assert not fits_within(request, found, fitting.tried, np.inf)
    else:
        assert rejection(request, best[1].row) == ""


@pytest.mark.few(5)
@pytest.mark.parametrize("seed", range(DRAWS))
def test_a_number_of_gpus_that_is_named_fits(seed: int) -> None:
    request, plan, found = drawn_misfit(seed)
    gpus = gpus_that_fit(plan, found, lambda *_: True)
    for num_gpus, change in gpus.changes:
        batch = {"num_gpus": num_gpus, "global_batch_size": change.row["global_batch_size"]}
        assert rejection(request, change.row, **batch) == ""
        assert request.num_gpus < num_gpus <= gpus.most
    if gpus.changes:
        fewest = gpus.changes[0][0]
        assert len(gpus.changes) == 1 or fewest < gpus.changes[1][0]


def test_other_formats_come_first_where_one_way_with_them_is_several_times_as_fast() -> None:
    """States in 8 bit are three times as fast as any way that keeps those in 32."""
    _, plan, found = drawn_misfit(224)
    changes = changes_that_fit(plan, found, lambda *_: True).changes
    is_other = ["optimizer_state_precision" in change.changed for change in changes]
    first = is_other.index(False)
    assert first > 0
    assert not any(is_other[first:])
    times = [number_or_nan(change.row["step_time_s"]) for change in changes]
    assert 3 * min(times[:first]) < min(times[first:])
