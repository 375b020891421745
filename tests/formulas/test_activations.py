"""Activation memory against arXiv:2205.05198."""

from __future__ import annotations

from functools import cache

import pytest
from rows import each

from planner import Request
from planner.base.enums import (
    Recompute,
)
from planner.configurations.configuration_tables import TrainingConfigurations
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.saved_activations import layer_bytes
from planner.estimators.training.training_estimate import Estimate, evaluate
from planner.workloads.make_plan import make_plan

S = 2048
# Table 3: attention heads, hidden size, layers, pipeline stages, chunks, micro-batch, batch.
TABLE_3 = {
    "megatron-22b": (64, 6144, 48, 1, 1, 4, 4),
    "megatron-175b": (96, 12288, 96, 8, 3, 1, 64),
    "megatron-530b": (128, 20480, 105, 35, 3, 1, 280),
    "megatron-1t": (160, 25600, 128, 64, 1, 1, 512),
}


@cache
def _estimate(model: str, tensor: int, sequence: bool, recompute: Recompute) -> Estimate:
    """The model laid out as in Table 3, with another tensor_parallel where wanted."""
    _, _, _, pipeline, virtual, micro, batch = TABLE_3[model]
    setting = make_plan(
        Request(model=model, num_gpus=8, sequence_length=S, dropout=True, framework="megatron-lm")
    ).problem.inputs
    configurations = TrainingConfigurations.of(
        num_gpus=tensor * pipeline,
        tensor_parallel=tensor,
        context_parallel=1,
        pipeline_parallel=pipeline,
        virtual_pipeline=virtual,
        expert_parallel=1,
        micro_batch_size=micro,
        global_batch_size=batch,
        zero_stage=0,
        recompute=recompute,
        recompute_num_layers=0,
        offload=0,
        precision=1,
        data_parallel_replicas=1,
        sequence_parallel=sequence,
        flash_attention=False,
        fp8_attention=False,
    )
    return evaluate(setting, configurations)


def _layer(model: str, tensor: int, sequence: bool, recompute: Recompute) -> float:
    """Bytes per layer over s b h."""
    _, hidden, _, _, _, micro, _ = TABLE_3[model]
    estimate = _estimate(model, tensor, sequence, recompute)
    share = MicroBatchShare.of(estimate.inputs, estimate.configurations)
    group = estimate.inputs.model.layer_groups[0]
    kept = layer_bytes(share, group)
    return float(kept) / (S * micro * hidden)


@pytest.mark.parametrize("model", TABLE_3)
def test_shapes_are_those_of_table_3(model: str) -> None:
    heads, hidden, layers, *_ = TABLE_3[model]
    spec = _estimate(model, 8, False, Recompute.NONE).inputs.model
    attention = spec.layer_groups[0].attention
    assert (attention.num_attention_heads, spec.hidden_size) == (heads, hidden)
    assert spec.num_hidden_layers == layers


@each("model", TABLE_3)
@each(
    ("tensor", "sequence", "recompute", "linear", "score"),
    [
        pytest.param(1, False, Recompute.NONE, 34, 5, id="equation 1: 34 + 5as/h"),
        pytest.param(8, False, Recompute.NONE, 13, 5 / 8, id="equation 2: 10 + 24/t + 5as/ht"),
        pytest.param(8, True, Recompute.NONE, 34 / 8, 5 / 8, id="equation 4: 34/t + 5as/ht"),
        pytest.param(8, False, Recompute.SELECTIVE, 13, 0, id="Table 2, selective: 10 + 24/t"),
        pytest.param(8, True, Recompute.SELECTIVE, 34 / 8, 0, id="Table 2, both: 34/t"),
        pytest.param(8, False, Recompute.FULL, 2, 0, id="Table 2, full: 2"),
    ],
)
def test_activation_bytes_per_layer(
    model: str, tensor: int, sequence: bool, recompute: Recompute, linear: float, score: float
) -> None:
    heads, hidden, *_ = TABLE_3[model]
    expected = linear + score * heads * S / hidden
    assert _layer(model, tensor, sequence, recompute) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("model", "saved"),
    [
        pytest.param("megatron-175b", 0.70, id="section 5: 70 % of GPT-3"),
        pytest.param("megatron-530b", 0.65, id="section 5: 65 % of MT-NLG"),
    ],
)
def test_selective_recomputation_saves_the_published_share(model: str, saved: float) -> None:
    whole = _layer(model, 1, False, Recompute.NONE)
    kept = _layer(model, 1, False, Recompute.SELECTIVE)
    assert 1 - kept / whole == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize("model", TABLE_3)
def test_figure_7_both_techniques_save_about_fivefold(model: str) -> None:
    """Sequence parallelism and selective recomputation together save "roughly 5x"."""
    ratio = _layer(model, 8, False, Recompute.NONE) / _layer(model, 8, True, Recompute.SELECTIVE)
    assert 4.5 < ratio < 6.5


@pytest.mark.parametrize("model", TABLE_3)
def test_equation_5_first_stage_holds_all_layers(model: str) -> None:
    """sbhL/t 34 on the first stage whatever p is, times 1 + (p-1)/(p v) when interleaved."""
    _, hidden, layers, p, v, micro, _ = TABLE_3[model]
    factor = 1 + (p - 1) / (p * v) if v > 1 else 1
    expected = S * micro * hidden * layers * 34 / 8 * factor
    memory = _estimate(model, 8, True, Recompute.SELECTIVE).memory
    assert float(memory.stages[0].activations) == pytest.approx(expected, rel=1e-12)


def test_175b_activations_in_bytes() -> None:
    """2048 x 12288 x 96 x 34/8 x (1 + 7/24) bytes by hand: 12.35 GiB on the first stage."""
    memory = _estimate("megatron-175b", 8, True, Recompute.SELECTIVE).memory
    assert float(memory.stages[0].activations) == pytest.approx(13262389248, rel=1e-9)
