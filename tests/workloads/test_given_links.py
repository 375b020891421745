"""Shares of the links' bandwidth and GPUs of a node that users give."""

from __future__ import annotations

from typing import Any

import pytest

import planner
from planner.errors import SearchSpaceError
from planner.optimize.source import first_row

# cli99/llm-analysis at d841e40, get_latency_fwd_per_tp_comm: an all-reduce among t GPUs takes
# 2 b s h (t - 1) / t numbers over the bandwidth times its efficiency; two a layer, and as many
# backward.
H, LAYERS, LENGTH, T, BANDWIDTH = 5120, 40, 2048, 8, 300e9


def row(**asked: Any) -> Any:
    told: dict[str, Any] = {
        "workload": "train", "model": "llama-13b", "gpu": "a100-sxm-80gb", "num_gpus": 8,
        "framework": "megatron-lm", "sequence_length": LENGTH, "global_batch_size": 1,
        "settings": {"tensor_parallel": T, "recompute": "none"}, "ideal": True,
    }  # fmt: skip
    return first_row(planner.estimate(**{**told, **asked}).table())


@pytest.mark.parametrize(
    ("given", "efficiency"), [(None, 1), (0.5, 0.5), ("150 GB/s", 0.5), (0.8, 0.8)]
)
def test_tensor_parallel_time_is_that_of_llm_analysis(given: Any, efficiency: float) -> None:
    once = 2 * LENGTH * H * (T - 1) / T * 2 / (BANDWIDTH * efficiency)
    found = row(intra_node_efficiency=given)
    ends = 2 * once  # embedding and logits have one each
    assert found["time_tensor_parallel_s"] == pytest.approx(4 * LAYERS * once + ends)


def test_the_network_between_nodes_reaches_what_is_given() -> None:
    """Two copies: fp32 gradients are scattered and 16-bit weights gathered by half of each.

    What the backward pass hides is the same, so what shows is longer by the whole exchange.
    """
    wide = {"num_gpus": 16, "global_batch_size": 2}
    whole, half = (row(**wide, inter_node_efficiency=share) for share in (1.0, 0.5))
    times = [found["time_data_parallel_s"] for found in (whole, half)]
    exchanged = 13.0159e9 / T * (4 + 2) / 2
    assert times[1] - times[0] == pytest.approx(exchanged / 25e9, rel=1e-3)


def test_a_node_has_as_many_gpus_as_given() -> None:
    nodes = {"intra_node_efficiency": 1.0, "inter_node_efficiency": 1.0}
    eight, four = (row(**nodes, gpus_per_node=number) for number in (8, 4))
    assert four["time_tensor_parallel_s"] > 2 * eight["time_tensor_parallel_s"]
    assert eight["time_tensor_parallel_s"] == row()["time_tensor_parallel_s"]


@pytest.mark.parametrize("share", [0.0, 1.5, "400 GB/s", "5 apples"])
def test_what_is_no_share_of_a_link_is_refused(share: Any) -> None:
    with pytest.raises(SearchSpaceError, match="intra_node_efficiency"):
        row(intra_node_efficiency=share)
