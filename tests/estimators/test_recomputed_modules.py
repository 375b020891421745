"""Modules that the backward pass repeats by themselves: the bytes of llm-analysis, by hand.

References
----------
.. [1] cli99/llm-analysis at d841e40, llm_analysis/analysis.py, get_activation_memory_per_layer and
   its parts; its masks of dropout left out.
.. [2] V. Korthikanti et al., "Reducing activation recomputation in large transformer models,"
   2022, arXiv:2205.05198, equation 1.
"""

from __future__ import annotations

import numpy as np
import pytest
from published_runs import configuration, setting

from planner import Request, estimate
from planner.base.software_enums import (
    RecomputedModules,
)
from planner.configurations.training_rules import RULES
from planner.errors import SearchSpaceError
from planner.estimators.training.flops import recomputed_flops_per_token
from planner.estimators.training.micro_batch_share import MicroBatchShare
from planner.estimators.training.saved_activations import all_bytes, expert_bytes, layer_bytes
from planner.estimators.training.training_estimate import broken_rule, evaluate
from planner.optimize.source import first_row

# OPT-1.3B: 24 layers of width 2048, 32 heads, feed-forwards four times as wide, not gated.
H, HEADS, LENGTH, LAYERS = 2048, 32, 2048, 24
SBH = LENGTH * H
PROJECTIONS, FEED_FORWARD = 4 * H * H, 2 * 4 * H * H
CORE = 2 * 2 * LENGTH * H


def kept(modules: str, *, fused: bool = True, recompute: int = 1, **more: int) -> float:
    s, c = world(), layout(modules, fused=fused, recompute=recompute, **more)
    (group,) = s.model.layer_groups
    return float(layer_bytes(MicroBatchShare.of(s, c), group))


def world(model: str = "opt-1.3b", framework: str = "fsdp"):
    return setting(
        model, framework=framework, gpu="a100-sxm-80gb", sequence_length=LENGTH, dropout=False
    )


def layout(modules: str = "none", *, fused: bool = True, recompute: int = 1, **more):
    code = RecomputedModules[RecomputedModules.canonical_word(modules).upper()]
    return configuration(
        recompute=recompute, recompute_modules=code, flash_attention=fused,
        **{"num_gpus": 8, "global_batch_size": 8, **more},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("level", "modules", "per_sbh"),
    [
        # Norms of 2 bytes: attention 2 + 8, feed-forward 2 + 16, two norms 4.
        ("1", "core_attn", 32),
        # Its input of attention, feed-forward, two norms.
        ("2", "attention", 2 + 18 + 4),
        # Feed-forward and one norm.
        ("3", "norm_attention_norm", 18 + 2),
        # Activation functions beside level 1: what the second matrix reads is made again.
        ("1, mlp_recompute_gelu", "core_attn+mlp_act", 32 - 8),
        ("2, mlp_recompute_gelu", "attention+mlp_act", 24 - 8),
    ],
)
def test_a_level_keeps_what_llm_analysis_says(level: str, modules: str, per_sbh: int) -> None:
    assert kept(modules, fused=False) == per_sbh * SBH, level


def test_without_recomputation_scores_are_kept_too() -> None:
    """34 sbh + 5 a s^2 b of [2]_ without its three masks: 32 and 2."""
    assert kept("none", fused=False, recompute=0) == 32 * SBH + 2 * HEADS * LENGTH**2


# Of level 2, 24: two norms 4, inputs of attention 2, of the first matrix 2, of the activation
# function and of the second matrix 8 each; layernorm_dtype_bytes is 4 in llm-analysis.
@pytest.mark.parametrize(
    ("bits", "per_sbh"),
    [
        ({"norm_input_bits": 32}, 24 + 4),
        ({"fc1_input_bits": 8}, 24 - 1),
        ({"activation_input_bits": 4}, 24 - 6),
        ({"fc2_input_bits": 8}, 24 - 4),
        (dict.fromkeys(("fc1_input_bits", "activation_input_bits", "fc2_input_bits"), 4),
         24 - 18 * 3 / 4),
    ],
)  # fmt: skip
def test_bits_of_what_is_kept_are_those_of_llm_analysis(
    bits: dict[str, int], per_sbh: float
) -> None:
    assert kept("attention", **bits) == per_sbh * SBH


def test_peak_memory_is_less_and_time_the_same_in_fewer_bits() -> None:
    s = world("mixtral-8x7b", "megatron-lm")
    usual, few = (
        evaluate(s, layout(recompute=0, pipeline_parallel=8, activation_input_bits=bits))
        for bits in (0, 4)
    )
    # Eight stages keep four layers of eight micro-batches: gate and up of two experts a token.
    spared = LENGTH * 2 * 2 * 14336 * (2 - 0.5) * 4 * 8
    away = float(usual.memory.fullest.activations - few.memory.fullest.activations)
    assert away == pytest.approx(spared)
    assert float(usual.step_time) == float(few.step_time)


@pytest.mark.parametrize(
    ("modules", "forward"),
    [
        ("attention", 2 * PROJECTIONS + CORE),
        ("mlp", 2 * FEED_FORWARD),
        ("attention+mlp", 2 * (PROJECTIONS + FEED_FORWARD) + CORE),
        ("layernorm+mlp_act", 0),
    ],
)
def test_flops_are_those_of_the_modules(modules: str, forward: int) -> None:
    s, c = world(), layout(modules)
    again = s.recomputation(c)
    biases = {"attention": 4 * H, "mlp": 5 * H}
    met = sum(2 * biases[name] for name in modules.split("+") if name in biases)
    flops = float(recomputed_flops_per_token(s.model, LENGTH, again, np.bool_(True)))
    assert flops == LAYERS * (forward + met)


def test_time_is_the_forward_pass_of_the_modules() -> None:
    times = {
        operator.name: (float(phases["forward"]), float(phases["recompute"]))
        for operator, phases in evaluate(
            world(), layout("norm_attention_norm")
        ).time.operator_times()
    }
    again = {name for name, (forward, recompute) in times.items() if recompute}
    inside = {"qkv", "attention_core", "attention_output"}
    assert again == {"attention_norm", "feed_forward_norm", *inside}
    assert all(times[name][0] == pytest.approx(times[name][1]) for name in again)


def test_feed_forward_is_the_name_of_two_modules() -> None:
    s = world("mixtral-8x7b", "megatron-lm")
    named, told = evaluate(s, layout("mlp+moe")), evaluate(s, layout(recompute=3))
    assert float(named.step_time) == float(told.step_time)
    assert float(named.memory.peak) == float(told.memory.peak)


def test_usual_modules_of_megatron_for_experts_can_be_named() -> None:
    s = world("mixtral-8x7b", "megatron-lm")
    named, told = evaluate(s, layout("layernorm+moe_act")), evaluate(s, layout())
    assert float(named.step_time) == pytest.approx(float(told.step_time), rel=1e-12)
    assert float(named.memory.peak) == pytest.approx(float(told.memory.peak), rel=1e-12)


def asked(modules: str):
    request = Request(
        model="opt-1.3b", gpu="a100-sxm-80gb", num_gpus=8, framework="fsdp",
        settings={"recompute": "selective", "recompute_modules": modules},
    )  # fmt: skip
    return first_row(estimate(base=request).table())


def test_a_set_of_modules_is_asked_for_by_any_of_its_names() -> None:
    assert asked("norm_attn_norm")["recompute_modules"] == "attention+layernorm"


@pytest.mark.parametrize(
    ("framework", "modules", "recompute", "rule"),
    [
        ("fsdp", "mlp", 2, "recompute_modules"),
        ("fsdp", "mlp", 0, "recompute_modules"),
        ("megatron-lm", "moe", 1, "recompute_modules"),
        ("megatron-lm", "mlp_act", 1, "framework"),
        ("megatron-lm", "mlp+layernorm", 1, None),
    ],
)
def test_modules_that_cannot_be_are_refused(
    framework: str, modules: str, recompute: int, rule: str | None
) -> None:
    broken = int(broken_rule(world(framework=framework), layout(modules, recompute=recompute)))
    assert (RULES[broken - 1].name if broken else None) == rule


def test_an_unknown_module_is_told_with_those_that_there_are() -> None:
    with pytest.raises(SearchSpaceError, match=r"core_attn, attention, layernorm.*not 'norm2'"):
        asked("norm2")


def test_rules_by_operator_save_no_grouped_products() -> None:
    """torchtitan saves every other aten.mm, attention, and what all-to-alls bring.

    The grouped products of experts, and what is between them, are all made again.
    """
    s = world("qwen3-30b-a3b", "torchtitan")
    one = {"num_gpus": 8, "zero_stage": 3}
    selective, every = (evaluate(s, layout(recompute=code, **one)) for code in (1, 0))
    times = {
        operator.name: float(phases["recompute"] / phases["forward"])
        for operator, phases in selective.time.operator_times()
        if phases["forward"] and not operator.part.endswith("parallel")
    }
    assert times["experts"] == times["permute"] == pytest.approx(1)
    assert times["qkv"] == times["attention_output"] == pytest.approx(0.5)
    assert times["attention_core"] == 0
    (group,) = s.model.layer_groups
    shares = [
        MicroBatchShare.of(s, layout(recompute=1, expert_parallel=ep, **one)) for ep in (1, 8)
    ]
    kept = [float(layer_bytes(share, group)) for share in shares]
    inside, brought = expert_bytes(shares[0], group)
    assert brought == 0
    rest = float(all_bytes(shares[0], group) - inside)
    layer_input, sent = 2 * LENGTH * 2048, 2 * 8 * LENGTH * 2048
    assert kept[0] == pytest.approx((rest + layer_input) / 2)
    assert kept[1] == pytest.approx(kept[0] + sent)
    assert float(selective.memory.peak) < float(every.memory.peak)
