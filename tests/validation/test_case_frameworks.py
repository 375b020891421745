"""What a run says of its framework: its release, graphs, and exchange of tokens."""

import pytest
from sample_runs import case, run_of

from planner.base.software_enums import AttentionKernel
from planner.validation.training.cases import training_case

FP8 = {"gpu": "h100-sxm-80gb", "precision": "fp8"}


@pytest.mark.parametrize(
    ("changes", "profile"),
    [
        ({"framework_version": "26.04"}, "NeMo"),
        ({"framework_version": "26.06"}, "Megatron-Bridge"),
        ({"framework_version": "26.06", "cuda_graphs": "layers"}, "NeMo"),
        ({"framework": "Megatron-LM", "year": "2021"}, "Megatron-LM 2022"),
        ({"framework": "Megatron-LM", "year": "2024"}, "Megatron-LM"),
        ({"framework": "Megatron-LM", "year": "2024", "tp_comm_overlap": "1"}, "NeMo"),
        ({"framework": "Megatron-LM", "year": "2024", **FP8}, "NeMo"),
        ({"framework": "Megatron-LM", "year": "2023", **FP8}, "Megatron-LM"),
        ({"framework_version": "25.09"}, "NeMo"),
    ],
)
def test_a_release_has_its_own_profile(library, changes, profile):
    found = case(library, **{"framework": "Megatron-Bridge"} | changes)
    assert found.inputs.framework.name == profile


@pytest.mark.parametrize(
    ("graphs", "waits"), [("", True), ("layers", True), ("full", False), ("sync_free", False)]
)
def test_experts_wait_for_the_host_unless_a_run_says_otherwise(library, graphs, waits):
    found = case(library, framework="Megatron-LM", year="2025", cuda_graphs=graphs)
    assert (found.framework.execution.expert_host_wait > 0) == waits


@pytest.mark.parametrize(
    ("changes", "deduplicated"),
    [
        ({}, False),
        ({"framework": "NeMo"}, True),
        ({"framework": "NeMo", "token_dispatcher": "nccl a2a"}, False),
        ({"token_dispatcher": "alltoall"}, False),
        ({"token_dispatcher": "HybridEP"}, True),
    ],
)
def test_the_exchange_of_tokens_is_what_the_run_names(library, changes, deduplicated):
    found = case(library, **changes)
    assert found.framework.execution.deduplicated_dispatch == deduplicated


@pytest.mark.parametrize(
    ("version", "gpu", "profile"),
    [
        ("26.04", "gb200-nvl72", "NeMo"),
        ("26.06", "gb200-nvl72", "Megatron-Bridge"),
        ("26.06", "h100-sxm-80gb", "NeMo"),
    ],
)
def test_one_graph_of_the_iteration_is_there_from_26_06_on_and_never_on_hopper(
    library, version, gpu, profile
):
    """No recipe of Megatron-Bridge for H100 has cuda_graph_impl full_iteration."""
    found = case(library, framework="Megatron-Bridge", framework_version=version, gpu=gpu)
    assert found.framework.name == profile


@pytest.mark.parametrize(
    ("changes", "ranks"),
    [
        ({"token_dispatcher": "alltoall"}, {1}),
        ({"token_dispatcher": "deepep"}, {2, 4, 8}),
        ({"token_dispatcher": "deepep", "pipeline_parallel": "2"}, {2, 4}),
        ({"token_dispatcher": "deepep", "expert_parallel": "4"}, {4}),
    ],
)
def test_an_exchange_of_tokens_that_is_named_has_several_ranks(library, changes, ranks):
    sizes = {"tensor_parallel": "1", "sequence_parallel": "0", "gated_mlp": "1"}
    experts = {"num_experts": "8", "num_experts_per_tok": "2", "moe_intermediate_size": "1024"}
    found = case(library, **(sizes | experts | changes))
    assert {layout.expert_parallel for layout in found.layouts} == ranks


def test_experts_of_transformers_are_a_loop_in_runs_up_to_2025(library):
    def ways(year, **shape):
        run = run_of(framework="HF Trainer/TRL", year=year, tensor_parallel="1", **shape)
        return {layout.expert_compute.word for layout in training_case(run, library).layouts}

    experts = {"num_experts": "8", "num_experts_per_tok": "2", "moe_intermediate_size": "512"}
    assert ways("2025", **experts) == {"loop"}
    assert ways("2026", **experts) == ways("2025") == {"auto"}


@pytest.mark.parametrize(
    ("workload", "bytes_per_logit"), [("full_finetune", 8), ("lora", 8), ("qlora", 16)]
)
def test_a_program_without_a_compute_type_has_wide_logits_beside_quantized_weights(
    library, workload, bytes_per_logit
):
    """universal-llm-trainer: PEFT casts all that is not quantized to fp32, and nothing casts back.

    Its loss is one kernel of the logits as they are, under masks of padded samples.
    """
    asked = {"framework": "HF Transformers + PEFT (universal-llm-trainer)", "workload": workload}
    found = case(library, model="llama-3.1-8b", year="2025", lora_rank="8", **asked)
    assert found.framework.memory.per_logit == bytes_per_logit
    assert found.layouts[0].attention_kernel == AttentionKernel.MASKED
