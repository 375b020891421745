"""The vectorized estimator equals the naive twin, part by part, on random configurations."""

from __future__ import annotations

from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import scalar_rules
import scalar_twin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scalar_machine import Layout, World

from planner import Request
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.enums import ComputePrecision, Recompute
from planner.estimators.estimate import REJECTIONS, Estimate, evaluate
from planner.estimators.share import Setting
from planner.plan import make_plan
from planner.specs.catalogue import names

MODELS = {
    "llama-7b": {},
    "llama-65b": {},
    "gpt-3-175b": {"dropout": True},
    "llama-3.1-405b": {},
    "mixtral-8x7b": {},
    "deepseek-v3": {},
    "gemma-2-9b": {"sequence_length": 8192},
    "falcon-40b": {},
    "gpt-oss-20b": {"sequence_length": 4096},
}
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "v100-sxm-32gb", "rtx4090-24gb")
PRECISIONS = ["bf16", "fp16", "fp8"]
FRAMEWORKS = tuple(names("frameworks"))


@cache
def _setting(model: str, gpu: str, framework: str) -> Setting:
    request = Request(model=model, num_gpus=8, gpu=gpu, framework=framework, **MODELS[model])
    return make_plan(request).problem.setting


def _world(setting: Setting) -> World:
    return World(
        gpu=setting.machine.gpu,
        cluster=setting.machine.cluster,
        model=setting.model,
        framework=setting.framework,
        workload=setting.workload,
    )


def _table(layouts: list[Layout]) -> TrainingConfigurations:
    codes: dict[str, Any] = {
        "recompute": lambda word: Recompute[word.upper()],
        "precision": lambda word: ComputePrecision[word.upper()],
    }
    plain = codes.get
    return TrainingConfigurations.of(
        **{
            name: [plain(name, lambda value: value)(getattr(layout, name)) for layout in layouts]
            for name in NAMES
        }
    )


def _layout(choose: Any, setting: Setting) -> Layout:
    """A layout that suits the framework; most of them break no rule."""
    f = setting.framework
    t = choose([1, 2, 4, 8, 16]) if f.tensor_parallel else 1
    p = choose([1, 1, 2, 3, 4, 5, 8, 13, 16, 20, 32]) if f.pipeline_parallel else 1
    c = choose([1, 1, 2, 4]) if f.context_parallel else 1
    d = choose([1, 2, 3, 4, 16])
    v = choose([1, 1, 2, 3]) if p > 1 and f.interleaved_schedule else 1
    b = choose([1, 2, 4])
    m = p * choose([1, 2, 3]) if v > 1 else choose([1, 2, 7, 32])
    return Layout(
        num_gpus=t * p * c * d,
        tensor_parallel=t,
        context_parallel=c,
        pipeline_parallel=p,
        virtual_pipeline=v,
        expert_parallel=choose([1, 1, 2, 4, 8]) if f.expert_parallel else 1,
        micro_batch_size=b,
        global_batch_size=d * b * m,
        zero_stage=choose(list(f.pipeline_zero_stages if p > 1 else f.zero_stages)),
        recompute=choose(["none", "selective", "full"]),
        precision=choose([word for word in PRECISIONS if word in setting.machine.gpu.peak_flops]),
        sequence_parallel=t > 1 and choose([True, True, False]),
        flash_attention=choose([True, True, False]),
    )


def _any_layout(choose: Any, setting: Setting) -> Layout:
    """A layout without regard to any rule."""
    return Layout(
        num_gpus=choose([8, 24, 64, 96]),
        tensor_parallel=choose([1, 2, 3, 8, 16]),
        context_parallel=choose([1, 2, 3]),
        pipeline_parallel=choose([1, 2, 3, 8, 64]),
        virtual_pipeline=choose([1, 2, 5]),
        expert_parallel=choose([1, 2, 3, 8, 16]),
        micro_batch_size=choose([1, 3, 4]),
        global_batch_size=choose([1, 24, 96, 100]),
        zero_stage=choose([0, 1, 2, 3]),
        precision=choose(PRECISIONS),
        sequence_parallel=choose([True, False]),
        flash_attention=choose([True, False]),
    )


def _chooser(seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return lambda values: rng.choice(values).item()


def _assert_equal(estimate: Estimate, row: int, world: World, layout: Layout) -> None:
    def at(values: Any) -> float:
        return float(np.broadcast_to(values, estimate.configurations.shape)[row])

    time = scalar_twin.step_time(world, layout)
    parts = {name: at(seconds) for name, seconds in estimate.time.parts().items()}
    assert at(estimate.step_time) == pytest.approx(time.pop("total"), rel=1e-9), layout
    expected = {name: time.get(name, 0.0) for name in parts}
    assert parts == pytest.approx(expected, rel=1e-9, abs=1e-12), layout
    memory = scalar_twin.peak_memory(world, layout)
    assert at(estimate.peak_memory) == pytest.approx(memory.pop("total"), rel=1e-9), layout
    fullest = estimate.memory.fullest
    sizes = {name: at(getattr(fullest, name)) for name in memory}
    assert sizes == pytest.approx(memory, rel=1e-9), layout


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_table_of_random_configurations_equals_the_twin(model: str, framework: str) -> None:
    """One evaluation of a whole table against one row at a time."""
    choose = _chooser(sum(map(ord, model + framework)))
    setting = _setting(model, choose(GPUS), framework)
    world = _world(setting)
    drawn = (_layout(choose, setting) for _ in range(400))
    comparable = (layout for layout in drawn if not scalar_rules.broken(world, layout))
    layouts = list(islice(comparable, 15))
    assert len(layouts) == 15
    estimate = evaluate(setting, _table(layouts))
    for row, layout in enumerate(layouts):
        _assert_equal(estimate, row, world, layout)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_one_random_configuration_equals_the_twin(data: st.DataObject) -> None:
    def choose(values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    setting = _setting(choose(list(MODELS)), choose(GPUS), choose(FRAMEWORKS))
    world, layout = _world(setting), _layout(choose, setting)
    if not scalar_rules.broken(world, layout):
        _assert_equal(evaluate(setting, _table([layout])), 0, world, layout)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", ["llama-65b", "deepseek-v3", "falcon-40b"])
def test_rules_reject_what_the_twin_rejects(model: str, framework: str) -> None:
    """Each rejection is one the twin finds too, and nothing it finds is let through."""
    choose = _chooser(7)
    setting = _setting(model, "a100-sxm-80gb", framework)
    world = _world(setting)
    layouts = [make(choose, setting) for make in (_layout, _any_layout) for _ in range(150)]
    codes = evaluate(setting, _table(layouts)).rejected_by
    for layout, code in zip(layouts, np.broadcast_to(codes, len(layouts)), strict=True):
        broken = scalar_rules.broken(world, layout)
        if broken:
            assert code > 0, layout
            assert REJECTIONS[code - 1] in broken, layout
        else:
            fits = scalar_twin.peak_memory(world, layout)["total"] <= world.gpu.memory_capacity
            assert code == (0 if fits else len(REJECTIONS)), layout


def test_ring_inside_one_domain_does_not_use_the_network() -> None:
    setting = _setting("llama-7b", "h100-sxm-80gb", "nemo")
    layout = Layout(num_gpus=8, tensor_parallel=2, context_parallel=4, global_batch_size=8)
    _assert_equal(evaluate(setting, _table([layout])), 0, _world(setting), layout)


@pytest.mark.parametrize(("pipeline", "virtual"), [(32, 1), (16, 2), (31, 1), (13, 2)])
def test_middle_stages_of_dense_and_expert_layers(pipeline: int, virtual: int) -> None:
    """DeepSeek-V3: the second stage holds dense layers, later ones as many expert layers."""
    setting = _setting("deepseek-v3", "h100-sxm-80gb", "megatron-lm")
    layout = Layout(
        num_gpus=64 * pipeline,
        pipeline_parallel=pipeline,
        virtual_pipeline=virtual,
        expert_parallel=64,
        global_batch_size=64 * 2 * pipeline,
        zero_stage=1,
        recompute="full",
    )
    _assert_equal(evaluate(setting, _table([layout])), 0, _world(setting), layout)


def test_optimizer_of_the_stage_that_owns_most() -> None:
    """Mixtral on 5 stages: the ends hold the embeddings, the middle one layer more."""
    setting = _setting("mixtral-8x7b", "h100-sxm-80gb", "megatron-lm")
    layout = Layout(num_gpus=40, pipeline_parallel=5, expert_parallel=8, global_batch_size=40)
    _assert_equal(evaluate(setting, _table([layout])), 0, _world(setting), layout)
