"""Options that few plans set, against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import planner
from planner.estimators.training.training_estimate import Estimate, evaluate

MIXTRAL = {"tensor_parallel": 2, "expert_parallel": 4, "sequence_parallel": True}


def estimated(
    framework: str = "megatron-lm", model: str = "mixtral-8x7b", **settings: Any
) -> Estimate:
    """64 H100s, sequences of 4,096 tokens."""
    return planner.estimate(
        model=model,
        gpu="h100-sxm-80gb",
        num_gpus=64,
        framework=framework,
        sequence_length=4096,
        global_batch_size=512,
        settings=settings,
    ).estimate


def number(values: Any) -> float:
    return float(np.ravel(values)[0])


def experts_time(estimate: Estimate) -> float:
    """Seconds of the experts' products."""
    return sum(
        number(operator.forward)
        for operator, _ in estimate.time.operator_times()
        if operator.name == "experts"
    )


def exchanged(**settings: Any) -> float:
    """Exposed seconds of the experts' exchange."""
    return number(estimated(**{**MIXTRAL, **settings}).time.parts()["expert_parallel"])


def test_split_experts_gather_tokens_beside_their_exchange() -> None:
    """An all-to-all of four ranks sends 3/4; two more ranks' tokens come in whole.

    3/4 before, 3/4 + 1 of as many bytes after, latencies aside.
    """
    assert exchanged(expert_tensor_parallel=2) / exchanged() == pytest.approx(1.75 / 0.75, rel=0.1)


def test_a_rank_holds_no_more_than_all_tokens() -> None:
    """Half again as many tokens take half again as long; one rank of experts has all anyway."""
    usual = estimated(**MIXTRAL)
    crowded = estimated(**MIXTRAL, expert_imbalance=1.5)
    assert experts_time(crowded) / experts_time(usual) == pytest.approx(1.5, rel=0.02)
    alone = {**MIXTRAL, "expert_parallel": 1}
    assert estimated(**alone, expert_imbalance=3).step_time == estimated(**alone).step_time
    two = {**MIXTRAL, "expert_parallel": 2}
    most, above = (estimated(**two, expert_imbalance=value) for value in (2, 4))
    assert most.step_time == above.step_time


def test_what_exceeds_the_capacity_is_dropped() -> None:
    limited = estimated(**MIXTRAL, expert_imbalance=2, expert_capacity_factor=1.25)
    imbalanced = estimated(**MIXTRAL, expert_imbalance=1.25)
    assert limited.step_time == imbalanced.step_time
    assert limited.memory.peak == imbalanced.memory.peak


def test_tokens_cross_to_each_node_once() -> None:
    """Of DeepSeek-V3's eight copies of a token 6 leave for four nodes' other three, or 2.2.

    A node has two of eight groups of experts, none of a token's four in 15 of 70 choices; so 2.2
    other nodes have one of its experts or more, 2.7 without groups.
    """
    settings = {"expert_parallel": 32, "recompute": "full"}
    each, once = (
        number(
            estimated(model="deepseek-v3", token_dispatcher=kind, **settings).time.parts()[
                "expert_parallel"
            ]
        )
        for kind in ("alltoall", "flex")
    )
    assert once / each == pytest.approx(2.196 / 6, rel=0.05)


def test_muon_orthogonalizes_the_part_of_an_expert_that_a_rank_has() -> None:
    """5 x (4 r^2 c + 2 r^3) for a matrix; ranks that split experts have half of the width."""
    more = []
    for split in (1, 2):
        layout = {**MIXTRAL, "expert_parallel": 4 // split, "expert_tensor_parallel": split}
        adam, muon = (
            number(estimated(**layout, optimizer=kind).time.optimizer) for kind in ("adam", "muon")
        )
        more.append(muon - adam)
    # Twice as many experts on a rank, each half as wide: 14,336 or 7,168 columns of 4,096 rows.
    narrow, wide = (4 * 4096**2 * width + 2 * 4096**3 for width in (7168, 14336))
    assert more[1] / more[0] == pytest.approx(2 * narrow / wide, rel=0.03)


def test_dualpipe_holds_two_stages_and_a_micro_batch_more() -> None:
    """DeepSeek-V3 (arXiv:2412.19437), table 2: parameters twice, PP + 1 activations."""
    layout = {"pipeline_parallel": 4}
    usual, both = (
        estimated("hai-llm", "llama-2-7b", **layout, pipeline_schedule=kind).memory.fullest
        for kind in ("one_forward_one_backward", "dualpipe")
    )
    assert number(both.weights) == pytest.approx(2 * number(usual.weights), rel=1e-4)
    assert number(both.activations) == pytest.approx(5 / 4 * number(usual.activations))


def test_ranks_that_share_a_key_value_head_are_each_sent_a_copy() -> None:
    """Qwen3-30B-A3B, 32 heads of 128 and 4 key-value heads, on ranks of one node that trade heads.

    Of four ranks each sends 3/4 of its quarter of the tokens, 32 + 2 x 4 heads there and 32 back;
    of eight 7/8 of its eighth, with 8 copies of keys and values: 7/8 x 80 / 8 to 3/4 x 72 / 4.
    """
    seconds = []
    for ranks in (4, 8):
        found = planner.estimate(
            model="qwen3-30b-a3b", gpu="h100-sxm-80gb", num_gpus=8, framework="deepspeed",
            sequence_length=1 << 20, global_batch_size=2,
            settings={"context_parallel": ranks, "zero_stage": 3, "recompute": "full"},
        ).estimate  # fmt: skip
        (exchange,) = (
            number(operator.forward)
            for operator, _ in found.time.operator_times()
            if operator.name == "attention_context_parallel"
        )
        seconds.append(exchange)
    assert seconds[1] / seconds[0] == pytest.approx((7 / 8 * 80 / 8) / (3 / 4 * 72 / 4), rel=0.02)


def test_heads_that_no_softmax_kernel_takes_move_36_bytes_for_each_score() -> None:
    """40 heads in 8 parts are no multiple of 4: casts, scale, mask and softmax are kernels."""
    estimate = estimated(
        "megatron-deepspeed", "llama-13b", tensor_parallel=8, micro_batch_size=1,
        flash_attention=False,
    )  # fmt: skip
    framework = estimate.inputs.framework
    execution = replace(framework.execution, softmax_multiple=1)
    inputs = replace(estimate.inputs, framework=replace(framework, execution=execution))
    fused = evaluate(inputs, estimate.configurations)
    several, one = (
        next(
            number(operator.forward)
            for operator, _ in each.time.operator_times()
            if operator.name == "attention_core"
        )
        for each in (estimate, fused)
    )
    scores, passes = 5 * 4096**2, 2 * execution.softmax_passes
    seconds = estimate.inputs.machine.memory_time
    expected = seconds((passes + 36 - 4) * scores) - seconds(passes * scores)
    assert several - one == pytest.approx(number(expected))
