"""Plans as torchtitan's overrides and configuration functions, and back."""

from __future__ import annotations

import ast

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from round_trip import found_of, lost, training_jobs

from planner.launch.job import Job
from planner.launch.targets import target_of

TARGET = target_of("torchtitan")
MODELS = ("llama-2-7b", "llama-65b", "deepseek-v3", "qwen3-30b-a3b", "llama-3.1-405b")


def _can_deal_experts(job: Job) -> bool:
    copies = job["data_parallel_replicas"] if job["zero_stage"] else job["data_parallel"]
    ranks = job["data_parallel"] // copies * job["context_parallel"] * job["tensor_parallel"]
    return bool(ranks % job["expert_parallel"] == 0)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_round_trip(data: st.DataObject) -> None:
    job = data.draw(training_jobs(framework="torchtitan", models=MODELS))
    assume(job.num_gpus % job.gpus_per_node == 0)
    assume(job["data_parallel"] % job["data_parallel_replicas"] == 0)
    assume(_can_deal_experts(job))
    # What it cannot say then is told: see below.
    assume(job["zero_stage"] or job["context_parallel"] == 1)
    draft = TARGET.drafted(job)
    answers = TARGET.read(found_of(TARGET, draft))
    assert lost(TARGET, job, answers) == {}
    told = {remark.parameter for remark in draft.unexpressed}
    for name in ("num_gpus", "micro_batch_size", "zero_stage", "virtual_pipeline"):
        if name not in told and name not in answers.asked:
            assert int(answers.values.get(name, 1)) == job[name], name
    for file in draft.files:
        ast.parse(file.text)
