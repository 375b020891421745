"""What optimizers keep and take: published figures, and what options change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planner
from planner.base.training_aliases import parse_optimizer
from planner.base.units import GIB
from planner.formulas.memory import newton_schulz_flops

LLAMA = {"model": "llama-7b", "gpu": "a100-sxm-80gb", "num_gpus": 8, "sequence_length": 2048}
PARAMETERS = 6_738_415_616


def _estimate(framework: str, **settings: Any) -> Any:
    """Whole states on every GPU, so that bytes are parameters times widths."""
    question = {**LLAMA, "global_batch_size": 8, "framework": framework}
    settings = {"zero_stage": 0, "micro_batch_size": 1, "recompute": "full", **settings}
    return planner.estimate(**question, settings=settings).candidates.estimate


def _states(framework: str, **settings: Any) -> float:
    moments = _estimate(framework, **settings).memory.moments
    return float(np.max(moments[0][0].optimizer_states)) / PARAMETERS


@pytest.mark.parametrize(
    ("framework", "settings", "width"),
    [
        # ZeRO's table: a copy in 32 bit and two moments.
        ("megatron-lm", {}, 12.0),
        # Precision-aware optimizer of Megatron-Core: moments in 16 and in 8 bit.
        ("megatron-lm", {"optimizer_state_precision": "bf16"}, 4 + 2 * 2),
        ("megatron-lm", {"optimizer_state_precision": "fp8"}, 4 + 2 * 1),
        ("megatron-lm", {"optimizer": "momentum"}, 4 + 4),
        # Block-wise 8 bit (arXiv:2110.02861): a scale in 32 bit for 256 numbers.
        ("hf-bf16", {"optimizer_state_precision": "int8"}, 2 * (1 + 4 / 256)),
        ("hf-trainer", {"optimizer": "lion"}, 4.0),
        ("hf-trainer", {"optimizer": "adafactor"}, 0.0),
        ("hf-bf16", {"main_params_precision": "fp32"}, 4 + 2 * 2),
        # torch.optim makes moments like the weights that it updates.
        ("hf-fsdp", {"main_params_precision": "bf16"}, 2 * 2),
    ],
)
def test_bytes_of_states(framework: str, settings: dict[str, Any], width: float) -> None:
    assert _states(framework, **settings) == pytest.approx(width, rel=1e-3)


def test_muon_keeps_two_moments_of_embedding_and_logits_alone() -> None:
    ends = 2 * 32000 * 4096
    expected = 4 + 4 * (1 + ends / PARAMETERS)
    assert _states("megatron-lm", optimizer="muon") == pytest.approx(expected, rel=1e-3)


def test_gradients_in_sixteen_bits_are_half_and_are_reduced_as_such() -> None:
    usual = _estimate("megatron-lm", zero_stage=1)
    narrow = _estimate("megatron-lm", zero_stage=1, main_grads_precision="bf16")
    half = usual.memory.fullest.gradients / 2
    assert narrow.memory.fullest.gradients == pytest.approx(half)
    assert narrow.step_time < usual.step_time


def test_updates_in_the_backward_pass_keep_no_gradients() -> None:
    """The largest unit is the embedding of 131 M parameters, in 32 bit."""
    late, early = (
        _estimate("fsdp", optimizer_in_backward=flag).memory.moments[0] for flag in (False, True)
    )
    assert float(np.max(late[1].gradients)) / GIB == pytest.approx(4 * PARAMETERS / GIB, rel=1e-3)
    assert float(np.max(early[1].gradients)) < 1 * GIB


def test_narrow_states_are_updated_faster() -> None:
    wide, narrow = (
        _estimate("megatron-lm", optimizer_state_precision=told) for told in ("fp32", "bf16")
    )
    # Eight bytes less of the 38 that an update reads and writes.
    ratio = narrow.time.optimizer / wide.time.optimizer
    assert float(np.max(ratio)) == pytest.approx(30 / 38, rel=1e-3)


def test_newton_schulz_of_a_square_matrix() -> None:
    """K. Jordan: six n^3 for each of five steps, which is 6 n / tokens of the training."""
    assert newton_schulz_flops(rows=np.float64(10), columns=np.float64(10)) == 5 * 6 * 10**3


def test_muon_takes_the_time_of_its_products() -> None:
    """Of Llama-7B: four square matrices and three of 11,008 columns in each of 32 layers."""
    adam, muon = (_estimate("megatron-lm", optimizer=kind) for kind in ("adam", "muon"))
    more = float(np.max(muon.time.optimizer - adam.time.optimizer))
    square, wide = 30 * 4096**3, 5 * (4 * 4096**2 * 11008 + 2 * 4096**3)
    flops = 32 * (4 * square + 3 * wide)
    # Fewer bytes of states make up for a little of it.
    assert 0.4 < flops / more / 312e12 < 1.0


@pytest.mark.parametrize(
    ("name", "kind", "precision"),
    [
        ("adamw_torch_fused", "adam", "framework"),
        ("adamw_bnb_8bit", "adam", "int8"),
        ("paged_adamw_8bit", "adam", "int8"),
        ("paged_lion_32bit", "lion", "fp32"),
        ("ao_adamw_fp8", "adam", "fp8"),
        ("DeepSpeedCPUAdam", None, None),
        ("adafactor", "adafactor", "framework"),
    ],
)
def test_names_of_optimizers(name: str, kind: str | None, precision: str | None) -> None:
    known = parse_optimizer(name)
    if kind is None:
        assert known is None
    else:
        assert known is not None
        assert [code.word for code in known.values()] == [kind, precision]


@pytest.mark.parametrize(
    ("framework", "weights", "width"),
    [("hf-trainer", "bf16", 2.0), ("hf-trainer", "framework", 4.0), ("megatron-lm", "bf16", 4.0)],
)
def test_gradients_have_the_type_of_the_weights_that_are_updated(
    framework: str, weights: str, width: float
) -> None:
    """As PyTorch's autograd makes them; Megatron-LM adds them up in a buffer in 32 bits."""
    step = _estimate(framework, main_params_precision=weights).memory.moments[0][-1]
    assert float(np.max(step.gradients)) / PARAMETERS == pytest.approx(width, rel=1e-3)
