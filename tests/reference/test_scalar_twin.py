"""The vectorized estimator equals the naive twin, part by part, on random configurations."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import scalar_rules
import scalar_twin
from compare_stages import assert_stages_equal
from drawn_layouts import (
    ADAPTERS,
    ALL_FRAMEWORKS,
    FRAMEWORKS,
    GPUS,
    MODELS,
    chooser,
    draw_any_layout,
    draw_layout,
    make_setting,
    make_table,
    make_world,
)
from draws import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scalar_machine import Layout, World

from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.training_estimate import REJECTIONS, Estimate, evaluate

FRAMEWORKS_OF_ADAPTERS = ["hf-trainer", "unsloth", "nemo", "megatron-bridge", "fsdp", "torchtitan"]
MODELS_OF_ADAPTERS = [
    "llama-7b",
    "mixtral-8x7b",
    "deepseek-v3",
    "falcon-40b",
    "qwen3-next-80b-a3b",
    "nemotron-3-super-120b-a12b",
]


def _assert_equal(estimate: Estimate, row: int, world: World, layout: Layout) -> None:
    def at(values: Any) -> float:
        return float(np.broadcast_to(values, estimate.configurations.shape)[row])

    times = scalar_twin.step_times(world, layout)
    parts = {name: at(seconds) for name, seconds in estimate.time.parts().items()}
    assert at(estimate.step_time) == pytest.approx(times[0]["total"], rel=1e-9), layout
    expected = [{name: time.get(name, 0.0) for name in parts} for time in times]
    matches = (pytest.approx(one, rel=1e-9, abs=1e-12) for one in expected)
    assert any(parts == match for match in matches), (layout, parts, expected)
    memories = scalar_twin.peak_memories(world, layout)
    totals = [memory.pop("total") for memory in memories]
    assert at(estimate.peak_memory) == pytest.approx(max(totals), rel=1e-9), layout
    fullest = estimate.memory.fullest
    sizes = {name: at(getattr(fullest, name)) for name in memories[0]}
    same = (sizes == pytest.approx(memory, rel=1e-9) for memory in memories)
    assert any(same), (layout, sizes, memories)
    assert_stages_equal(estimate, row, world, layout)


def _assert_drawn_equal(setting: TrainingInputs, choose: Any, draws: int, compared: int) -> int:
    """One evaluation of a whole table against one row at a time; returns the number of rows."""
    world = make_world(setting)
    drawn = (draw_layout(choose, setting) for _ in range(draws))
    comparable = (layout for layout in drawn if not scalar_rules.broken(world, layout))
    layouts = list(islice(comparable, compared))
    estimate = evaluate(setting, make_table(layouts))
    for row, layout in enumerate(layouts):
        _assert_equal(estimate, row, world, layout)
    return len(layouts)


@pytest.mark.few(8)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_table_of_random_configurations_equals_the_twin(
    model: str, framework: str, seed: int
) -> None:
    choose = chooser(model, framework, seed)
    setting = make_setting(model, choose(GPUS), framework)
    assert _assert_drawn_equal(setting, choose, draws=100, compared=1) == 1


@pytest.mark.drawn
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_many_random_configurations_equal_the_twin(model: str, framework: str, seed: int) -> None:
    for gpu in GPUS:
        choose = chooser(model, framework, gpu, seed)
        setting = make_setting(model, gpu, framework)
        assert _assert_drawn_equal(setting, choose, draws=400, compared=4) == 4


@pytest.mark.few(5)
@pytest.mark.parametrize("framework", FRAMEWORKS_OF_ADAPTERS)
@pytest.mark.parametrize("model", MODELS_OF_ADAPTERS)
def test_adapters_of_random_configurations_equal_the_twin(
    model: str, framework: str, seed: int
) -> None:
    """Two kinds of adapter for each model and framework, others with another seed."""
    choose = chooser(model, framework, "adapters", seed)
    adapters = ADAPTERS[1:]
    place = choose(range(len(adapters)))
    for adapter in (adapters[place], adapters[place - 3]):
        setting = make_setting(model, choose(GPUS), framework, adapter)
        assert _assert_drawn_equal(setting, choose, draws=100, compared=1) == 1


@pytest.mark.parametrize("adapter", ["none", "lora:8:query_value", "qlora:16:attention"])
@pytest.mark.parametrize("framework", ["hf-trainer", "fsdp", "mlx"])
@pytest.mark.parametrize("model", ["llama-7b", "mixtral-8x7b", "deepseek-v3"])
def test_layers_before_the_trained_ones_have_no_backward_pass(
    model: str, framework: str, adapter: str, seed: int
) -> None:
    choose = chooser(model, framework, adapter, "trained_layers", seed)
    setting = make_setting(model, choose(GPUS), framework, adapter)
    setting = replace(setting, workload=replace(setting.workload, trained_layers=choose([1, 5, 9])))
    world = make_world(setting)
    layouts = [
        layout
        for layout in (draw_layout(choose, setting) for _ in range(300))
        if not scalar_rules.broken(world, layout)
        and {layout.offload, layout.offloaded_tensors} == {"none"}
    ][:2]
    assert layouts
    estimate = evaluate(setting, make_table(layouts))
    for row, layout in enumerate(layouts):
        _assert_equal(estimate, row, world, layout)


@pytest.mark.drawn
@pytest.mark.parametrize("adapter", ADAPTERS[1:])
@pytest.mark.parametrize("framework", FRAMEWORKS_OF_ADAPTERS)
@pytest.mark.parametrize("model", MODELS_OF_ADAPTERS)
def test_every_adapter_of_random_configurations_equals_the_twin(
    model: str, framework: str, adapter: str, seed: int
) -> None:
    choose = chooser(model, framework, adapter, seed)
    setting = make_setting(model, choose(GPUS), framework, adapter)
    assert _assert_drawn_equal(setting, choose, draws=400, compared=4) == 4


@settings(max_examples=examples(60, 12), suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_random_configuration_equals_the_twin(data: st.DataObject) -> None:
    def choose(values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    setting = make_setting(
        choose(list(MODELS)), choose(GPUS), choose(ALL_FRAMEWORKS), choose(ADAPTERS)
    )
    world, layout = make_world(setting), draw_layout(choose, setting)
    if not scalar_rules.broken(world, layout):
        _assert_equal(evaluate(setting, make_table([layout])), 0, world, layout)


@pytest.mark.few(3)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", ["llama-65b", "deepseek-v3", "falcon-40b", "nemotron-h-8b"])
def test_rules_reject_what_the_twin_rejects(model: str, framework: str, seed: int) -> None:
    """Each rejection is one the twin finds too, and nothing it finds is let through."""
    choose = chooser(model, framework, "rules", seed)
    setting = make_setting(model, "a100-sxm-80gb", framework)
    world = make_world(setting)
    layouts = [make(choose, setting) for make in (draw_layout, draw_any_layout) for _ in range(100)]
    codes = evaluate(setting, make_table(layouts)).rejected_by
    for layout, code in zip(layouts, np.broadcast_to(codes, len(layouts)), strict=True):
        broken = scalar_rules.broken(world, layout)
        if broken:
            assert code > 0, layout
            assert REJECTIONS[code - 1] in broken, layout
        else:
            fits = scalar_twin.peak_memory(world, layout)["total"] <= world.gpu.allocatable_memory
            assert code == (0 if fits else len(REJECTIONS)), layout


def test_ring_inside_one_domain_does_not_use_the_network() -> None:
    setting = make_setting("llama-7b", "h100-sxm-80gb", "nemo")
    layout = Layout(num_gpus=8, tensor_parallel=2, context_parallel=4, global_batch_size=8)
    _assert_equal(evaluate(setting, make_table([layout])), 0, make_world(setting), layout)


@pytest.mark.parametrize(("pipeline", "virtual"), [(32, 1), (16, 2), (31, 1), (13, 2)])
def test_middle_stages_of_dense_and_expert_layers(pipeline: int, virtual: int) -> None:
    """DeepSeek-V3: the second stage holds dense layers, later ones as many expert layers."""
    setting = make_setting("deepseek-v3", "h100-sxm-80gb", "megatron-lm")
    layout = Layout(
        num_gpus=64 * pipeline,
        pipeline_parallel=pipeline,
        virtual_pipeline=virtual,
        expert_parallel=64,
        global_batch_size=64 * 2 * pipeline,
        zero_stage=1,
        recompute="full",
    )
    _assert_equal(evaluate(setting, make_table([layout])), 0, make_world(setting), layout)


def test_optimizer_of_the_stage_that_owns_most() -> None:
    """Mixtral on 5 stages: the ends hold the embeddings, the middle one layer more."""
    setting = make_setting("mixtral-8x7b", "h100-sxm-80gb", "megatron-lm")
    layout = Layout(num_gpus=40, pipeline_parallel=5, expert_parallel=8, global_batch_size=40)
    _assert_equal(evaluate(setting, make_table([layout])), 0, make_world(setting), layout)
