"""Deployments that run as published, and some that engines refuse (`scripts/deployments.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from deployments import deployments, is_wrong, why_not

import planner
from planner.configurations.serving_rules import SERVING_RULES


def test_published_deployments_are_judged_as_their_engines_do() -> None:
    wrong = {row["deployment"]: why_not(row) for row in deployments() if is_wrong(row)}
    # 16 requests of 2,048 tokens want 4 GiB beside weights of 68; the engine lets some wait.
    # Marlin pads gpt-oss: its publisher's claim holds of the checkpoint, and here of 0.95 of 16 GB.
    padded = "gpt-oss-20b 1x16GB 4080"
    assert set(wrong) <= {"Llama-3.3-70B FP8 TP1 1xH100", padded}, wrong


def row_of(name: str) -> dict[str, str]:
    (row,) = (row for row in deployments() if row["deployment"].startswith(name))
    return row


def test_tensor_parallelism_over_nodes_is_a_fact_of_the_engine() -> None:
    row = row_of("DeepSeek-V3 FP8 TP16")
    assert why_not(row) == ""
    assert why_not({**row, "engine": "lmdeploy"}) == "fabric"


@pytest.mark.parametrize(("ranks", "rule"), [(72, ""), (320, ""), (480, "expert_parallel")])
def test_experts_that_ranks_do_not_divide_get_copies(ranks: int, rule: str) -> None:
    row = row_of("DeepSeek decode EP320")
    sizes = {"num_gpus": ranks, "attention_data_parallel": ranks, "expert_parallel": ranks}
    larger = {**row, **{name: str(size) for name, size in sizes.items()}, "concurrency": "480"}
    assert why_not(larger) == rule
    assert why_not({**larger, "engine": "lmdeploy"}) == "expert_parallel"


def test_block_scales_need_whole_blocks_of_widths() -> None:
    refused = row_of("Qwen3-235B FP8 TP8")
    assert why_not(refused) == "block_widths"
    assert why_not({**refused, "expert_parallel": "8"}) == ""
    assert why_not({**refused, "quantization": "fp8"}) == ""


def test_pools_of_vllm_have_no_pipelines() -> None:
    settings = {"tensor_parallel": 4, "prefill_tensor_parallel": 4, "replicas": 1,
                "prefill_replicas": 1, "quantization": "fp8", "concurrency": 4}  # fmt: skip

    def found(engine: str, stages: int) -> str:
        return planner.estimate(
            workload="serve", model="llama-3.1-70b", gpu="h100-sxm-80gb", engine=engine,
            mode="disaggregated",
            settings={**settings, "prefill_pipeline_parallel": stages},
        ).rejected_by  # fmt: skip

    assert found("vllm", 1) == ""
    assert found("vllm", 2) == "pipelines_of_pools"
    assert found("sglang", 2) == ""


def test_rules_have_names_of_their_own() -> None:
    names = [rule.name for rule in SERVING_RULES]
    assert len(np.unique(names)) == len(names)
