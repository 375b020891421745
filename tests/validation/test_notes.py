"""What the notes of a run tell, where its columns leave it open."""

from __future__ import annotations

import pytest
from sample_runs import MODEL, case

from planner.enums import ComputePrecision, Recompute
from planner.validation.models import NotPredicted


@pytest.mark.parametrize(
    ("notes", "length"),
    [
        ("Alpaca-2k, max seq length 512, 4 epochs", 512),
        ("longest example 1044 tokens, mean not stated", 1044),
    ],
)
def test_longest_sequence_is_read_from_the_notes(library, notes, length):
    unknown = dict.fromkeys(MODEL, "") | {"model": "llama-2-7b", "sequence_length": ""}
    assert case(library, **unknown, notes=notes).sequence_length == length


def test_layout_is_read_from_the_notes(library):
    unknown = dict.fromkeys(("tensor_parallel", "pipeline_parallel", "global_batch_size"), "")
    notes = "BF16; LoRA; TP=2 PP=4 CP=1 VP=2 GBS=32; source 9741 tokens/s/GPU"
    (layout, *others) = case(library, **unknown, precision="", notes=notes).layouts
    sizes = (layout.tensor_parallel, layout.pipeline_parallel, layout.virtual_pipeline)
    assert sizes == (2, 4, 2)
    assert layout.global_batch_size == 32
    assert layout.precision is ComputePrecision.BF16
    assert not others


def test_what_a_column_says_outweighs_the_notes(library):
    (layout,) = case(library, notes="TP=8 PP=1 GBS=8; batch 1 x grad-accum 8").layouts
    assert (layout.tensor_parallel, layout.global_batch_size) == (2, 64)


def test_accumulated_batch_is_read_from_the_notes(library):
    notes = "1.0 s/iter, batch 1 x grad-accum 8"
    changes = {"tensor_parallel": "1", "sequence_parallel": "0", "global_batch_size": ""}
    (layout,) = case(library, **changes, notes=notes).layouts
    assert layout.global_batch_size == 8 * 2 * 8


def test_a_command_quoted_beside_a_table_tells_no_batch(library):
    notes = "batch total not clear for this table (quoted command uses grad-accum 8), left empty"
    changes = {"tensor_parallel": "1", "sequence_parallel": "0", "global_batch_size": ""}
    (layout,) = case(library, **changes, notes=notes).layouts
    assert layout.global_batch_size == 2 * 8


@pytest.mark.parametrize(
    ("notes", "layers"),
    [
        ("full-layer recompute of 10/32 layers; seq 4096", 10),
        ("num-ckpt-layers=4", 4),
        ("num-ckpt-layers=0", 0),
    ],
)
def test_recomputed_layers_are_read_from_the_notes(library, notes, layers):
    kinds = {
        (layout.recompute, layout.recompute_num_layers)
        for layout in case(library, recompute="", notes=notes).layouts
    }
    assert kinds == {(Recompute.FULL, layers)} if layers else (Recompute.FULL, 0) in kinds


def test_gpus_of_a_sequence_say_which_layouts_are_possible(library):
    unknown = dict.fromkeys(("tensor_parallel", "pipeline_parallel", "micro_batch_size"), "")
    found = case(library, **unknown, gpu="b200-sxm-180gb", notes="tp*pp*cp/micro_batch = 2").layouts
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


def test_two_shipped_precisions_are_both_possible(library):
    def precisions(**changes):
        layouts = case(library, precision="", gpu="b200-sxm-180gb", **changes).layouts
        return {layout.precision for layout in layouts}

    both = {ComputePrecision.FP8, ComputePrecision.FP4}
    assert precisions(notes="container ships both fp8 and nvfp4 recipes") == both
    assert precisions(notes="nvfp4 recipe") == {ComputePrecision.FP4}


def test_attention_in_8_bit_is_read_from_the_notes(library):
    def attention(**changes):
        fp8 = {"gpu": "b200-sxm-180gb", "precision": "fp8"}
        return {layout.fp8_attention for layout in case(library, **fp8, **changes).layouts}

    assert attention(notes="fp8 attention flag 1") == {True}
    assert attention(notes="fp8 attention flag 0") == {False}
    assert attention(notes="fp8 attention flag 1", fp8_attention="0") == {False}
    assert attention() == {False}


@pytest.mark.parametrize(
    ("changes", "replicas"),
    [
        pytest.param({"data_parallel_replicas": "4"}, 4, id="the column"),
        pytest.param({"notes": "zero1=4 (optimizer sharded inside groups)"}, 4, id="4 of 16 ranks"),
        pytest.param({"notes": "zero1=-1 (optimizer sharded over all DP ranks)"}, 1, id="all"),
        pytest.param({"notes": "sharding: data=-1, fsdp=8 (HSDP)"}, 2, id="8 of 16 ranks"),
        pytest.param(
            {"notes": "HSDP (ZeRO-3 inside a node, replicated across nodes)", "zero_stage": "3"},
            4,
            id="4 pairs of 2 in a node of 8",
        ),
        pytest.param(
            {"data_parallel_replicas": "2", "notes": "zero1=4 (groups)"}, 2, id="column first"
        ),
        pytest.param({"data_parallel_replicas": "4", "zero_stage": "0"}, 1, id="nothing sharded"),
        pytest.param({}, 1, id="nobody says"),
    ],
)
def test_copies_of_sharded_states(library, changes, replicas):
    (layout,) = case(library, num_gpus="32", **changes).layouts
    assert layout.data_parallel_replicas == replicas


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ("DeepEP; recompute modules layernorm+moe, forced balance", Recompute.FEED_FORWARD),
        ("recompute layernorm + the whole MoE block; 94 layers", Recompute.FEED_FORWARD),
        ("recompute modules moe_act+layernorm; forced MoE balancing", Recompute.SELECTIVE),
        ("recompute modules mlp+moe_act", Recompute.SELECTIVE),
    ],
)
def test_recomputed_experts_are_read_from_the_notes(library, notes, expected):
    (layout,) = case(library, recompute="selective", notes=notes).layouts
    assert layout.recompute is expected


@pytest.mark.parametrize(
    ("changes", "deduplicated"),
    [
        ({}, False),
        ({"notes": "DeepEP dispatcher; recompute norm+act"}, True),
        ({"framework": "NeMo"}, True),
        ({"framework": "NeMo", "notes": "NCCL A2A dispatcher"}, False),
        ({"token_dispatcher": "alltoall", "notes": "as fast as with DeepEP"}, False),
        ({"token_dispatcher": "HybridEP"}, True),
    ],
)
def test_the_exchange_of_tokens_is_what_the_run_names(library, changes, deduplicated):
    found = case(library, **changes)
    assert found.framework.execution.deduplicated_dispatch == deduplicated
