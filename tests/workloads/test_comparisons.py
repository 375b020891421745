"""Several GPUs, frameworks and numbers of GPUs: each row has its own source, price and interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.errors import SearchSpaceError
from planner.optimize.pareto import pareto_front
from planner.optimize.result_columns import full_columns
from planner.question.request import Request
from planner.workloads.make_plan import make_plan
from planner.workloads.saved_plan import SavedPlan

GPUS = ("h100-sxm-80gb", "a100-sxm-80gb")
QUESTION: dict[str, Any] = {"model": "llama-2-13b", "num_gpus": 16, "space": "small"}


def test_gpus_of_training_are_compared_by_their_best_layout() -> None:
    found = planner.search(**QUESTION, gpu=GPUS, objectives=("throughput",))
    compared = found.comparisons["gpu"]
    assert compared.table["gpu"] == list(GPUS)
    rates = compared.table["tokens_per_s"]
    assert compared.losses == pytest.approx([0, 1 - rates[1] / rates[0]])
    for gpu, rate in zip(GPUS, rates, strict=True):
        alone = planner.search(**QUESTION, gpu=gpu, objectives=("throughput",))
        assert rate == pytest.approx(alone.recommended.row["tokens_per_s"])
    assert float(found.fastest.throughput[0]) >= rates[0] * (1 - 1e-9)


def test_the_front_is_over_all_gpus() -> None:
    together = planner.search(**QUESTION, gpu=GPUS).to_frame()
    alone = pd.concat(planner.search(**QUESTION, gpu=gpu).to_frame() for gpu in GPUS)
    goals = ["tokens_per_s", "memory_headroom_gib"]
    front = alone.iloc[pareto_front(-alone[goals].to_numpy())]
    np.testing.assert_allclose(together[goals].sort_values(goals), front[goals].sort_values(goals))
    assert set(together["gpu"]) == set(front["gpu"])


AXES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "model": ({"model": ("llama-2-7b", "llama-2-13b")}, ["Llama 2 7B", "Llama 2 13B"]),
    "framework": ({"framework": ("megatron-lm", "nemo")}, ["Megatron-LM", "NeMo"]),
    "adapter": ({"adapter": "all"}, ["none", "lora", "qlora"]),
    "precision": ({"precision": ("bf16", "fp8")}, ["bf16", "fp8"]),
    "num_gpus": ({"num_gpus": (8, 16)}, [8, 16]),
}


@pytest.mark.parametrize("axis", AXES)
def test_each_value_of_an_axis_has_its_best_plan_or_a_reason(axis: str) -> None:
    asked, values = AXES[axis]
    framework = "nemo" if axis == "adapter" else "megatron-lm"
    question = {**QUESTION, "gpu": "h100-sxm-80gb", "framework": framework, **asked}
    found = planner.search(**question)
    assert [*found.problem.axes] == [axis]
    compared = found.comparisons[axis]
    assert sorted(map(str, compared.table[axis])) == sorted(map(str, values))
    assert compared.losses[0] == 0
    assert compared.losses == sorted(compared.losses)
    rates = dict(zip(compared.table[axis], compared.table["tokens_per_s"], strict=True))
    for value in asked[axis] if axis != "adapter" else values:
        tuned = {"training_objective": "sft"} if axis == "adapter" else {}
        alone = planner.search(**{**question, **tuned, axis: value})
        row = alone.recommended.row
        assert rates[row[axis]] == pytest.approx(row["tokens_per_s"])


def test_a_search_takes_the_best_number_of_drafted_tokens() -> None:
    question: dict[str, Any] = {
        "workload": "serve", "model": "llama-3.1-8b", "num_gpus": 1, "gpu": "h100-sxm-80gb",
        "engine": "vllm", "mode": "aggregated", "draft_method": "eagle3",
        "settings": {"concurrency": ["1", "8"], "quantization": ["w16a16"]},
    }  # fmt: skip
    found = planner.search(**question, draft_tokens=(0, 1, 4))
    assert found.problem.axes["draft_tokens"] == (0, 1, 4)
    compared = found.comparisons["draft_tokens"].table
    rates = dict(zip(compared["draft_tokens"], compared["output_tokens_per_s"], strict=True))
    for number in (0, 1, 4):
        alone = planner.search(**question, draft_tokens=number).recommended.row
        assert rates[number] == pytest.approx(alone["output_tokens_per_s"])
    best = found.recommended.row
    assert best["draft_tokens"] == max(rates, key=lambda number: rates[number]) > 0
    answers = SavedPlan.of(found.plan, best).answers
    assert answers["draft_tokens"] == best["draft_tokens"]


def test_all_numbers_of_gpus_are_powers_of_two_up_to_the_cluster() -> None:
    sources = make_plan(Request(**{**QUESTION, "num_gpus": "all"}, cluster="rtx4090-pcie")).problem
    assert sources.axes["num_gpus"] == (1, 2, 4, 8)
    everywhere = make_plan(Request(**{**QUESTION, "num_gpus": "all"})).problem
    assert everywhere.axes["num_gpus"][-1] == 16_384


def test_a_model_that_cannot_be_asked_for_is_refused_with_its_reason() -> None:
    models = ("llama-2-13b", "opt-6.7b")
    found = planner.search(**{**QUESTION, "model": models}, sequence_length=4096)
    compared = found.comparisons["model"]
    assert compared.table["model"] == ["Llama 2 13B"]
    assert "positions for 2,048 tokens" in compared.without_plan["OPT 6.7B"]


def test_current_frameworks_of_the_vendor_are_tried_where_none_is_named() -> None:
    def tried(**request: Any) -> set[str]:
        plan = make_plan(Request(model="llama-2-7b", num_gpus=8, **request))
        return {source.profile for source in plan.problem.sources}

    nvidia, amd = tried(gpu="h100"), tried(gpu="mi300x")
    assert {"Megatron-LM", "Megatron-Bridge", "torchtitan", "DeepSpeed"} <= nvidia
    assert {"Megatron-LM", "torchtitan"} <= amd < nvidia
    assert not {"Megatron-LM 2022", "Megatron-DeepSpeed", "HF Trainer"} & nvidia
    assert tried(gpu="tpu-v5p") == {"MaxText"}
    assert tried(gpu="m3-max") == tried(gpu="m3-max", adapter="lora") == {"MLX"}
    with pytest.raises(SearchSpaceError, match="no current framework runs on trainium2 of A"):
        tried(gpu="trainium2")
    frozen = tried(gpu="h100", adapter="lora")
    assert {"HF Trainer", "HF Trainer Triton", "NeMo", "NeMo AutoModel"} <= frozen
    assert not {"Megatron-LM", "torchtitan"} & frozen
    assert tried(gpu="h100", space="fsdp") == {"FSDP"}


def test_frameworks_share_a_front() -> None:
    names = ("megatron-lm", "fsdp")
    together = planner.search(**QUESTION, framework=names)
    alone = [planner.search(**QUESTION, framework=name) for name in names]
    best = pd.concat(one.to_frame() for one in alone)["tokens_per_s"].max()
    assert together.table["tokens_per_s"][0] == pytest.approx(best)
    assert set(together.table["framework"]) == {"Megatron-LM", "FSDP"}
    assert together.configurations_evaluated == sum(one.configurations_evaluated for one in alone)


@pytest.mark.parametrize(
    "request_",
    [
        {**QUESTION, "gpu": GPUS, "num_gpus": (8, 64), "framework": ("megatron-lm", "deepspeed")},
        {
            "workload": "serve",
            "model": "llama-3.1-8b",
            "gpu": GPUS,
            "num_gpus": 8,
            "engine": ("vllm", "sglang"),
        },
    ],
    ids=["train", "serve"],
)
def test_intervals_are_those_of_each_row(request_: dict[str, Any]) -> None:
    plan = make_plan(Request(**request_))
    tables = []
    for source in plan.problem.sources:
        if source.mesh is None:
            continue
        table = source.mesh.table()
        tables.append(pd.DataFrame(source.judged(table.rows([0, table.size - 1])).columns()))
    rows = pd.concat(tables, ignore_index=True).sample(frac=1, random_state=1)
    columns = {name: rows[name].tolist() for name in rows}
    sources = [source for source in plan.problem.sources if source.mesh is not None]
    found = pd.DataFrame(full_columns(columns, sources))
    quantity = "step_time" if "step_time_s" in columns else "time_to_first_token"
    factors = set()
    for _, row in found.iterrows():
        sure = plan.source_of(row).confidence_of(row)
        low, high = sure.factors[quantity]
        factors.add((low, high))
        value = row[f"{quantity}_s"]
        if quantity == "step_time":  # it ends where kernels end
            low = max(low, min(row["model_flops_utilization"] / sure.max_utilization, 1.0))
        assert row[f"{quantity}_low_s"] == pytest.approx(value * low, nan_ok=True)
        assert row[f"{quantity}_high_s"] == pytest.approx(value * high, nan_ok=True)
        assert row["peak_memory_low_gib"] < row["peak_memory_gib"] < row["peak_memory_high_gib"]
    assert len(factors) > 1


def test_a_flat_share_of_the_peak_has_no_interval() -> None:
    (source,) = make_plan(Request(**QUESTION, flops_efficiency=0.5)).problem.sources
    assert source.confidence(16) is None
    (ideal,) = make_plan(Request(**QUESTION, ideal=True)).problem.sources
    assert ideal.confidence(16) is None


def test_the_price_of_a_gpu_without_one_is_told(planner: Any) -> None:
    words = ("search", "--model", "llama-7b", "--gpus", "8", "--space", "small")
    ran = planner(*words, "--gpu", "h100,h800", "--objective", "cost")
    assert ran.exit_code == 0
    assert "no plan: h800-sxm-80gb (an objective is unknown, such as cost)" in ran.out


def test_energy_is_the_power_of_all_for_the_whole_run() -> None:
    found = planner.search(**QUESTION, gpu=GPUS[0], objectives=("energy",))
    row = {name: values[0] for name, values in found.table.items()}
    hours = 24 * row["calendar_time_days"]
    assert row["energy_kwh"] == pytest.approx(hours * row["power_kw"], rel=1e-9)
    assert row["energy_kwh"] > row["campaign_gpu_hours"] * 0.7, (
        "hosts, network and building are in it"
    )
    slower = planner.search(**QUESTION, gpu=GPUS[0], objectives=("memory_headroom",))
    assert np.min(slower.table["energy_kwh"]) >= row["energy_kwh"]


def test_what_was_chosen_alike_for_several_models_is_told() -> None:
    plan = make_plan(Request(**{**QUESTION, "model": ("llama-2-7b", "llama-2-13b")}))
    assert plan.defaults["global_batch_size"] == "each its own"
    frozen = make_plan(Request(**{**QUESTION, "adapter": ("lora", "qlora"), "framework": "nemo"}))
    assert frozen.defaults["lora_rank"] == "16 (default)"


def test_a_framework_that_trains_no_adapters_is_refused() -> None:
    with pytest.raises(SearchSpaceError, match="Megatron-LM trains no adapters"):
        make_plan(Request(**QUESTION, adapter="lora", framework="megatron-lm"))


def test_a_reason_is_the_last_rule_that_any_configuration_came_to() -> None:
    gpus = ("h100-sxm-80gb", "v100-sxm-32gb")
    found = planner.search(model="llama-2-7b", num_gpus=16, gpu=gpus, framework="megatron-lm")
    assert found.comparisons["gpu"].without_plan == {"v100-sxm-32gb": "precision"}
    limit = {"cost": 1e9}
    priced = planner.search(**QUESTION, gpu=("h100", "h800"), constraints=limit)
    (reason,) = priced.comparisons["gpu"].without_plan.values()
    assert reason == "cost is unknown: give --price"


def test_a_limit_that_the_recommended_plan_keeps_does_not_change_it() -> None:
    asked: dict[str, Any] = {"model": "llama-65b", "num_gpus": 2048}
    free = planner.search(**asked).recommended.row
    limit = {"step_time": 3 * free["step_time_s"]}
    assert planner.search(**asked, constraints=limit).recommended.row == free


def test_of_many_gpus_no_defaults_are_told() -> None:
    alone = make_plan(Request(**QUESTION, gpu=GPUS[0]))
    several = make_plan(Request(**QUESTION, gpu=GPUS))
    assert {"cluster", "price"} <= set(alone.defaults)
    assert not {"cluster", "price"} & set(several.defaults)
    assert {f"gpu {name}" for name in GPUS} <= set(several.digests)
    assert alone.assumed
