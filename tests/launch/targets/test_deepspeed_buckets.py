"""What DeepSpeed's file says of what lies on a GPU at once."""

from __future__ import annotations

from dataclasses import replace

from documents import values_found
from round_trip import stated

from planner.launch.targets import target_of
from planner.launch.understood import World


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
    world = World(gpus_per_node=stated("--nproc-per-node", "8"))
    answers = target_of("deepspeed").read(replace(found, files=files, world=world))
    assert answers.values["reduce_bucket_size"] == 4096**2
    assert answers.values["sub_group_size"] == 100_000_000
    # What is needed again within 10^8 parameters stays, and 2 x 10^7 are fetched ahead.
    assert answers.values["stage3_max_live_parameters"] == 120_000_000
