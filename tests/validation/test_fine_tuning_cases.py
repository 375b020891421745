"""From a row of fine-tuning to what is trained, how samples fill it, and how it is spread."""

import pytest
from sample_runs import MODEL, case

from planner.validation.spec_library import NotPredicted

ALONE = {"num_gpus": "1", "zero_stage": "", "tensor_parallel": "1", "data_parallel": ""}


@pytest.mark.parametrize(
    ("framework", "length"), [("fms-hf-tuning+none", 4096), ("LitGPT", 1024), ("torchtune", 1024)]
)
def test_fine_tuning_without_a_length_takes_the_usual_one(library, framework, length):
    model = {**dict.fromkeys(MODEL, ""), "model": "llama-2-7b"}
    named = {"framework": framework, "workload": "lora", "sequence_length": ""}
    changes = {**ALONE, **model, **named}
    assert case(library, **changes).sequence_length == length
    with pytest.raises(NotPredicted, match="sequence length is not specified"):
        case(library, **{**changes, "workload": "pretrain"})


def test_what_is_trained_beside_adapters_is_read(library):
    changes = {**ALONE, "framework": "HF Trainer/PEFT", "workload": "qlora"}
    found = case(library, **changes, modules_to_save="embeddings", double_quantization="0")
    work = found.inputs.workload
    assert work.saves_ends
    assert not work.double_quantization
    assert case(library, **changes).inputs.workload.double_quantization
    with pytest.raises(NotPredicted, match="modules_to_save of head"):
        case(library, **changes, modules_to_save="head")


def test_samples_that_do_not_fill_sequences_are_read(library):
    changes = {**ALONE, "framework": "TRL", "workload": "lora", "mean_sample_length": "500"}
    work = case(library, **changes, padding="longest").inputs.workload
    assert (work.padding, work.mean_sample_length) == ("longest", 500)
    assert work.sample_length_deviation == 400
    assert case(library, **changes).inputs.workload.padding == "packed"


@pytest.mark.parametrize(
    ("changes", "profile"),
    [
        pytest.param({}, "HF Trainer bf16", id="nothing is sharded"),
        pytest.param({"zero_stage": "2"}, "DeepSpeed", id="a stage is given"),
        pytest.param({"offload": "optimizer"}, "DeepSpeed", id="something is offloaded"),
        pytest.param({"num_gpus": "2"}, "DeepSpeed", id="several GPUs"),
    ],
)
def test_deepspeed_that_does_nothing_is_trainer(library, changes, profile):
    named = {"framework": "hf-peft-deepspeed", "workload": "full_finetune"}
    found = case(library, **{**ALONE, **named, **changes})
    assert found.framework.name == profile


@pytest.mark.parametrize(
    ("changes", "spread"),
    [
        pytest.param({}, {True, False}, id="nothing is said"),
        pytest.param({"layer_split": "1"}, {True}, id="it is said"),
        pytest.param({"layer_split": "0"}, {False}, id="it is denied"),
        pytest.param({"zero_stage": "0"}, {False}, id="states are copied"),
        pytest.param({"framework": "HF Trainer + FSDP"}, {False}, id="something shards"),
        pytest.param({"gpu": "rtx4090-24gb"}, {True}, id="no room for a copy"),
    ],
)
def test_layers_are_spread_where_nothing_shards(library, changes, spread):
    named = {"framework": "ms-swift", "workload": "lora", "num_gpus": "2", "year": "2024"}
    model = {**dict.fromkeys(MODEL, ""), "model": "llama-2-13b", "gpu": "a100-sxm-80gb"}
    found = case(library, **{**ALONE, **named, **model, **changes})
    assert {layout.layer_split for layout in found.layouts} == spread
    assert all(layout.pipeline_parallel == 2 for layout in found.layouts if layout.layer_split)
