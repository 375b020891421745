"""What DeepSpeed's file says of what lies on a GPU at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from documents import values_found
from round_trip import stated

import planner
from planner.launch.read.parsed_launch import JobResources
from planner.launch.read.read_launch import read_launch
from planner.launch.targets import target_of


def test_buckets_of_deepspeed_are_read_and_auto_is_of_the_hidden_size() -> None:
    told = {
        "zero_optimization.stage": 3,
        "zero_optimization.reduce_bucket_size": "auto",
        "zero_optimization.sub_group_size": "1e8",
        "zero_optimization.stage3_max_live_parameters": "2e9",
        "zero_optimization.stage3_max_reuse_distance": "1e8",
        "zero_optimization.stage3_prefetch_bucket_size": "2e7",
    }
    files = {"ds.json": values_found("deepspeed", told, "ds.json")}
    script = {
        "model_name_or_path": "meta-llama/Llama-3.1-8B",
        "per_device_train_batch_size": 1,
        "deepspeed": "ds.json",
    }
    found = values_found("deepspeed", script)
    world = JobResources(gpus_per_node=stated("--nproc-per-node", "8"))
    answers = target_of("deepspeed").read_settings(replace(found, files=files, resources=world))
    assert answers.values["reduce_bucket_size"] == 4096**2
    assert answers.values["sub_group_size"] == 100_000_000
    # What is needed again within 10^8 parameters stays, and 2 x 10^7 are fetched ahead.
    assert answers.values["stage3_max_live_parameters"] == 120_000_000


@pytest.mark.parametrize("kind", ["lora", "full"])
def test_buckets_do_not_refuse_an_adapter(tmp_path: Path, kind: str) -> None:
    """LLaMA-Factory's ds_z3_config.json states sub-groups and live parameters."""
    (tmp_path / "z3.json").write_text(
        '{"zero_optimization": {"stage": 3, "sub_group_size": 1e9, "reduce_bucket_size": "auto",'
        ' "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9}}'
    )
    (tmp_path / "lf.yaml").write_text(
        "model_name_or_path: Qwen/Qwen2.5-7B-Instruct\nstage: sft\nbf16: true\ncutoff_len: 2048\n"
        f"finetuning_type: {kind}\nper_device_train_batch_size: 1\ndeepspeed: z3.json\n"
    )
    found = dict(read_launch(tmp_path / "lf.yaml").values)
    assert found["zero_stage"] == 3
    assert ("sub_group_size" in found) == (kind == "full")
    answer = planner.estimate(
        base=planner.read_launch(tmp_path / "lf.yaml", gpu="a100-sxm-80gb", num_gpus=8)
    )
    assert not answer.rejected_by
