"""The best change is the best of all plans that differ in so many parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.decide.near import TARGET_FIT_PROBABILITY
from planner.decide.suggestions.changes import (
    best_changes,
    best_other_plan,
    recommended_change,
)
from planner.question.request import Request
from planner.question.terms import glossary, terms_of
from planner.workloads.make_plan import evaluate, make_plan, make_single_plan
from planner.workloads.saved_plan import non_default_parameters

ASKED: dict[str, dict[str, Any]] = {
    "runs": {
        "model": "llama-7b", "gpu": "a100", "num_gpus": 8, "framework": "megatron-lm",
        "settings": {"tensor_parallel": 2, "sequence_parallel": True, "recompute": "full"},
    },
    "too large": {
        "model": "llama-2-13b", "gpu": "a100", "num_gpus": 8, "framework": "megatron-lm",
        "settings": {"micro_batch_size": 8, "zero_stage": 1},
    },
}  # fmt: skip
FREE = ("tensor_parallel", "pipeline_parallel", "micro_batch_size", "recompute", "zero_stage")
FOLLOWING = {"sequence_parallel", "recompute_num_layers"}


def values_of_the_space(request: Request) -> dict[str, list[Any]]:
    plan = make_plan(replace(request, settings={}))
    (source,) = plan.problem.sources
    return {
        name: [glossary()[name].decode(value) for value in source.mesh.values(name).tolist()]
        for name in FREE
    }


def plans_near(request: Request, own: dict[str, Any]) -> pd.DataFrame:
    """All that surely fit and differ in ``FREE`` and what follows alone, and in how many."""
    tables: list[pd.DataFrame] = []
    space = {**values_of_the_space(request), "sequence_parallel": [True, False]}
    asked = replace(request, settings={**request.settings, **space})
    planner.search(base=asked, sink=lambda table: tables.append(pd.DataFrame(table)))
    rows = pd.concat(tables)
    differs = rows[[name for name in terms_of("train", "parameter") if name in rows]]
    differs = differs.apply(lambda column: column != own[column.name])
    others = differs.columns.difference([*FREE, *FOLLOWING])
    near = (rows["fit_probability"] >= TARGET_FIT_PROBABILITY) & ~differs[others].any(axis=1)
    return rows.assign(changes=differs[[*FREE]].sum(axis=1))[near]


@pytest.mark.parametrize("name", ASKED)
def test_no_plan_with_so_few_changes_is_better(name: str) -> None:
    request = Request(**ASKED[name])
    plan = make_single_plan(request)
    found = evaluate(plan)
    changes = best_changes(plan, found)
    assert changes
    rows = plans_near(request, found.candidates.row)
    for number in (1, 2):
        reached = rows["tokens_per_s"][rows["changes"] <= number].max()
        counted = [
            one.row["tokens_per_s"] for one in changes if len({*one.changed} - FOLLOWING) <= number
        ]
        assert max(counted, default=0.0) >= (reached if reached > 0 else 0.0) * (1 - 0.011)


@pytest.mark.parametrize("name", ASKED)
def test_a_change_is_what_its_row_says(name: str) -> None:
    request = Request(**ASKED[name])
    plan = make_single_plan(request)
    found = evaluate(plan)
    before = found.candidates.columns()
    for change in best_changes(plan, found):
        for parameter, (old, new) in change.changed.items():
            assert before[parameter][0] == old
            assert change.row[parameter] == new != old
        if name == "runs":
            now = change.row["tokens_per_s"] / before["tokens_per_s"][0]
            assert change.gain == pytest.approx(now - 1)
        else:
            assert np.isnan(change.gain)
        assert TARGET_FIT_PROBABILITY <= change.fit_probability <= 1


def test_number_format_and_batch_stay() -> None:
    request = Request(**ASKED["runs"])
    plan = make_single_plan(request)
    for change in best_changes(plan, evaluate(plan)):
        assert not {"precision", "global_batch_size", "num_gpus"} & set(change.changed)


def test_the_recommended_change_has_nearly_all_there_is_to_gain() -> None:
    request = Request(**ASKED["runs"])
    plan = make_single_plan(request)
    changes = best_changes(plan, evaluate(plan))
    chosen = recommended_change(changes)
    assert chosen is not None
    most = max(one.gain for one in changes)
    fewer = [one for one in changes if len(one.changed) < len(chosen.changed)]
    assert chosen.gain >= 0.9 * most
    assert all(one.gain < 0.9 * most for one in fewer)
    assert recommended_change([]) is None


def test_the_best_plan_has_no_better_change() -> None:
    request = Request(**ASKED["runs"])
    plan = make_single_plan(request)
    found, settings = evaluate(plan), dict(request.settings)
    for _ in range(6):
        change = recommended_change(best_changes(plan, found))
        if change is None:
            break
        settings |= {name: new for name, (_, new) in change.changed.items()}
        plan = make_single_plan(replace(request, settings=settings))
        found = evaluate(plan)
    assert change is None


def test_a_served_plan_is_not_made_slower_for_its_users() -> None:
    request = Request(
        workload="serve", model="llama-3.1-70b", gpu="h100", num_gpus=8, engine="vllm",
        settings={"tensor_parallel": 8, "concurrency": 64},
    )  # fmt: skip
    plan = make_single_plan(request)
    found = evaluate(plan)
    columns = found.candidates.columns()
    changes = best_changes(plan, found)
    assert changes
    for change in changes:
        assert change.row["quantization"] == columns["quantization"][0]
        assert change.row["time_per_output_token_s"] <= max(
            0.05, columns["time_per_output_token_s"][0]
        ) * (1 + 1e-9)


@pytest.mark.parametrize("profiles", [(), ("deepspeed", "hf-trainer-bf16")])
def test_where_no_change_fits_another_framework_may(
    profiles: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.decide.suggestions.changes.relief_values", lambda *_: {})
    monkeypatch.setattr("planner.decide.fitting.relief_values", lambda *_: {})
    request = Request(
        model="qwen3-8b", gpu="h100", num_gpus=8, framework="hf-trainer-bf16",
        sequence_length=65_536, global_batch_size=8,
        settings={"micro_batch_size": 1, "recompute": "full"},
    )  # fmt: skip
    plan = make_single_plan(request)
    found = evaluate(plan)
    assert found.rejected_by == "out_of_memory"
    assert not best_changes(plan, found)
    best = best_other_plan(plan, found, profiles)
    if not profiles:
        assert best is None
        return
    assert best is not None
    other, change = best
    assert other.source_of(change.row).profile == change.row["framework"] == "DeepSpeed"
    again = replace(
        request, framework="deepspeed", settings=non_default_parameters("train", change.row)
    )
    assert evaluate(make_single_plan(again)).rejected_by == ""


def test_no_other_plan_keeps_its_states_in_fewer_bits() -> None:
    request = Request(
        model="llama-3.2-3b", gpu="l40s", num_gpus=1, framework="deepspeed", sequence_length=1024,
        settings={"recompute": "full"},
    )  # fmt: skip
    plan = make_single_plan(request)
    narrow = replace(request, framework="hf-trainer-bf16")
    assert evaluate(make_single_plan(narrow)).rejected_by == ""
    best = best_other_plan(plan, evaluate(plan), ("hf-trainer-bf16",), lambda *_: False)
    assert best is None
