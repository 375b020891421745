"""Every stage of a pipeline equals the twin's, and the heaviest is among the candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scalar_rules
import scalar_twin
from compare_stages import assert_stages_equal
from drawn_layouts import (
    FRAMEWORKS,
    MODELS,
    chooser,
    draw_layout,
    make_setting,
    make_table,
    make_world,
)
from scalar_machine import Layout, World
from scalar_parameters import stages

from planner.estimators.training import sharding
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.sharding import StageLayers
from planner.estimators.training.training_estimate import evaluate
from planner.specs.attention import AttentionSpec
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec

PIPELINES = [(13, 1), (16, 1), (31, 1), (32, 1), (13, 2), (16, 2)]


# The twin looks at every stage: of more of them it takes as long as everything else.
_LONGEST = 16


def _assert_every_stage_equal(
    monkeypatch: pytest.MonkeyPatch, setting: TrainingInputs, layout: Layout
) -> None:
    world = make_world(setting)
    num_groups, p = len(setting.model.layer_groups), layout.pipeline_parallel
    held = stages(setting.model, layout)
    counts = [[float(layers.count(group)) for group in range(num_groups)] for layers in held]
    every = StageLayers(
        counts=np.array(counts)[..., None], ranks=np.arange(p, dtype=np.float64)[:, None]
    )
    with monkeypatch.context() as patch:
        patch.setattr(sharding, "stage_layers", lambda *_, **__: every)
        whole = evaluate(setting, make_table([layout]))
        assert assert_stages_equal(whole, 0, world, layout) == list(range(p))
    _assert_candidates_suffice(setting, world, layout)


def _assert_candidates_suffice(setting: TrainingInputs, world: World, layout: Layout) -> None:
    estimate = evaluate(setting, make_table([layout]))
    time = scalar_twin.step_time(world, layout)["total"]
    memory = scalar_twin.peak_memory(world, layout)["total"]
    assert estimate.step_time.item() == pytest.approx(time, rel=1e-9), layout
    assert estimate.peak_memory.item() == pytest.approx(memory, rel=1e-9), layout


@pytest.mark.few(5)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_every_stage_of_a_random_layout(
    monkeypatch: pytest.MonkeyPatch, model: str, framework: str, seed: int
) -> None:
    _assert_deep_ones_equal(monkeypatch, model, framework, seed, draws=40, compared=1)


@pytest.mark.drawn
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_every_stage_of_random_layouts(
    monkeypatch: pytest.MonkeyPatch, model: str, framework: str, seed: int
) -> None:
    _assert_deep_ones_equal(monkeypatch, model, framework, seed, draws=300, compared=4)


def _assert_deep_ones_equal(
    monkeypatch: pytest.MonkeyPatch,
    model: str,
    framework: str,
    seed: int,
    draws: int,
    compared: int,
) -> None:
    """Those of the drawn layouts that have most stages."""
    choose = chooser(model, framework, "stages", seed)
    setting = make_setting(model, choose(["a100-sxm-80gb", "h100-sxm-80gb"]), framework)
    world = make_world(setting)
    drawn = (draw_layout(choose, setting) for _ in range(draws))
    short = (layout for layout in drawn if layout.pipeline_parallel <= _LONGEST)
    valid = [layout for layout in short if not scalar_rules.broken(world, layout)]
    valid.sort(key=lambda layout: layout.pipeline_parallel, reverse=True)
    for layout in valid[: 2 * compared : 2]:
        _assert_every_stage_equal(monkeypatch, setting, layout)


@pytest.mark.few(4)
@pytest.mark.parametrize(("pipeline", "virtual"), PIPELINES)
@pytest.mark.parametrize("recompute", ["none", "selective", "feed_forward", "full"])
def test_every_stage_of_deepseek_v3(
    monkeypatch: pytest.MonkeyPatch, pipeline: int, virtual: int, recompute: str
) -> None:
    """Dense layers on the first stages, experts on all others."""
    setting = make_setting("deepseek-v3", "h100-sxm-80gb", "megatron-lm")
    layout = Layout(
        num_gpus=64 * pipeline,
        pipeline_parallel=pipeline,
        virtual_pipeline=virtual,
        expert_parallel=64,
        global_batch_size=64 * 2 * pipeline,
        zero_stage=1,
        recompute=recompute,
    )
    _assert_every_stage_equal(monkeypatch, setting, layout)


def test_ring_wider_than_its_domain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two times 64 ranks on domains of 72: some of the neighbours, 64 apart, are outside."""
    setting = make_setting("llama-65b", "gb200-nvl72", "megatron-lm")
    assert setting.machine.cluster.scale_up.domain_size == 72
    layout = Layout(num_gpus=128, tensor_parallel=64, context_parallel=2, global_batch_size=8)
    _assert_every_stage_equal(monkeypatch, setting, layout)


def _two_kinds(width: int) -> ModelSpec:
    attention = AttentionSpec(num_attention_heads=8, num_key_value_heads=8, head_dim=128)
    narrow, wide = (FeedForwardSpec(intermediate_size=size) for size in (512, width))
    return ModelSpec(
        name="two kinds",
        hidden_size=1024,
        vocab_size=1024,
        layer_groups=(
            LayerGroup(num_hidden_layers=9, attention=attention, feed_forward=narrow),
            LayerGroup(num_hidden_layers=11, attention=attention, feed_forward=wide),
        ),
        source="test",
    )


def test_mixed_stage_before_those_with_most_layers_of_a_kind() -> None:
    """Layers (4, 0) (4, 0) (1, 3) (0, 4) (0, 4): the third holds 3 x 3 wide ones, the next 2 x 4.

    Its rank is neither that of the first stage with most narrow nor with most wide layers.
    """
    base = make_setting("llama-7b", "h100-sxm-80gb", "megatron-lm")
    setting = replace(base, model=_two_kinds(8192))
    layout = Layout(num_gpus=5, pipeline_parallel=5, micro_batch_size=16, global_batch_size=160)
    _assert_candidates_suffice(setting, make_world(setting), layout)
