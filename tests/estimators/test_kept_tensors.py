"""Full recomputation that keeps named tensors: FLOPs, bytes and seconds, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from published_runs import configuration, setting

from planner import Request, estimate
from planner.base.software_enums import (
    KeptTensors,
)
from planner.configurations.training_rules import RULES
from planner.errors import SearchSpaceError
from planner.estimators.training.flops import recomputed_flops_per_token
from planner.estimators.training.micro_batch_share import MicroBatchShare, TrainingInputs
from planner.estimators.training.saved_activations import layer_bytes
from planner.estimators.training.training_estimate import broken_rule, evaluate
from planner.optimize.source import first_row

# Llama-3.1 8B: 32 layers of width 4096, 32 heads and 8 key-value heads of 128, 14,336 wide inside.
H, KV, F, LAYERS, LENGTH = 4096, 8 * 128, 14336, 32, 8192
QKV, OUT, UP, DOWN = H * (H + 2 * KV), H * H, 2 * H * F, H * F
CORE = 2 * 2 * LENGTH * H  # scores and values of a token, no mask
TOKENS = 2 * LENGTH
NORMS = 2 * (2 * LAYERS + 1) * H  # utilizations count their weights as if multiplied
ALL = "qkv_proj+context+out_proj+mlpwi+mlpwo"
POLICIES = {
    "full": (2 * (QKV + OUT + UP) + CORE, 0),
    "save_out_proj": (2 * (QKV + UP) + CORE, 2 * H),
    "save_qkv_proj": (2 * (OUT + UP) + CORE, 2 * (H + 2 * KV)),
    "save_dot_except_mlp": (2 * UP + CORE, 2 * (H + 2 * KV) + 2 * H),
    # Of the core its output and, in fp32, a sum for each head.
    "save_dot_with_context_except_mlp": (2 * UP, 2 * (H + 2 * KV) + 2 * H + 2 * H + 4 * 32),
    "minimal": (CORE, 2 * (H + 2 * KV) + 2 * H + 2 * 2 * F + 2 * H),
    "minimal_with_context": (0, 2 * (H + 2 * KV) + 2 * H + 2 * H + 4 * 32 + 2 * 2 * F + 2 * H),
}


def world(framework: str = "maxtext", model: str = "llama-3.1-8b") -> TrainingInputs:
    return setting(model, framework=framework, gpu="tpu-v6e", sequence_length=LENGTH, dropout=False)


def layout(saved: str = "none", moved: str = "none", recompute: int = 2, **more):
    codes = (KeptTensors[KeptTensors.canonical_word(word).upper()] for word in (saved, moved))
    names = ("saved_tensors", "offloaded_tensors")
    given = {"num_gpus": 8, "global_batch_size": 16, "micro_batch_size": 2, "zero_stage": 3}
    return configuration(
        recompute=recompute, flash_attention=True, **dict(zip(names, codes, strict=True)),
        **{**given, **more},
    )  # fmt: skip


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_repeats_what_it_does_not_keep(policy: str) -> None:
    s, c = world(), layout(policy)
    again = s.recomputation(c)
    flops = recomputed_flops_per_token(s.model, LENGTH, again, np.bool_(True))
    assert float(flops) == LAYERS * POLICIES[policy][0] + NORMS
    (group,) = s.model.layer_groups
    kept = float(layer_bytes(MicroBatchShare.of(s, c), group))
    assert kept == TOKENS * (2 * H + POLICIES[policy][1])


def test_what_is_kept_takes_no_time_again() -> None:
    times = {
        operator.name: operator_phases
        for operator, operator_phases in evaluate(world(), layout("minimal")).time.operator_times()
    }
    for name in ("qkv", "attention_output", "gate_up", "down"):
        assert float(times[name]["recompute"]) == 0, name
    # Norms and activation functions are made again of what is kept.
    for name in ("attention_norm", "activation", "attention_core"):
        assert float(times[name]["recompute"]) == pytest.approx(float(times[name]["forward"]))


def test_where_pytorch_repeats_a_layer_its_last_product_is_repeated_too() -> None:
    s, c = world("torchtitan"), layout()
    flops = recomputed_flops_per_token(s.model, LENGTH, s.recomputation(c), np.bool_(True))
    assert float(flops) == LAYERS * (2 * (QKV + OUT + UP + DOWN) + CORE) + NORMS


def test_tensor_parallel_ranks_share_what_is_kept() -> None:
    s = world()
    c = layout(ALL, num_gpus=16, tensor_parallel=2, sequence_parallel=True)
    (group,) = s.model.layer_groups
    assert float(layer_bytes(MicroBatchShare.of(s, c), group)) == pytest.approx(
        TOKENS * (2 * H + POLICIES["minimal_with_context"][1]) / 2
    )


def test_tensors_on_the_host_leave_the_gpu() -> None:
    kept, moved = layout("qkv_proj"), layout(moved="layer_input+qkv_proj")
    on_gpu, on_host = evaluate(world(), kept).memory, evaluate(world(), moved).memory
    each = TOKENS * (2 * H + 2 * (H + 2 * KV))
    assert float(on_host.host) == LAYERS * each
    # Two layers are being copied.
    away = float(on_gpu.fullest.activations - on_host.fullest.activations)
    assert away == pytest.approx((LAYERS - 2) * each)


def test_experts_keep_what_goes_between_their_matrices() -> None:
    s = world(model="mixtral-8x7b")
    (group,) = s.model.layer_groups
    bare, kept = (
        float(layer_bytes(MicroBatchShare.of(s, layout(x)), group)) for x in ("none", "mlpwi")
    )
    assert kept - bare == TOKENS * 2 * 2 * 2 * 14336  # two experts of a token, gate and up
    again = s.recomputation(layout("mlpwi"))
    first = recomputed_flops_per_token(s.model, LENGTH, again, np.bool_(True))
    whole = recomputed_flops_per_token(s.model, LENGTH, s.recomputation(layout()), np.bool_(True))
    assert float(whole - first) == 32 * 2 * 2 * 2 * 4096 * 14336


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"saved": "qkv_proj", "recompute": 0}, "saved_tensors"),
        ({"saved": "qkv_proj+context", "moved": "context"}, "saved_tensors"),
        ({"saved": "qkv_proj", "framework": "torchtitan"}, "framework"),
        ({"saved": "qkv_proj"}, None),
    ],
)
def test_tensors_are_kept_by_full_recomputation_of_a_framework_that_can(
    values: dict[str, object], rule: str | None
) -> None:
    framework = str(values.pop("framework", "maxtext"))
    broken = int(broken_rule(world(framework), layout(**values)))
    assert (RULES[broken - 1].name if broken else None) == rule


def test_words_are_policies_or_sets_in_any_order() -> None:
    assert KeptTensors.canonical_word("out_proj+qkv_proj") == "qkv_proj+out_proj"
    assert KeptTensors.canonical_word("Minimal-Flash") == ALL
    request = Request(
        workload="train", model="llama-3.1-8b", gpu="tpu-v6e", num_gpus=8, framework="maxtext",
        settings={"recompute": "full", "saved_tensors": "everything"},
    )  # fmt: skip
    with pytest.raises(SearchSpaceError, match="or several joined by \\+, not 'everything'"):
        estimate(base=request)


# AI-Hypercomputer/gpu-recipes 2e1fd5e, training/a3ultra/llama3-1-70b: 32 H200 nodes, copies of
# 128 GPUs, remat_policy save_dot_with_context_except_mlp: 15.516 s a step.
def test_a_published_step_of_maxtext_on_h200() -> None:
    request = Request(
        workload="train", model="llama-3.1-70b", gpu="h200", num_gpus=256, framework="maxtext",
        sequence_length=8192, global_batch_size=512,
        settings={
            "micro_batch_size": 2, "zero_stage": 3, "data_parallel_replicas": 2,
            "recompute": "full", "saved_tensors": "save_dot_with_context_except_mlp",
            "attention_kernel": "cudnn",
        },
    )  # fmt: skip
    row = first_row(estimate(base=request).table())
    assert row["step_time_s"] == pytest.approx(15.516, rel=0.1)
    assert row["peak_memory_gib"] < 141e9 / 2**30
