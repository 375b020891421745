"""What a plan of the worked tables is asked, and the job of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.launch.target import LaunchJob
from planner.question.request import Request
from planner.workloads.make_plan import evaluate, make_single_plan

SPECS = Path(__file__).parent / "specs"
QUESTIONS = (
    *("sequence_length", "total_tokens", "dropout", "mtp_num_layers", "adapter", "lora_rank"),
    *("lora_targets", "modules_to_save", "double_quantization", "padding", "mean_sample_length"),
    *("mode", "draft_tokens", "acceptance_rate", "draft_model", "max_num_seqs", "enforce_eager"),
    *("redundant_experts", "prefix_cache_hit_rate", "request_rate", "input_variation"),
    *("output_variation", "max_loras"),
)
Plan = dict[str, Any]


def train(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    """A plan to train; what is no question of the request is a setting. Nothing fails in it, so
    that checkpoints are 1,000 steps apart."""
    asked = {name: more.pop(name) for name in QUESTIONS if name in more}
    return {
        "workload": "train",
        "model": model,
        "gpu": more.pop("gpu", "h100-sxm"),
        "framework": more.pop("framework"),
        "num_gpus": num_gpus,
        "global_batch_size": batch,
        "sequence_length": 1100,
        "total_tokens": 1e9,
        "reliability": "ideal",
        "specs": SPECS,
        **asked,
        "settings": more,
    }


def job(plan: Plan) -> LaunchJob:
    """The job of a plan that the rules allow, whether it fits or not."""
    of = make_single_plan(Request(**plan))
    found = evaluate(of)
    assert found.rejected_by in ("", "out_of_memory", "out_of_host_memory"), found.rejected_by
    return LaunchJob.of_plan(of, found)
