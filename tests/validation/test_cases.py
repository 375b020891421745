"""From a row to specs and layouts."""

from dataclasses import replace

import pytest
from rows import each
from sample_runs import MODEL, case, row, run_of

from planner.base.enums import (
    ComputePrecision,
    LinkKind,
    Recompute,
)
from planner.base.software_enums import (
    RecomputedModules,
)
from planner.confidence.profile_rules import framework_rule
from planner.validation.run_tables import MemoryKind
from planner.validation.spec_library import NotPredicted
from planner.validation.training.cases import memory_kind, predict_training_group, training_case


@each(
    ("framework", "profile", "nearest"),
    [
        ("Megatron-LM/Megatron-Core r0.8", "megatron-lm", False),
        ("NeMo/Megatron-Core [NVIDIA Release 24.04 MxNet]", "nemo", False),
        ("Megatron-Bridge/Megatron-Core", "megatron-bridge", False),
        ("Megatron-Bridge/Megatron-Core 25.11", "nemo", False),
        ("Megatron-Bridge/Megatron-Core 26.06", "megatron-bridge", False),
        ("megatron-deepspeed", "megatron-deepspeed", False),
        ("llm-foundry/Composer (PyTorch FSDP)", "fsdp", False),
        ("PyTorch FSDP (fms-fsdp) + torch.compile", "fsdp-compiled", True),
        ("torchtitan (PyTorch FSDP2)", "torchtitan", False),
        ("NeMo AutoModel (PyTorch FSDP2)", "nemo-automodel", False),
        ("xtuner (HF + DeepSpeed ZeRO-3)", "deepspeed", False),
        ("DeepSpeed ZeRO-3", "deepspeed", False),
        ("DeepSpeed ZeRO-3 2021", "deepspeed-2022", False),
        ("DeepSpeed ZeRO-3 2024", "deepspeed", False),
        ("HF Trainer + DeepSpeed ZeRO 2021", "deepspeed-2022", False),
        ("MaxText (JAX)", "maxtext", False),
        ("something new", "megatron-lm", True),
        ("", "megatron-lm", True),
    ],
)
def test_frameworks_find_their_profile(framework, profile, nearest):
    rule = framework_rule(framework)
    assert (rule.profile, rule.nearest) == (profile, nearest)


@pytest.mark.parametrize(
    ("changes", "modules"),
    [
        pytest.param({"framework": "Megatron-Bridge"}, 1, id="its recipes train the module"),
        pytest.param({"framework": "Megatron-LM"}, 0, id="others do not"),
        pytest.param({"framework": "Megatron-Bridge", "mtp_num_layers": "0"}, 0, id="zero"),
        pytest.param({"framework": "Megatron-LM", "mtp_num_layers": "2"}, 2, id="two"),
        pytest.param({"framework": "Megatron-Bridge", "workload": "lora"}, 0, id="adapters"),
    ],
)
def test_multi_token_prediction_is_that_of_the_run_or_of_the_recipes(library, changes, modules):
    shape = dict.fromkeys(MODEL, "")
    found = case(library, **{**shape, "model": "deepseek-v3", **changes})
    assert found.model.mtp_num_layers == modules
    assert found.model.num_hidden_layers == 61 + modules


def test_a_full_row_has_one_layout(library):
    found = case(library)
    (layout,) = found.layouts
    assert layout.data_parallel == 4
    assert (layout.precision, layout.recompute) == (ComputePrecision.BF16, Recompute.NONE)
    assert layout.sequence_parallel
    assert layout.flash_attention
    assert (found.scale, found.kind, found.gpu_class) == ("node", "dense", "ampere")


def test_the_model_is_made_of_the_columns(library):
    model = case(library).model
    assert (model.num_hidden_layers, model.hidden_size, model.vocab_size) == (8, 1024, 51200)
    assert model.layer_groups[0].attention.head_dim == 64
    assert not model.layer_groups[0].feed_forward.gated


def test_a_built_in_model_counts_where_nothing_contradicts_it(library):
    columns = dict.fromkeys(row(), "") | {"gated_mlp": "1", "intermediate_size": ""}
    named = {name: columns[name] for name in ("num_attention_heads", "vocab_size", "gated_mlp")}
    deepseek = case(
        library, model="DeepSeek-V3 671B", num_hidden_layers="61", hidden_size="7168",
        intermediate_size="18432", **(named | {"num_attention_heads": "128"}),
    )  # fmt: skip
    assert deepseek.model.name == "DeepSeek-V3"
    assert deepseek.kind == "moe"
    other = case(library, model="DeepSeek-V3")
    assert other.model.hidden_size == 1024


def test_reduced_models_keep_one_layer_of_each_kind(library):
    found = case(
        library, model="DeepSeek-V3 (reduced layers)", num_hidden_layers="4", hidden_size="7168",
        intermediate_size="18432", num_attention_heads="128", gated_mlp="1",
    )  # fmt: skip
    assert [group.num_hidden_layers for group in found.model.layer_groups] == [1, 3]


def test_unknown_heads_are_near_128_wide_and_divide(library):
    model = case(library, hidden_size="14400", num_attention_heads="", tensor_parallel="8").model
    attention = model.layer_groups[0].attention
    assert attention.num_attention_heads % 8 == 0
    assert 14400 % attention.num_attention_heads == 0
    assert abs(attention.head_dim - 128) < 16


@pytest.mark.parametrize(
    ("changes", "tried"),
    [
        pytest.param({}, {1, 2}, id="a recipe's 1, or Megatron's tensor parallelism of the rest"),
        pytest.param({"expert_tensor_parallel": "2"}, {2}, id="said"),
        pytest.param({"tensor_parallel": "1"}, {1}, id="nothing to split"),
        pytest.param({"framework": "torchtitan"}, {1}, id="the framework has none"),
    ],
)
def test_expert_tensor_parallelism_that_a_row_leaves_out_is_both(library, changes, tried):
    asked = {"model": "mixtral-8x7b", "num_gpus": "16", "tensor_parallel": "2"}
    asked |= {"pipeline_parallel": "1", "expert_parallel": "8", "data_parallel": ""}
    found = case(library, **{**dict.fromkeys(MODEL, ""), **asked, **changes})
    assert {layout.expert_tensor_parallel for layout in found.layouts} == tried


def test_what_is_not_said_is_several_layouts(library):
    found = case(library, recompute="", micro_batch_size="", sequence_parallel="")
    assert {layout.recompute for layout in found.layouts} == set(Recompute) - {
        Recompute.FEED_FORWARD
    }
    assert {layout.micro_batch_size for layout in found.layouts} == {1, 2, 4, 8, 16}
    assert {layout.sequence_parallel for layout in found.layouts} == {False, True}


def test_an_unknown_precision_may_be_8_bits_where_the_gpu_has_them(library):
    def precisions(**changes):
        return {layout.precision for layout in case(library, precision="", **changes).layouts}

    assert precisions() == {ComputePrecision.BF16}
    assert precisions(gpu="v100-sxm-32gb") == {ComputePrecision.FP16}
    both = {ComputePrecision.BF16, ComputePrecision.FP8}
    assert precisions(gpu="h100-sxm-80gb") == both
    assert precisions(gpu="h100-sxm-80gb", year="2022") == {ComputePrecision.BF16}


def test_stated_chunks_are_never_replaced(library):
    """Eight layers; two more chunks may hold the embedding and the loss, twelve there cannot be."""
    for given, reason in (("2", ""), ("3", "impossible layout: pipeline_parallel x virtual")):
        found = case(library, pipeline_parallel="4", virtual_pipeline=given)
        (layout,) = found.layouts
        assert layout.virtual_pipeline == int(given)
        (prediction,) = predict_training_group([found])
        assert prediction.reason.startswith(reason)
        assert bool(prediction.reason) is bool(reason)
    (layout,) = case(library, pipeline_parallel="2", virtual_pipeline="5").layouts
    assert layout.virtual_pipeline == 5


def test_unknown_parallel_sizes_take_what_fits(library):
    found = case(library, tensor_parallel="", pipeline_parallel="", data_parallel="2")
    sizes = {(layout.tensor_parallel, layout.pipeline_parallel) for layout in found.layouts}
    assert sizes == {(1, 4), (2, 2), (4, 1)}


def test_unknown_pipelines_may_be_no_power_of_two(library):
    open_sizes = {"pipeline_parallel": "", "tensor_parallel": "1", "num_gpus": "24"}
    found = case(library, num_hidden_layers="12", global_batch_size="96", **open_sizes)
    sizes = {layout.pipeline_parallel for layout in found.layouts}
    assert sizes == {1, 2, 3, 4, 6, 8, 12}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"scale_out_gbit_per_s": "3200"}, 50e9),
        ({"scale_out_gbit_per_s": "400", "scale_out_per_gpu": "1"}, 50e9),
    ],
)
def test_the_network_is_per_gpu_inside(library, changes, expected):
    found = case(library, gpus_per_node="8", **changes)
    assert found.cluster.scale_out.bandwidth == pytest.approx(expected)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 1),
        ({"scale_out_gbit_per_s": "1600"}, 1),
        ({"scale_out_gbit_per_s": "3200"}, 1),
        ({"scale_out_gbit_per_s": "800"}, 2),
        ({"scale_out_gbit_per_s": "100"}, 8),
        ({"scale_out_gbit_per_s": "800", "nics_per_node": "8"}, 1),
        ({"scale_out_gbit_per_s": "400", "nics_per_node": "4"}, 2),
    ],
)
def test_gpus_share_the_network_interfaces_there_are(library, changes, expected):
    found = case(library, gpus_per_node="8", **changes)
    assert found.cluster.scale_out.gpus_per_nic == expected


def test_the_fabric_follows_the_row(library):
    found = case(library, gpus_per_node="4", scale_up_link="pcie")
    assert found.cluster.scale_up.kind is LinkKind.PCIE
    assert found.cluster.scale_up.domain_size == 4
    rack = case(library, gpu="gb200-nvl72", gpus_per_node="4")
    assert (rack.cluster.gpus_per_node, rack.cluster.scale_up.domain_size) == (4, 72)


UNNAMED = dict.fromkeys(MODEL, "")


@each(
    ("changes", "reason"),
    [
        ({"workload": "prompt_tuning"}, "workload prompt_tuning is not modelled yet"),
        ({"gpu": "abacus"}, "unknown GPU abacus"),
        ({"model": "T5-11B"}, "encoder-decoder"),
        ({"offload": "tape"}, "offload of tape"),
        ({"precision": "int8"}, "training in int8"),
        ({"precision": "nvfp4"}, "lacks fp4"),
        ({"precision": "fp8"}, "lacks fp8"),
        ({"num_gpus": ""}, "number of GPUs"),
        ({"sequence_length": ""}, "sequence length"),
        ({"hidden_size": ""}, "unknown architecture"),
        ({"num_key_value_heads": "7"}, "impossible architecture"),
        ({"num_gpus": "7"}, "no layout"),
        ({"global_batch_size": "4"}, "no layout"),
        ({"recompute": "some"}, "recompute 'some'"),
        ({"model": "RetNet linear 7B"}, "linear or compressed attention is not modelled yet"),
        (
            {"model": "Jamba 1.5 Mini"},
            "state-space layers together with others are modelled only in Nemotron",
        ),
    ],
)
def test_what_cannot_be_predicted_says_why(library, changes, reason):
    with pytest.raises(NotPredicted, match=reason):
        case(library, **changes)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"memory_kind": "reserved"}, MemoryKind.RESERVED),
        ({"memory_kind": "allocated"}, MemoryKind.ALLOCATED),
        ({"framework": "torchtitan"}, MemoryKind.ALLOCATED),
        ({}, MemoryKind.DEVICE),
    ],
)
def test_kinds_of_memory(changes, kind):
    assert memory_kind(run_of(**changes)) is kind


def test_adapters_take_the_profile_and_the_rank_of_their_run(library):
    plain = run_of(framework="HF Trainer", tensor_parallel="1", sequence_parallel="0")
    tuned = {**plain.cells, "workload": "qlora", "precision": "nf4", "lora_rank": "64"}
    case = training_case(replace(plain, cells=tuned), library)
    workload = case.inputs.workload
    assert training_case(plain, library).framework.name == "HF Trainer bf16"
    assert case.framework.name == "HF Trainer"
    assert (workload.adapter, workload.lora_rank) == ("qlora", 64)
    assert {layout.precision for layout in case.layouts} == {ComputePrecision.BF16}


@pytest.mark.parametrize(
    ("framework", "profile"),
    [
        ("hf-peft-deepspeed", "hf-trainer"),
        ("HF Trainer/TRL (fms-hf-tuning)", "hf-trainer"),
        ("HF Trainer + Unsloth", "unsloth"),
        ("fms-hf-tuning+none", "hf-trainer"),
        ("fms-hf-tuning+accelerated-peft-bnb-foak", "hf-trainer-triton"),
        ("fms-hf-tuning+foak-fast-kernels-liger", "hf-trainer-triton"),
        ("PyTorch FSDP + bitsandbytes (fsdp_qlora)", "hf-trainer"),
        ("torchtune", "fsdp-bf16"),
        ("NeMo/Megatron-Core", "nemo"),
    ],
)
def test_profiles_of_adapters(library, framework, profile):
    assert lora_case(library, framework).rule.profile == profile


@pytest.mark.parametrize(
    ("loss", "profile", "word"),
    [
        ("", "hf-trainer", "eager"),
        ("fused", "hf-trainer-triton", "fused"),
        ("chunked", "hf-trainer-triton", "linear"),
    ],
)
def test_a_fused_loss_comes_with_fused_kernels(library, loss, profile, word):
    found = lora_case(library, "HF Trainer/TRL", loss=loss)
    assert found.rule.profile == profile
    assert {layout.loss_kernel.word for layout in found.layouts} == {word}


@pytest.mark.parametrize(
    ("framework", "model", "targets", "of_experts"),
    [
        ("Megatron-LM", "qwen3-30b-a3b", "all_linear", "each"),  # ms-swift's Megatron-SWIFT
        ("Megatron-LM", "llama-3.1-8b", "all_linear", "none"),
        ("HF Trainer", "qwen3-30b-a3b", "attention", "none"),
    ],
)
def test_experts_have_the_adapters_of_their_framework(
    library, framework, model, targets, of_experts
):
    spec = library.catalogue.load_model(model)
    workload = replace(lora_case(library, framework), model=spec).inputs.workload
    assert (workload.lora_targets, workload.expert_adapters) == (targets, of_experts)


def lora_case(library, framework, **changes):
    plain = run_of(framework=framework, tensor_parallel="1", sequence_parallel="0", **changes)
    return training_case(replace(plain, cells={**plain.cells, "workload": "lora"}), library)


def test_activation_inputs_in_8_bits_are_of_fine_tuning(library):
    def inputs(**changes):
        eight_bits = {"framework": "NeMo", "gpu": "b200-sxm-180gb", "precision": "fp8"}
        return case(library, **eight_bits, **changes).framework.memory.fp8_activation_inputs

    assert inputs(workload="lora", fp8_activation_inputs="1")
    assert not inputs(workload="lora")
    assert not inputs(workload="pretrain", fp8_activation_inputs="1")


def test_host_memory_is_shared_by_the_gpus_of_a_node(library):
    assert case(library, host_memory_gb="64").cluster.host_memory_per_gpu == 8e9
    assert case(library, host_memory_gb="64", gpus_per_node="4").cluster.host_memory_per_gpu == 16e9


UNKNOWN = dict.fromkeys(("tensor_parallel", "pipeline_parallel", "micro_batch_size"), "")


def test_gpus_of_a_sequence_say_which_layouts_are_possible(library):
    found = case(library, **UNKNOWN, gpu="b200-sxm-180gb", gpus_per_sequence="2").layouts
    splits = {
        (layout.tensor_parallel * layout.pipeline_parallel * layout.context_parallel)
        / layout.micro_batch_size
        for layout in found
    }
    assert len(found) > 3
    assert splits == {2.0}
    assert {layout.context_parallel for layout in found} > {1}
    (layout,) = case(library, micro_batch_size="4", gpus_per_sequence="2").layouts
    assert layout.context_parallel == 4
    with pytest.raises(NotPredicted, match="no layout"):
        case(library, micro_batch_size="4", gpus_per_sequence="2", context_parallel="2")


def test_two_precisions_are_both_possible(library):
    found = case(library, precision="fp8/nvfp4", gpu="b200-sxm-180gb").layouts
    assert {layout.precision for layout in found} == {ComputePrecision.FP8, ComputePrecision.FP4}


def test_a_likely_precision_counts_where_none_is_stated(library):
    likely = {"likely_precision": "fp8", "gpu": "h100-sxm-80gb"}
    for stated, expected in (("", ComputePrecision.FP8), ("bf16", ComputePrecision.BF16)):
        (layout,) = case(library, precision=stated, **likely).layouts
        assert layout.precision is expected


def test_attention_in_8_bit_is_said_by_the_row(library):
    fp8 = {"gpu": "b200-sxm-180gb", "precision": "fp8"}
    assert [one.fp8_attention for one in case(library, **fp8, fp8_attention="1").layouts] == [True]
    assert [one.fp8_attention for one in case(library, **fp8).layouts] == [False]


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        pytest.param({"data_parallel_replicas": "4"}, 4, id="the column"),
        pytest.param({"data_parallel_replicas": "4", "zero_stage": "0"}, 1, id="nothing sharded"),
        pytest.param({}, 1, id="nobody says"),
    ],
)
def test_copies_of_sharded_states(library, changes, replicas):
    (layout,) = case(library, num_gpus="32", **changes).layouts
    assert layout.data_parallel_replicas == replicas


def test_recomputed_layers(library):
    full = {"recompute": "full", "recompute_num_layers": "4"}
    (layout,) = case(library, **full).layouts
    assert (layout.recompute, layout.recompute_num_layers) == (Recompute.FULL, 4)
    (layout,) = case(library, **(full | {"recompute": "feed_forward"})).layouts
    assert (layout.recompute, layout.recompute_num_layers) == (Recompute.FEED_FORWARD, 0)


def test_recomputed_modules(library):
    (layout,) = case(library, recompute="layernorm+core_attn").layouts
    assert layout.recompute == Recompute.SELECTIVE
    assert layout.recompute_modules == RecomputedModules["CORE_ATTN+LAYERNORM"]


def test_prose_is_not_read(library):
    told = "TP=8 PP=4 GBS=8; w/o MTP; reserved memory; 4x100Gb; DeepEP; liger fused; 64 GB DRAM"
    assert case(library, notes=told) == case(library)


def test_runs_that_multiply_in_32_bits_are_predicted_as_such(library):
    """QLoRA without a compute type: bitsandbytes multiplies in fp32 (universal-llm-trainer)."""
    assert {layout.precision for layout in case(library, precision="fp32").layouts} == {
        ComputePrecision.FP32
    }
