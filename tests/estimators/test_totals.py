"""Parts add up to totals, and the ideal machine bounds the real one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from draws import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from published_runs import configuration, setting

from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.ideal_hardware import ideal_framework, ideal_hardware
from planner.estimators.machine import Machine
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.peak_memory import MEMORY_PARTS
from planner.estimators.training.step_time import TIME_PARTS
from planner.estimators.training.training_estimate import evaluate
from planner.specs.catalogue import names

MODELS = ("llama-65b", "gpt-3-175b", "mixtral-8x7b", "deepseek-v3", "gemma-2-9b", "falcon-40b")
MODELS += ("glm-5", "nemotron-3-super-120b-a12b")
FRAMEWORKS = tuple(names("frameworks"))
OUTSIDE_LAYERS = ("launch_wait", "weight_gather", "offload", "pipeline_transfer", "pipeline_bubble")
OUTSIDE_LAYERS += ("data_parallel", "optimizer", "overhead", "slow_nodes", "untuned")


def _ideal(real: TrainingInputs) -> TrainingInputs:
    gpu, cluster = ideal_hardware(real.machine.gpu, real.machine.cluster)
    machine = Machine(gpu=gpu, cluster=cluster, ideal=True)
    return replace(real, machine=machine, framework=ideal_framework(real.framework))


def _random_table(seed: int, rows: int = 40) -> TrainingConfigurations:
    """Whole numbers of replicas and micro-batches; other rules may be broken."""
    rng = np.random.default_rng(seed)

    def draw(*values: int) -> Any:
        return rng.choice(values, rows)

    tensor, context, pipeline = draw(1, 2, 4, 8), draw(1, 2), draw(1, 2, 3, 8, 16)
    data, micro, count = draw(1, 2, 8), draw(1, 2), draw(1, 4, 16)
    return configuration(
        num_gpus=tensor * context * pipeline * data,
        tensor_parallel=tensor,
        context_parallel=context,
        pipeline_parallel=pipeline,
        virtual_pipeline=np.where(pipeline > 1, draw(1, 1, 2), 1),
        expert_parallel=np.minimum(draw(1, 2, 8), tensor * context * data),
        micro_batch_size=micro,
        global_batch_size=data * micro * count * pipeline,
        zero_stage=draw(0, 1, 2, 3),
        recompute=draw(0, 1, 2),
        offload=draw(0, 0, 1, 2, 3),
        sequence_parallel=(tensor > 1) & (draw(0, 1) > 0),
        flash_attention=draw(0, 1) > 0,
    )


@pytest.mark.few(15)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_parts_of_the_step_add_up(model: str, framework: str) -> None:
    estimate = evaluate(setting(model, framework), _random_table(len(model + framework)))
    parts = estimate.time.parts()
    assert tuple(parts) == TIME_PARTS
    total = sum(np.broadcast_to(parts[name], estimate.configurations.shape) for name in TIME_PARTS)
    np.testing.assert_allclose(total, estimate.step_time, rtol=1e-9)
    assert all(np.all(seconds >= -1e-12) for seconds in parts.values())


@pytest.mark.parametrize("model", MODELS)
def test_operators_and_the_rest_add_up(model: str) -> None:
    estimate = evaluate(setting(model), _random_table(3))
    parts = estimate.time.parts()
    operators = sum(
        seconds for _, times in estimate.time.operator_times() for seconds in times.values()
    )
    rest = sum(parts[name] for name in OUTSIDE_LAYERS)
    np.testing.assert_allclose(operators + rest, estimate.step_time, rtol=1e-9)


@pytest.mark.few(15)
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("model", MODELS)
def test_parts_of_memory_add_up_on_the_fullest_gpu(model: str, framework: str) -> None:
    estimate = evaluate(setting(model, framework), _random_table(5))
    fullest = estimate.memory.fullest
    sizes = [getattr(fullest, name) for name in MEMORY_PARTS]
    np.testing.assert_allclose(sum(sizes), estimate.peak_memory, rtol=1e-9)
    assert all(np.all(size >= 0) for size in sizes)
    for stage in estimate.memory.stages:
        assert np.all(estimate.peak_memory >= stage.total * (1 - 1e-12))


@settings(max_examples=examples(30, 6))
@given(
    model=st.sampled_from(MODELS),
    framework=st.sampled_from(FRAMEWORKS),
    gpu=st.sampled_from(("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "rtx4090-24gb")),
    seed=st.integers(0, 2**32 - 1),
)
def test_ideal_machine_is_a_lower_bound(model: str, framework: str, gpu: str, seed: int) -> None:
    real = setting(model, framework, gpu=gpu)
    ideal = _ideal(real)
    table = _random_table(seed)
    bound, default = evaluate(ideal, table), evaluate(real, table)
    assert np.all(bound.step_time > 0)
    assert np.all(bound.step_time <= default.step_time * (1 + 1e-12))
    np.testing.assert_array_equal(bound.peak_memory, default.peak_memory)


@pytest.mark.parametrize("model", MODELS)
def test_ideal_machine_needs_at_least_the_time_of_its_flops(model: str) -> None:
    """No more than the peak: causal attention does half of the counted scores."""
    real = setting(model)
    ideal = _ideal(real)
    estimate = evaluate(ideal, _random_table(11))
    attention = 1 - 0.5 * (~estimate.configurations.flash_attention == 0)
    assert np.all(estimate.model_flops_utilization * attention <= 1)


def test_matrix_only_model_reaches_the_peak_on_an_ideal_machine() -> None:
    """One large dense layout without communication is near its FLOPs over the peak."""
    real = setting("megatron-1t", sequence_length=2048)
    ideal = _ideal(real)
    layout = configuration(num_gpus=1, micro_batch_size=8, global_batch_size=64)
    assert 0.95 < evaluate(ideal, layout).model_flops_utilization < 1.02


@pytest.mark.parametrize(
    ("model", "name"), [("llama-7b", "attention_core"), ("mixtral-8x7b", "experts")]
)
def test_ideal_kernels_are_as_fast_as_the_roofline(model: str, name: str) -> None:
    """Both do enough FLOPs per byte to be bound by the peak alone.

    The experts' activations besides pass memory: three widths of each token and expert.
    """
    real = setting(model, gpu="h100-sxm-80gb")
    ideal = _ideal(real)
    layout = configuration(num_gpus=8, expert_parallel=1, micro_batch_size=4, global_batch_size=32)
    layers, *_ = evaluate(ideal, layout).time.blocks
    (kernel,) = (operator for operator in layers.time.operators if operator.name == name)
    gpu, tokens = real.machine.gpu, 4 * real.workload.sequence_length
    seconds = float(kernel.flops) / gpu.peak_flops["bf16"]
    if name == "experts":
        mlp = real.model.layer_groups[0].feed_forward
        pairs = tokens * mlp.num_experts_per_tok
        seconds += 2 * 3 * pairs * mlp.moe_intermediate_size / gpu.memory_bandwidth
    assert float(kernel.forward) == pytest.approx(seconds, rel=1e-9)
