"""Where kernels end: the greatest MFU of a GPU, and the intervals that end there."""

from __future__ import annotations

import pytest

import planner
from planner.optimize.result_columns import intervals
from planner.specs.catalogue import Catalogue
from planner.specs.gpu import is_assumed

TRAIN = {"model": "llama-7b", "sequence_length": 2048, "framework": "megatron-lm"}


def _row(**asked):
    found = planner.estimate(**{**TRAIN, **asked})
    (row,) = found.to_frame().to_dict("records")
    return row, found.plan.source_of(row).confidence(row["num_gpus"])


def test_no_mfu_is_beyond_what_products_and_attention_reach():
    """Llama 7B, 2,048 tokens, A100: products 0.7792 of the peak, attention 0.62.

    F = 6 x 6.607 + 12 x 32 x 4,096 x 2,048 / 1e9 = 39.64 + 3.22 GFLOP per token, half of the
    attention computed.
    """
    row, sure = _row(gpu="a100", num_gpus=8)
    gpu = Catalogue().load_gpu("a100").spec
    products, attention = gpu.efficiency.gemm, gpu.efficiency.attention
    e = products["bf16"].compute_fraction
    e_a = max(one.compute_fraction for one in attention.values())
    worked = (39.644 + 3.221) / (39.644 / e + 0.5 * 3.221 / e_a)
    assert sure.max_utilization == pytest.approx(worked, rel=1e-3)
    most = sure.max_utilization
    ends = intervals({**row, "model_flops_utilization": most / 1.02}, sure)
    assert ends["model_flops_utilization"][1] == pytest.approx(most)
    # Time and tokens end there, too.
    assert ends["step_time_s"][0] == pytest.approx(row["step_time_s"] / 1.02)
    assert ends["tokens_per_s"][1] == pytest.approx(row["tokens_per_s"] * 1.02)
    # A prediction of the user's own that is beyond it is its own end.
    ends = intervals({**row, "model_flops_utilization": 0.95}, sure)
    assert ends["model_flops_utilization"][1] == pytest.approx(0.95)


GPUS = Catalogue().names("gpus")


@pytest.mark.few(8)
@pytest.mark.parametrize("gpu", GPUS)
def test_the_interval_of_every_gpu_ends_where_its_kernels_do(gpu):
    loaded = Catalogue().load_gpu(gpu)
    precision = next(word for word in ("bf16", "fp16", "fp32") if word in loaded.spec.peak_flops)
    asked = {"gpu": gpu, "num_gpus": 1, "precision": precision, "framework": "hf-trainer"}
    row, sure = _row(**asked)
    assert row["model_flops_utilization_high"] <= max(
        sure.max_utilization, row["model_flops_utilization"] * (1 + 1e-12)
    )
    e = loaded.spec.efficiency.gemm["bf16"].compute_fraction
    if is_assumed(loaded.provenance, "gemm.bf16.compute_fraction"):
        assert sure.max_utilization > 1  # nothing published: causal attention alone tells more
    else:
        assert (
            e
            <= sure.max_utilization
            < 1.1 * max(one.compute_fraction for one in loaded.spec.efficiency.gemm.values())
        )
