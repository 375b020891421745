"""Nothing overflows: 1e13 parameters, 1e6 GPUs, long sequences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tables import ONE, setting, table

from planner.estimators.training.flops import model_flops_per_token
from planner.estimators.training.micro_batch_share import TrainingInputs
from planner.estimators.training.peak_memory import MEMORY_PARTS
from planner.estimators.training.run_cost import training_cost
from planner.estimators.training.training_estimate import evaluate
from planner.layers.model import count_parameters
from planner.specs.attention import AttentionSpec
from planner.specs.catalogue import Catalogue
from planner.specs.model import FeedForwardSpec, LayerGroup, ModelSpec
from planner.specs.operating_terms import OperatingTerms
from planner.specs.price import one_price
from planner.specs.training_workload import TrainingWorkload

HIDDEN, LAYERS = 65_536, 200


def _huge(sequence_length: int = 131_072) -> TrainingInputs:
    """12 l h^2 = 1.03e13 parameters on a batch of 1e8 tokens and more."""
    heads = HIDDEN // 128
    layer = LayerGroup(
        num_hidden_layers=LAYERS,
        attention=AttentionSpec(num_attention_heads=heads, num_key_value_heads=heads, head_dim=128),
        feed_forward=FeedForwardSpec(intermediate_size=4 * HIDDEN, gated=False),
    )
    model = ModelSpec(
        name="huge", hidden_size=HIDDEN, vocab_size=10**6, layer_groups=(layer,), source="test"
    )
    workload = TrainingWorkload(
        sequence_length=sequence_length, global_batch_size=10**6, total_tokens=1e17
    )
    return replace(setting("llama-65b", gpu="h100-sxm-80gb"), model=model, workload=workload)


def test_parameters_and_flops_are_exact_beyond_64_bit() -> None:
    s = _huge()
    parameters = 12 * LAYERS * HIDDEN**2 + 2 * 10**6 * HIDDEN + (2 * LAYERS + 1) * HIDDEN
    assert parameters > 1e13
    assert count_parameters(s.model).total == parameters
    flops = model_flops_per_token(s.model, s.workload.sequence_length) * 1e17
    by_hand = 6 * (parameters - 10**6 * HIDDEN) + 12 * LAYERS * HIDDEN * 131_072
    assert flops > 2**63
    assert flops == pytest.approx(by_hand * 1e17, rel=1e-12)


@pytest.mark.parametrize("gpus", [1, 1_000_000])
@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("flash", [True, False])
def test_estimates_are_finite_and_positive(gpus: int, zero: int, flash: bool) -> None:
    layout = table(
        num_gpus=gpus,
        tensor_parallel=[1, 8] if gpus > 1 else [1, 1],
        pipeline_parallel=[1, 100] if gpus > 1 else [1, 1],
        micro_batch_size=1,
        global_batch_size=10**6,
        zero_stage=zero,
        flash_attention=flash,
    )
    estimate = evaluate(_huge(), layout)
    fullest = estimate.memory.fullest
    numbers = [estimate.step_time, estimate.peak_memory, *estimate.time.parts().values()]
    numbers += [getattr(fullest, name) for name in MEMORY_PARTS]
    reliability = Catalogue().load_reliability("published").spec
    offer = one_price(1e-3, source="given", contract="spot")
    site = OperatingTerms(offer=offer, reliability=reliability)
    run = training_cost(estimate, site, estimate.inputs.workload.total_tokens)
    numbers += [run.time_to_train, run.calendar_time, run.gpu_seconds, run.cost]
    numbers += [run.interruptions, run.goodput.ratio, *run.goodput.lost().values()]
    for values in numbers:
        assert np.asarray(values).dtype.kind == "f"
        assert np.all(np.isfinite(values))
        assert np.all(np.asarray(values) >= 0)
    assert np.all(estimate.model_flops_utilization > 0)
    assert np.all(estimate.model_flops_utilization < 1.1)


def test_unsharded_memory_by_hand() -> None:
    """2 + 4 + 12 bytes of 1.04e13 parameters on one GPU: 1.9e14, beyond 2^32 and 2^40."""
    s = _huge(2048)
    memory = evaluate(s, table(**{**ONE, "num_gpus": 1, "global_batch_size": 1})).memory.fullest
    states = memory.weights + memory.gradients + memory.optimizer_states
    assert float(states) == pytest.approx(18 * count_parameters(s.model).total, rel=1e-6)
    assert float(states) > 2**47


def test_score_matrices_do_not_wrap_around() -> None:
    """a s^2 b (2 bytes) of unfused attention by hand: 512 heads of 131,072 tokens."""
    s = _huge()
    without = table(num_gpus=1, global_batch_size=1, recompute=1, flash_attention=False)
    whole = table(num_gpus=1, global_batch_size=1, recompute=0, flash_attention=False)
    kept = evaluate(s, whole).memory.stages[0].activations
    dropped = evaluate(s, without).memory.stages[0].activations
    assert float(kept - dropped) == pytest.approx(LAYERS * 2 * 512 * 131_072**2, rel=1e-9)
