"""Plans as scripts on Hugging Face's Trainer, with DeepSpeed and accelerate, and back."""

from __future__ import annotations

from typing import Any

import pytest
from documents import with_files
from draws import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from round_trip import lost, training_jobs

from planner.launch.read.parsed_launch import LaunchSettings
from planner.launch.target import LaunchJob, LaunchTarget
from planner.launch.targets import target_of
from planner.question.parse_values import parse_value
from planner.question.terms import glossary

MODELS = ("llama-2-7b", "llama-65b", "mixtral-8x7b", "deepseek-v3", "gpt-3-175b", "bloom-176b")
CASES = [
    ("transformers", "HF Trainer", ("lora", "qlora")),
    ("transformers", "HF Trainer FSDP", ("none", "lora", "qlora")),
    ("transformers", "HF Trainer bf16", ("none",)),
    ("deepspeed", "DeepSpeed", ("none", "lora")),
    ("deepspeed", "HF Trainer", ("lora", "qlora")),
    ("accelerate", "HF Trainer FSDP", ("none", "lora", "qlora")),
    ("accelerate", "FSDP compiled", ("none",)),
    ("accelerate", "DeepSpeed", ("none",)),
    ("accelerate", "HF Trainer", ("lora", "qlora")),
    ("axolotl", "HF Trainer", ("lora", "qlora")),
    ("axolotl", "HF Trainer FSDP", ("lora", "qlora")),
    ("axolotl", "HF Trainer bf16", ("none",)),
    ("axolotl", "DeepSpeed", ("none", "lora")),
]


DERIVED = ("num_gpus", "micro_batch_size", "global_batch_size", "zero_stage", "offload")


def derived(
    target: LaunchTarget, job: LaunchJob, answers: LaunchSettings
) -> dict[str, tuple[Any, Any]]:
    """What is told by several options together, which `lost` takes on trust."""
    told = {remark.parameter for remark in target.make_draft(job).unexpressed}
    terms = glossary()
    pairs = {
        name: (job[name], parse_value(terms[name], str(answers.values.get(name))))
        for name in DERIVED
        if name not in told
    }
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


@pytest.mark.few(5)
@pytest.mark.parametrize(("name", "framework", "adapters"), CASES)
@given(data=st.data())
@settings(max_examples=examples(25, 2), suppress_health_check=[HealthCheck.filter_too_much])
def test_round_trip(
    name: str, framework: str, adapters: tuple[str, ...], data: st.DataObject
) -> None:
    fixed: dict[str, Any] = {"tensor_parallel": 1, "context_parallel": 1, "pipeline_parallel": 1}
    fixed |= {"virtual_pipeline": 1, "expert_parallel": 1, "sequence_parallel": False}
    job = data.draw(training_jobs(framework=framework, adapters=adapters, models=MODELS, **fixed))
    assume(job.num_gpus % job.gpus_per_node == 0)
    offloads_what_is_kept = "activations" in job["offload"] and job["recompute"] == "none"
    assume(name != "axolotl" or not offloads_what_is_kept)  # it refuses that
    target = target_of(name)
    answers = target.read_settings(with_files(target, target.make_draft(job)))
    assert lost(target, job, answers) == {}
    assert derived(target, job, answers) == {}
