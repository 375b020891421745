"""Each rule has the least configuration that breaks it and the least that does not."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from rows import each

from planner import Request
from planner.configurations.configuration_tables import TrainingConfigurations, first_broken
from planner.configurations.enumerate import SpecifiedValues
from planner.configurations.training_rules import RULES, Context
from planner.estimators.training.sharding import logits_in_layers
from planner.workloads.make_plan import make_plan

ONE = {"num_gpus": 1, "global_batch_size": 1, "zero_stage": 0}
FOUR = {"num_gpus": 4, "global_batch_size": 4}
TWO = {"num_gpus": 2, "tensor_parallel": 2}
PIPELINE = {"num_gpus": 2, "pipeline_parallel": 2}
FP8 = {"precision": 2}
FOUR_STAGES = {"num_gpus": 4, "pipeline_parallel": 4, "global_batch_size": 4}
EXPERTS = {"num_gpus": 2, "expert_parallel": 2, "global_batch_size": 2}
SPLIT = {"num_gpus": 4, "context_parallel": 2, "global_batch_size": 2}
STAGED = {
    **EXPERTS,
    "num_gpus": 4,
    "pipeline_parallel": 2,
    "global_batch_size": 8,
    "micro_batch_size": 1,
}
MIXTRAL = {"model": "mixtral-8x7b"}
STAGES = {"num_gpus": 4, "pipeline_parallel": 4}


@cache
def _context(model: str = "llama-7b", framework: str = "megatron-lm", **request: Any) -> Context:
    given = SpecifiedValues(data_parallel=request.pop("data_parallel", ()))
    request = {"sequence_length": 2048, "gpu": "a100-sxm-80gb", **request}
    plan = make_plan(Request(model=model, num_gpus=1, framework=framework, **request))
    setting = plan.problem.inputs
    return Context(
        gpu=setting.machine.gpu,
        model=setting.model,
        framework=setting.framework,
        workload=setting.workload,
        logits_in_layers=logits_in_layers(setting.model),
        specified=given,
    )


def _first(values: dict[str, Any], context: dict[str, Any]) -> str | None:
    code = int(
        first_broken(RULES, TrainingConfigurations.of(**{**ONE, **values}), _context(**context))
    )
    return RULES[code - 1].name if code else None


# A rule, the configuration that breaks it, the nearest that does not, what they are judged by.
CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ("input_bits", {"fc2_input_bits": 64}, {"fc2_input_bits": 8}, {}),
    ("trained_layers", STAGES, {"num_gpus": 4, "global_batch_size": 4}, {"trained_layers": 2}),
    (
        "recompute_modules",
        {"recompute_modules": 4},
        {"recompute": 1, "recompute_modules": 4},
        {},
    ),
    (
        "saved_tensors",
        {"saved_tensors": 2},
        {"recompute": 2, "saved_tensors": 2},
        {"framework": "maxtext"},
    ),
    ("attention_kernel", {"attention_kernel": 4}, {"attention_kernel": 3}, {}),
    ("loss_chunks", {"loss_kernel": 3, "loss_chunks": 4}, {"loss_kernel": 4, "loss_chunks": 4}, {}),
    ("attention_kernel", {"attention_kernel": 5}, {"attention_kernel": 6}, {"gpu": "rtx5090"}),
    ("gpu_count", {"tensor_parallel": 2}, TWO, {}),
    ("gpu_count", {"num_gpus": 3, "tensor_parallel": 2, "global_batch_size": 3}, TWO, {}),
    ("global_batch_size", {"num_gpus": 2}, {"num_gpus": 2, "global_batch_size": 2}, {}),
    (
        "global_batch_size",
        {"micro_batch_size": 2, "global_batch_size": 3},
        {"micro_batch_size": 2, "global_batch_size": 4},
        {},
    ),
    ("as_given", FOUR, {**FOUR, "tensor_parallel": 2}, {"data_parallel": (2,)}),
    ("attention_heads", {"num_gpus": 3, "tensor_parallel": 3}, TWO, {}),
    (
        "layer_split",
        {"layer_split": True},
        {**PIPELINE, "layer_split": True},
        {"framework": "hf-trainer"},
    ),
    (
        "framework",
        {**PIPELINE},
        {**PIPELINE, "layer_split": True},
        {"framework": "hf-trainer"},
    ),
    # 40 heads with 8 keys and values: five ranks can share the heads, not the keys.
    (
        "attention_heads",
        {"num_gpus": 5, "tensor_parallel": 5},
        {"num_gpus": 8, "tensor_parallel": 8},
        {"model": "qwen2.5-14b"},
    ),
    # 32 heads with 8 keys and values: sixteen ranks hold each key twice.
    (
        "attention_heads",
        {"num_gpus": 64, "tensor_parallel": 64},
        {"num_gpus": 16, "tensor_parallel": 16},
        {"model": "llama-3-8b"},
    ),
    # Four chunks of the 32 layers are no two stages.
    (
        "pipeline_layout",
        {**FOUR_STAGES, "pipeline_parallel": 2},
        FOUR_STAGES,
        {"pipeline_layout": "6,8,8,10"},
    ),
    # bitsandbytes pages states in 8 or 32 bits, not those in bf16 of this framework.
    (
        "paged_optimizer",
        {"paged_optimizer": True},
        {"paged_optimizer": True, "optimizer_state_precision": 4},
        {"framework": "fsdp-bf16"},
    ),
    # Gradients that are added up over micro-batches cannot go as soon as they are there.
    (
        "optimizer_in_backward",
        {"num_gpus": 8, "optimizer_in_backward": True, "global_batch_size": 16},
        {"num_gpus": 8, "optimizer_in_backward": True, "global_batch_size": 8},
        {"framework": "torchtitan"},
    ),
    # Forty ranks hold each key five times, but 13,824 columns do not divide.
    (
        "intermediate_size",
        {"num_gpus": 40, "tensor_parallel": 40},
        {"num_gpus": 8, "tensor_parallel": 8},
        {"model": "qwen2.5-14b"},
    ),
    (
        "num_hidden_layers",
        {"num_gpus": 33, "pipeline_parallel": 33},
        {"num_gpus": 32, "pipeline_parallel": 32},
        {},
    ),
    (
        "num_hidden_layers",
        {**PIPELINE, "virtual_pipeline": 18, "global_batch_size": 2},
        {**PIPELINE, "virtual_pipeline": 17, "global_batch_size": 2},
        {},
    ),
    (
        "virtual_pipeline",
        {"virtual_pipeline": 2},
        {**PIPELINE, "virtual_pipeline": 2, "global_batch_size": 2},
        {},
    ),
    (
        "virtual_pipeline",
        {**PIPELINE, "virtual_pipeline": 2, "global_batch_size": 2},
        {"global_batch_size": 2},
        {"framework": "fsdp"},
    ),
    (
        "interleaved_micro_batches",
        {**PIPELINE, "virtual_pipeline": 2, "global_batch_size": 3},
        {**PIPELINE, "virtual_pipeline": 2, "global_batch_size": 4},
        {},
    ),
    (
        "interleaved_layers",
        {**PIPELINE, "virtual_pipeline": 5, "global_batch_size": 4},
        {**PIPELINE, "virtual_pipeline": 4, "global_batch_size": 4},
        {},
    ),
    # 61 layers: three fewer in the last of 16 chunks, whose loss is worth three; not in a seventh.
    (
        "interleaved_layers",
        {"num_gpus": 7, "pipeline_parallel": 7, "virtual_pipeline": 2, "global_batch_size": 7},
        {"num_gpus": 4, "pipeline_parallel": 4, "virtual_pipeline": 4, "global_batch_size": 4},
        {"model": "kimi-k2"},
    ),
    # 126 layers, and a chunk each for the embedding and the loss.
    (
        "num_hidden_layers",
        {"num_gpus": 16, "pipeline_parallel": 16, "virtual_pipeline": 9, "global_batch_size": 16},
        {"num_gpus": 16, "pipeline_parallel": 16, "virtual_pipeline": 8, "global_batch_size": 16},
        {"model": "llama-3.1-405b"},
    ),
    ("sequence_parallel", {"sequence_parallel": True}, {**TWO, "sequence_parallel": True}, {}),
    (
        "sequence_length",
        {**TWO, "sequence_parallel": True},
        {**TWO, "sequence_parallel": False},
        {"sequence_length": 2047},
    ),
    (
        "sequence_length",
        {"num_gpus": 2, "context_parallel": 2},
        {},
        {"sequence_length": 2046},
    ),
    (
        "context_parallel",
        {"num_gpus": 2, "context_parallel": 2, "flash_attention": False},
        {"num_gpus": 2, "context_parallel": 2},
        {},
    ),
    (
        "expert_parallel",
        {"num_gpus": 2, "expert_parallel": 2, "global_batch_size": 2},
        {"num_gpus": 2, "global_batch_size": 2},
        {},
    ),
    (
        "expert_parallel",
        {"expert_parallel": 2},
        {"num_gpus": 2, "expert_parallel": 2, "global_batch_size": 2},
        {"model": "mixtral-8x7b"},
    ),
    (
        "expert_parallel",
        {"num_gpus": 16, "expert_parallel": 16, "global_batch_size": 16},
        {"num_gpus": 16, "expert_parallel": 8, "global_batch_size": 16},
        {"model": "mixtral-8x7b"},
    ),
    (
        "expert_sequence_parallel",
        TWO,
        {**TWO, "sequence_parallel": True},
        {"model": "mixtral-8x7b"},
    ),
    (
        "zero_stage",
        {**TWO, "zero_stage": 3},
        {"zero_stage": 3},  # a lone GPU: DeepSpeed and FSDP run, and have what they gather there
        {"framework": "fsdp"},
    ),
    (
        "zero_stage",
        {**TWO, "zero_stage": 1},
        {"num_gpus": 2, "context_parallel": 2, "zero_stage": 1},
        {},
    ),
    (
        "data_parallel_replicas",
        {**FOUR, "zero_stage": 0, "data_parallel_replicas": 2},
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 2},
        {"framework": "fsdp"},
    ),
    # Nobody is left to shard with.
    (
        "data_parallel_replicas",
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 4},
        {**FOUR, "zero_stage": 3},
        {"framework": "fsdp"},
    ),
    (
        "data_parallel_replicas",
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 3},
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 2},
        {"framework": "fsdp"},
    ),
    # Two copies of every expert on four GPUs are on two of them each, four are on one.
    (
        "data_parallel_replicas",
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 2, "expert_parallel": 4},
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 2, "expert_parallel": 2},
        {"framework": "torchtitan", "model": "mixtral-8x7b"},
    ),
    (
        "recompute_num_layers",
        {"recompute_num_layers": 4},
        {"recompute": 2, "recompute_num_layers": 4},
        {},
    ),
    # All 16 layers of a stage are what 0 stands for.
    (
        "recompute_num_layers",
        {**PIPELINE, "recompute": 2, "recompute_num_layers": 16},
        {**PIPELINE, "recompute": 2, "recompute_num_layers": 15},
        {},
    ),
    (
        "fp8_attention",
        {"fp8_attention": True},
        {**FP8, "fp8_attention": True},
        {"gpu": "h100-sxm-80gb"},
    ),
    (
        "fp8_attention",
        {**FP8, "fp8_attention": True},
        FP8,
        {"gpu": "mi300x-192gb"},
    ),
    (
        "expert_tensor_parallel",
        {**EXPERTS, "expert_tensor_parallel": 3, "num_gpus": 6, "global_batch_size": 6},
        {**EXPERTS, "expert_tensor_parallel": 2, "num_gpus": 4, "global_batch_size": 4},
        MIXTRAL,
    ),
    ("expert_parallel", {**EXPERTS, "expert_tensor_parallel": 2}, EXPERTS, MIXTRAL),
    (
        "overlap_expert_parallel",
        {**EXPERTS, "overlap_expert_parallel": True, "recompute": 2},
        {**EXPERTS, "overlap_expert_parallel": True},
        MIXTRAL,
    ),
    (
        "overlap_expert_parallel",
        {**EXPERTS, "overlap_expert_parallel": True, "token_dispatcher": 1},
        {**EXPERTS, "overlap_expert_parallel": True, "token_dispatcher": 3},
        MIXTRAL,
    ),
    (
        "overlap_expert_parallel",
        {**STAGED, "overlap_expert_parallel": True},
        {**STAGED, "overlap_expert_parallel": True, "virtual_pipeline": 2},
        MIXTRAL,
    ),
    ("expert_routing", {"expert_imbalance": 1.5}, {}, {}),
    ("expert_routing", {"expert_capacity_factor": 2}, {}, {}),
    # Mixtral: two of eight experts for a token, so a rank of them has four times the mean at most.
    (
        "expert_routing",
        {**EXPERTS, "expert_imbalance": 5},
        {**EXPERTS, "expert_imbalance": 4},
        MIXTRAL,
    ),
    (
        "tp_comm_overlap",
        {**TWO, "tp_comm_overlap": True},
        {**TWO, "tp_comm_overlap": True, "sequence_parallel": True},
        {"framework": "megatron-lm"},
    ),
    (
        "cp_comm_type",
        {"num_gpus": 64, "context_parallel": 64, "global_batch_size": 1, "cp_comm_type": 1},
        {"num_gpus": 64, "context_parallel": 64, "global_batch_size": 1},
        {"framework": "megatron-lm"},
    ),
    (
        "pipeline_schedule",
        {**STAGES, "pipeline_schedule": 3, "global_batch_size": 6},
        {**STAGES, "pipeline_schedule": 3, "global_batch_size": 8},
        {"framework": "hai-llm"},
    ),
    (
        "framework",
        {**STAGES, "pipeline_schedule": 2, "global_batch_size": 8},
        {**STAGES, "global_batch_size": 8},
        {"framework": "megatron-lm"},
    ),
    # Heads of 256.
    (
        "fp8_attention",
        {**FP8, "fp8_attention": True},
        FP8,
        {"gpu": "h100-sxm-80gb", "model": "gemma-2-9b"},
    ),
    ("fp8_recipe", {"fp8_recipe": 3}, {**FP8, "fp8_recipe": 3}, {"gpu": "h100-sxm-80gb"}),
    # Hopper has no products that scale groups of 32.
    ("fp8_recipe", {**FP8, "fp8_recipe": 5}, {**FP8, "fp8_recipe": 4}, {"gpu": "h100-sxm-80gb"}),
    (
        "framework",
        {"recompute": 2, "recompute_num_layers": 4},
        {"recompute": 2},
        {"framework": "deepspeed"},
    ),
    (
        "framework",
        {**FP8, "fp8_attention": True},
        FP8,
        {"gpu": "h100-sxm-80gb", "framework": "torchtitan"},
    ),
    (
        "framework",
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 2},
        {**FOUR, "zero_stage": 3},
        {"framework": "deepspeed"},
    ),
    (
        "framework",
        {"zero_stage": 3, "num_gpus": 2, "global_batch_size": 2},
        {"zero_stage": 1, "num_gpus": 2, "global_batch_size": 2},
        {"framework": "megatron-lm-2022"},
    ),
    (
        "framework",
        {"num_gpus": 4, "pipeline_parallel": 2, "zero_stage": 2, "global_batch_size": 2},
        {"num_gpus": 4, "pipeline_parallel": 2, "zero_stage": 1, "global_batch_size": 2},
        {"framework": "megatron-deepspeed"},
    ),
    ("framework", TWO, {"num_gpus": 2, "global_batch_size": 2}, {"framework": "fsdp"}),
    # FSDP2 has copies of its shards; accelerate hands DeepSpeed, which has ZeRO-1, none.
    (
        "framework",
        {**FOUR, "zero_stage": 1, "data_parallel_replicas": 2},
        {**FOUR, "zero_stage": 3, "data_parallel_replicas": 2},
        {"framework": "hf-trainer"},
    ),
    # Ulysses goes with every stage, a ring with sharded gradients alone; it needs no halves.
    ("framework", SPLIT, {**SPLIT, "cp_comm_type": 1}, {"framework": "deepspeed"}),
    (
        "sequence_length",
        SPLIT,
        {**SPLIT, "cp_comm_type": 1},
        {"sequence_length": 2042, "framework": "megatron-lm"},
    ),
    (
        "framework",
        {**STAGES, "num_gpus": 8, "global_batch_size": 8, "zero_stage": 3},
        {**FOUR, "zero_stage": 3},
        {"framework": "megatron-deepspeed"},
    ),
    # ZeRO-1 shards no weights; one rank needs not.
    (
        "offload",
        {"num_gpus": 2, "zero_stage": 1, "global_batch_size": 2, "offload": 2},
        {"num_gpus": 2, "zero_stage": 3, "global_batch_size": 2, "offload": 2},
        {"framework": "deepspeed"},
    ),
    ("offload", {"offload": 2}, {"offload": 1}, {}),
    ("offload", {"offload": 1}, {"offload": 2}, {"framework": "fsdp"}),
    ("precision", FP8, {}, {}),
    ("precision", {}, {"precision": 1}, {"gpu": "v100-sxm-32gb"}),
    (
        "expert_shards",
        {"num_gpus": 4, "global_batch_size": 4, "expert_parallel": 4, "zero_stage": 0},
        {"num_gpus": 4, "global_batch_size": 4, "expert_parallel": 4, "zero_stage": 3},
        {"framework": "torchtitan", "model": "mixtral-8x7b"},
    ),
    (
        "num_hidden_layers",
        {"num_gpus": 3, "pipeline_parallel": 3},
        {"num_gpus": 4, "pipeline_parallel": 4},
        {"framework": "maxtext"},
    ),
]


@each(
    ("rule", "broken", "kept", "context"),
    [pytest.param(*case, id=f"{case[0]}-{number}") for number, case in enumerate(CASES)],
)
def test_rule_breaks_where_it_should_and_only_there(
    rule: str, broken: dict[str, Any], kept: dict[str, Any], context: dict[str, Any]
) -> None:
    assert _first(broken, context) == rule
    assert _first(kept, context) is None


def test_every_rule_has_a_case() -> None:
    assert {case[0] for case in CASES} == {rule.name for rule in RULES}


def test_h100_computes_in_8_bit() -> None:
    assert _first(FP8, {"gpu": "h100-sxm-80gb"}) is None


def test_first_broken_rule_is_the_reported_one() -> None:
    """Indivisible heads come before the precision that is lacking as well."""
    values = {"num_gpus": 3, "tensor_parallel": 3, **FP8}
    assert _first(values, {}) == "attention_heads"


def test_rules_have_distinct_names_and_say_why() -> None:
    names = [rule.name for rule in RULES]
    assert len(set(names)) == len(names)
    assert all(len(rule.description.split()) >= 4 for rule in RULES)
