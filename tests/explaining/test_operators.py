"""Operators one by one: by hand, as whole estimates have them, and as they were measured."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
from rows import each

import planner
from planner.cli.completion import OPERATORS
from planner.decide.explain.operators import KINDS
from planner.decide.explain.step_breakdown import explain_steps
from planner.errors import SearchSpaceError, SpecError

# A100: 2.039 TB/s of memory, of which 78 % are reached after 2 us; 300 GB/s of NVLink.
_A100_MEMORY, _A100_LINK = 2.039e12, 300e9


def one(operator: str, **asked: Any) -> dict[str, Any]:
    """The only row of a question."""
    found = planner.operators(operator, **asked)
    assert len(found) == 1
    return {name: values[0] for name, values in found.columns.items()}


def test_a_normalization_moves_what_it_reads_and_writes():
    row = one("elementwise", gpu="a100", rows=2048, columns=8192)
    num_bytes = 2048 * 8192 * 2 * 2
    assert row["time_s"] == pytest.approx(2e-6 + num_bytes / (_A100_MEMORY * 0.78))
    assert row["bandwidth_gb_per_s"] == pytest.approx(num_bytes / row["time_s"] / 1e9)
    assert row["of_peak"] == pytest.approx(num_bytes / _A100_MEMORY / row["time_s"])
    assert row["bound"] == "memory"


def test_a_copy_within_a_gpu_reads_and_writes():
    row = one("device-copy", gpu="a100", num_bytes="1GB")
    assert row["time_s"] == pytest.approx(2e-6 + 2e9 / (_A100_MEMORY * 0.78))


def test_a_product_counts_two_flops_for_each_of_its_multiplications():
    row = one("gemm", gpu="a100", rows=4096, columns=4096, depth=11008)
    assert row["tflops"] == pytest.approx(2 * 4096 * 4096 * 11008 / row["time_s"] / 1e12)
    assert row["of_peak"] == pytest.approx(row["tflops"] / 312)


def test_causal_attention_counts_half_of_its_scores():
    row = one("attention", gpu="h100", sequences=2, sequence_length=4096, heads=32, head_dim=128)
    flops = 4 * 2 * 4096 * (4096 + 1) / 2 * 32 * 128
    assert row["tflops"] * row["time_s"] * 1e12 == pytest.approx(flops)


@pytest.mark.parametrize(
    ("operator", "factor"),
    [
        ("all-reduce", 2 * 15 / 16),
        ("all-gather", 15 / 16),
        ("reduce-scatter", 15 / 16),
        ("all-to-all", 15 / 16),
    ],
)
def test_bandwidths_of_collectives_are_those_of_nccl_tests(operator, factor):
    """https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md, 16 ranks."""
    row = one(operator, gpu="h100", num_gpus=16, num_bytes="1GiB")
    assert row["algorithm_bandwidth_gb_per_s"] == pytest.approx(2**30 / row["time_s"] / 1e9)
    ratio = row["bus_bandwidth_gb_per_s"] / row["algorithm_bandwidth_gb_per_s"]
    assert ratio == pytest.approx(factor)


def test_an_all_reduce_in_a_node_is_its_latency_and_what_it_moves():
    """64 MiB: 7.962 us + 7 x 1.872 us, and 117.4 MB with their ramp at 241.4 GB/s."""
    volume = 2 * 2**26 * 7 / 8
    reached = _A100_LINK * 0.8392 * 8 / (8 + 0.3429)
    moving = (volume + math.sqrt(volume * 5.758e6)) / reached
    row = one("all-reduce", gpu="a100", num_gpus=8, num_bytes="64MiB")
    assert row["time_s"] == pytest.approx(7.962e-6 + 7 * 1.872e-6 + moving)
    assert row["time_s"] == pytest.approx(615.3e-6, rel=1e-4)


def test_a_message_over_a_border_of_nodes_takes_the_network():
    found = planner.operators("send", gpu="a100", num_bytes="1GiB", distance=[1, 7, 8])
    assert found.columns["bound"] == ["link", "link", "network"]
    # 200 Gbit/s, of which the network reaches 94 %.
    assert found.columns["time_s"][2] == pytest.approx(2**30 / (25e9 * 0.94), rel=1e-3)


def test_a_group_of_one_rank_in_each_node_crosses_the_network():
    found = planner.operators("all-gather", gpu="a100", num_bytes="1GiB", num_gpus=2, stride=[1, 8])
    assert found.columns["bound"] == ["link", "network"]


def test_copies_to_host_and_drives_are_those_of_offloading():
    found = planner.operators(
        ["host-copy", "host-memory", "drive-copy"], cluster="a800-node", num_bytes="1GB"
    )
    assert found.columns["time_s"][2] == pytest.approx(1e9 / 1.6e9)
    assert set(found.columns["bound"]) == {"host"}
    assert "drives 1.6 GB/s per GPU" in found.assumed


@cache
def explained() -> dict[tuple[str, str], Any]:
    """Parts of a step of LLaMA-65B, as `planner explain` has them, by module and name."""
    settings = {"tp": 8, "pp": 8, "sp": True, "mbs": 1, "zero": 1}
    found = planner.estimate(
        model="llama-65b", num_gpus=2048, framework="megatron-lm", settings=settings
    )
    (step,) = explain_steps(found.plan, found)
    return {(part.part.module, part.part.name): part.part for part in step.parts}


# Tokens of a micro-batch 2,048; width 8,192, 64 heads and 22,016 inside, a share of 1/8 on a rank.
_PARTS = [
    ("feed_forward", "gate_up", "gemm", {"rows": 2048, "columns": 5504, "depth": 8192}),
    ("attention_output", "attention_output", "gemm",
     {"rows": 2048, "columns": 8192, "depth": 1024}),
    ("attention", "attention_core", "attention",
     {"sequence_length": 2048, "heads": 8, "framework": "megatron-lm"}),
    ("norm", "attention_norm", "elementwise",
     {"rows": 256, "columns": 8192, "framework": "megatron-lm"}),
    ("attention", "attention_tensor_parallel", "all-gather",
     {"num_gpus": 8, "num_bytes": 2048 * 8192 * 2}),
    ("attention", "attention_tensor_parallel", "reduce-scatter",
     {"num_gpus": 8, "num_bytes": 2048 * 8192 * 2}),
    ("", "pipeline_transfer", "send", {"num_bytes": 2048 * 8192 * 2 / 8, "distance": 256}),
]  # fmt: skip


@pytest.mark.parametrize(("module", "name", "operator", "asked"), _PARTS)
def test_an_operator_alone_takes_what_it_takes_in_a_step(module, name, operator, asked):
    own = [part for key, part in explained().items() if key[1] == name]
    assert own, sorted(explained())
    times = [done.once for part in own for done in part.done]
    row = one(operator, gpu="a100", **asked)
    assert any(time == pytest.approx(row["time_s"], rel=1e-12) for time in times), times


def test_experts_alone_take_what_they_take_in_a_step():
    settings = {"tp": 2, "pp": 16, "ep": 8, "mbs": 1, "sp": True, "zero": 1}
    found = planner.estimate(
        model="deepseek-v3",
        gpu="h800",
        num_gpus=2048,
        framework="megatron-bridge",
        settings={**settings, "recompute": "selective", "precision": "bf16"},
    )
    (step,) = explain_steps(found.plan, found)
    (experts,) = [part.part for part in step.parts if part.part.name == "experts"]
    (work,) = [done for done in experts.done if done.work.formula == "experts"]
    # 256 experts over 8 ranks; each has the width of 2,048 on a depth of 7,168.
    pairs = work.figure("flops") / (2 * 3 * 7168 * 2048)
    row = one(
        "grouped-gemm",
        gpu="h800",
        rows=round(pairs),
        columns=2048,
        depth=7168,
        local_experts=32,
    )
    assert row["time_s"] == pytest.approx(work.once, rel=1e-4)


# Products of 8,192 x 8,192 x 8,192 in fp16: github.com/mli/transformers-benchmarks @3370b2b.
# Bus bandwidth: github.com/stas00/ml-engineering @744d01e, network/benchmarks; messages of
# nccl-tests, in which each GPU sends and receives: github.com/li-plus/playground @b85070f,
# cuda/nccl.md.
_EIGHT = {"rows": 8192, "columns": 8192, "depth": 8192, "precision": "fp16"}
_MEASURED = [
    ("gemm", "a100-sxm-80gb", _EIGHT, "tflops", 230, 0.08),
    ("gemm", "rtx4090-24gb", _EIGHT, "tflops", 172, 0.10),
    ("gemm", "a6000-48gb", _EIGHT, "tflops", 95, 0.12),
    ("gemm", "v100-sxm-32gb", _EIGHT, "tflops", 95, 0.03),
    ("all-reduce", "h200-sxm-141gb", {"num_gpus": 8, "num_bytes": "8GiB"},
     "bus_bandwidth_gb_per_s", 473, 0.13),
    ("send", "a100-sxm-80gb", {"num_bytes": "1GiB"}, "bus_bandwidth_gb_per_s", 195.1, 0.30),
]  # fmt: skip


@pytest.mark.parametrize(("operator", "gpu", "asked", "column", "measured", "error"), _MEASURED)
def test_published_operators_are_met_within_the_errors_of_the_docs(
    operator, gpu, asked, column, measured, error
):
    assert one(operator, gpu=gpu, **asked)[column] == pytest.approx(measured, rel=error)


def test_every_combination_of_lists_is_a_row():
    found = planner.operators(
        "gemm", gpu=["a100", "h100"], rows=[1, 2, 3], columns=[64, 128], depth=64
    )
    assert len(found) == len(found.works) == 12
    assert found.to_frame().shape[0] == 12
    alone = one("gemm", gpu="h100", rows=2, columns=128, depth=64)
    assert found.to_frame().query("gpu == 'h100-sxm-80gb' and rows == 2 and columns == 128")[
        "time_s"
    ].tolist() == [alone["time_s"]]


def test_what_a_gpu_lacks_is_left_out_and_told():
    found = planner.operators(
        "gemm", gpu=["a100", "h100"], precision="fp8", rows=64, columns=64, depth=64
    )
    assert found.columns["gpu"] == ["h100-sxm-80gb"]
    assert any("a100-sxm-80gb has no products in fp8" in words for words in found.assumed)
    with pytest.raises(SearchSpaceError, match="no products in fp8"):
        planner.operators("gemm", gpu="a100", precision="fp8", rows=64, columns=64, depth=64)


@pytest.mark.parametrize(
    ("operator", "asked", "words"),
    [
        ("gemm", {"rows": 1}, "gemm needs columns, depth"),
        ("gem", {"rows": 1}, "Did you mean gemm"),
        ("gemm", {"rows": 1, "columns": 1, "depth": 1, "heads": 2}, "says nothing about gemm"),
        ("all-reduce", {"num_bytes": "1MB", "num_gpus": 1}, "two GPUs or more"),
        ("send", {"num_bytes": 0}, "more than 0"),
        ("attention", {"sequence_length": 8, "heads": 2, "key_value_heads": 4}, "at most heads"),
        ("attention", {"sequence_length": 8, "heads": 2, "attention_kernel": "eager"}, "several"),
        ("gemm", {"size": 1}, "Operators have no size"),
    ],
)
def test_what_is_missing_or_of_no_use_is_said(operator, asked, words):
    with pytest.raises(SearchSpaceError, match=words):
        planner.operators(operator, **asked)


def test_more_gpus_than_a_cluster_has_are_refused():
    with pytest.raises(SpecError, match="ends at"):
        planner.operators("all-reduce", cluster="rtx4090-pcie", num_gpus=64, num_bytes="1MB")


def test_the_words_that_a_shell_completes_are_the_kinds():
    assert (*KINDS,) == OPERATORS


@each(
    "gpu, rates",
    [
        ("a100", (24e9, 26e9)),  # arXiv:2203.04910: 25 of the 32 GB/s of PCIe 4.0 x16
        ("v100", (12e9, 13e9)),  # ZaidQureshi/bam issue 54: 12 of 16
        ("h100", (48e9, 56e9)),  # NVIDIA/nvbandwidth issue 24: 52.8 of 64
    ],
)
def test_a_copy_from_the_host_has_a_start_and_a_share_of_its_link(gpu, rates):
    found = planner.operators("host-copy", gpu=gpu, num_bytes=[4096, 2**30])
    small, large = found.columns["time_s"]
    assert 5e-6 < small < 10e-6  # ROCm/hip issue 3809: 6 us of rocm-bandwidth-test
    assert rates[0] < 2**30 / large < rates[1]
    assert [*found.columns["bound"]] == ["latency", "host"]


def test_copies_of_a_framework_reach_what_was_measured_of_it():
    own, of_framework = (
        planner.operators("host-copy", gpu="a100", num_bytes=2**30, **more).columns["time_s"][0]
        for more in ({}, {"framework": "deepspeed"})
    )
    assert own < of_framework < 1.1 * own
