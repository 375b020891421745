"""Adapters served beside a model: the room that an engine keeps for them, and their time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from serving_cases import replicas, serving_setting

from planner.enums import AdapterTargets
from planner.errors import PlannerError
from planner.estimators.inference.memory import needed_to_start, serving_memory
from planner.estimators.inference.setting import ServingSetting
from planner.given import make_request
from planner.plan import make_plan

# Llama 3.1 8B: 32 layers, 4,096 wide, 32 heads of 128 and 8 key-value heads, 14,336 between.
HIDDEN, QUERIES, KEYS, WIDTH, LAYERS = 4096, 4096, 1024, 14_336, 32


def setting_of(
    rank: int = 64, slots: int | None = 64, model: str = "llama-3.1-8b", **more: Any
) -> ServingSetting:
    engine, gpu = more.pop("engine", "vllm"), more.pop("gpu", "h100-sxm")
    setting = serving_setting(model, gpu, engine, input_tokens=1024, output_tokens=512)
    work = replace(setting.workload, lora_rank=rank, max_loras=slots, **more)
    return replace(setting, workload=work)


def gigabytes(setting: ServingSetting, **layout: Any) -> float:
    return float(serving_memory(setting, replicas(concurrency=8, **layout)).adapters) / 1e9


def test_vllm_keeps_21_gigabytes_for_64_adapters_of_rank_64_beside_8b() -> None:
    inputs = 3 * HIDDEN + QUERIES + 2 * HIDDEN + WIDTH
    outputs = QUERIES + 2 * KEYS + HIDDEN + 2 * WIDTH + HIDDEN
    expected = 2 * 64 * 64 * LAYERS * (inputs + outputs) / 1e9
    assert expected == pytest.approx(21.47, abs=0.01)
    assert gigabytes(setting_of()) == pytest.approx(expected)
    assert gigabytes(setting_of(slots=1)) == pytest.approx(expected / 64)
    assert gigabytes(setting_of(rank=16)) == pytest.approx(expected / 4)
    assert gigabytes(setting_of(rank=0)) == 0


def test_tensor_parallelism_splits_one_matrix_of_each_pair() -> None:
    whole = 3 * HIDDEN + HIDDEN + 2 * HIDDEN + HIDDEN
    split = QUERIES + QUERIES + 2 * KEYS + 2 * WIDTH + WIDTH
    for ranks in (1, 2, 8):
        expected = 2 * 64 * 64 * LAYERS * (whole + split / ranks) / 1e9
        assert gigabytes(setting_of(), tensor_parallel=float(ranks)) == pytest.approx(expected)
    # 16 ranks have a key-value head each, of which there are eight.
    split = (QUERIES + QUERIES + 3 * WIDTH) / 16 + 2 * KEYS / 8
    expected = 2 * 64 * 64 * LAYERS * (whole + split) / 1e9
    assert gigabytes(setting_of(), tensor_parallel=16.0) == pytest.approx(expected)


def test_attention_alone_has_a_third() -> None:
    own = gigabytes(setting_of(lora_targets=AdapterTargets.ATTENTION))
    sides = 3 * HIDDEN + QUERIES + 2 * KEYS + QUERIES + HIDDEN
    assert own == pytest.approx(2 * 64 * 64 * LAYERS * sides / 1e9)
    # Queries, keys and values are one product, which has all three or none.
    narrow = gigabytes(setting_of(lora_targets=AdapterTargets.QUERY_VALUE))
    assert narrow == pytest.approx(own - 2 * 64 * 64 * LAYERS * (QUERIES + HIDDEN) / 1e9)


def test_routed_experts_have_adapters_where_the_engine_wraps_them() -> None:
    # Qwen3 30B-A3B: 48 layers of 128 experts, three matrices of 2,048 by 768 each.
    experts = 48 * 128 * 3 * (2048 + 768)
    attention = 48 * (3 * 2048 + 4096 + 2 * 512 + 4096 + 2048)
    of = {"rank": 16, "slots": 1, "model": "qwen3-30b-a3b"}
    assert gigabytes(setting_of(**of)) == pytest.approx(2 * 16 * (experts + attention) / 1e9)
    v0 = gigabytes(setting_of(**of, engine="vllm-v0"))
    assert v0 == pytest.approx(2 * 16 * attention / 1e9)
    shared = gigabytes(setting_of(**of), tensor_parallel=2.0, expert_parallel=2.0)
    assert shared == pytest.approx(
        2 * 16 * (experts / 2 + 48 * (3 * 2048 + 2048 + (4096 + 1024 + 4096) / 2)) / 1e9
    )


@pytest.mark.parametrize(("engine", "slots"), [("vllm", 1), ("sglang", 8)])
def test_an_engine_has_its_own_number_of_slots(engine: str, slots: int) -> None:
    assert setting_of(slots=None, engine=engine).max_loras == slots
    assert setting_of(slots=None, rank=0, engine=engine).max_loras == 0


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_room_is_taken_from_the_cache_and_asked_for_at_the_start(engine: str) -> None:
    c = replicas(concurrency=8)
    plain, told = setting_of(rank=0, engine=engine), setting_of(engine=engine)
    without, beside = serving_memory(plain, c), serving_memory(told, c)
    taken = float(beside.adapters)
    assert float(without.room.size - beside.room.size) == pytest.approx(taken, rel=1e-3)
    more = needed_to_start(told, beside, c) - needed_to_start(plain, without, c)
    assert float(more) == pytest.approx(taken)
    assert np.all(beside.total == without.total + taken)


def test_a_number_of_adapters_needs_their_rank() -> None:
    question = {"workload": "serve", "model": "llama-3.1-8b", "num_gpus": 1}
    with pytest.raises(PlannerError, match="max_loras needs lora_rank"):
        make_request({**question, "max_loras": 4})
    for wrong, said in (({}, "needs --lora-rank"), ({"lora_rank": 8}, "Unknown lora_targets 'q'")):
        with pytest.raises(PlannerError, match=said):
            make_plan(make_request({**question, "lora_targets": "q", **wrong}))
