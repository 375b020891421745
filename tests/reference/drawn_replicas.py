"""Replicas and settings that the naive twin of serving is compared on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from scalar_serving_kernels import Replica, ServingWorld

from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.machine import Machine
from planner.question.terms import glossary
from planner.specs.catalogue import default_cluster, load_gpu, load_model
from planner.specs.serving_workload import ServingWorkload
from planner.specs.software_profile import load_engine

DENSE = [
    Replica(concurrency=1),
    Replica(num_gpus=2, tensor_parallel=2, concurrency=33, quantization="fp8", kv_cache="fp8"),
    Replica(num_gpus=8, tensor_parallel=4, concurrency=7, quantization="w4a16"),
    Replica(num_gpus=3, pipeline_parallel=3, concurrency=2),
    Replica(num_gpus=12, tensor_parallel=4, pipeline_parallel=3, concurrency=50),
    Replica(num_gpus=8, pipeline_parallel=8, concurrency=64, max_num_batched_tokens=256),
    Replica(num_gpus=16, tensor_parallel=16, concurrency=16, max_num_batched_tokens=512),
    Replica(num_gpus=2, pipeline_parallel=2, concurrency=12, weight_offload=0.5, kv_offload=0.25),
    Replica(concurrency=3, weight_offload=1.0),
    Replica(concurrency=40, kv_offload=1.0, kv_cache="fp8"),
    Replica(num_gpus=2, tensor_parallel=2, concurrency=4000),
]
EXPERTS = [
    Replica(num_gpus=8, tensor_parallel=8, concurrency=24),
    Replica(num_gpus=8, tensor_parallel=4, expert_parallel=2, concurrency=5,
            expert_quantization="fp8"),
    Replica(num_gpus=8, attention_data_parallel=8, expert_parallel=8, concurrency=200),
    Replica(num_gpus=8, attention_data_parallel=8, expert_parallel=8, concurrency=11,
            max_num_batched_tokens=512),
    Replica(num_gpus=16, tensor_parallel=2, attention_data_parallel=8, expert_parallel=16,
            concurrency=64),
    Replica(num_gpus=20, tensor_parallel=4, pipeline_parallel=5, expert_parallel=4, concurrency=90),
    Replica(num_gpus=16, tensor_parallel=16, concurrency=9),
]  # fmt: skip
WORKLOADS: list[dict[str, Any]] = [
    {},
    {"input_tokens": 3000, "output_tokens": 700, "prefix_cache_hit_rate": 0.4, "num_requests": 40},
    {"draft_tokens": 3, "acceptance_rate": 0.7, "draft_cost": 0.1, "request_rate": 4.0},
    {"request_rate": 4.0, "input_variation": 0.8, "output_variation": 1.2},
    {"equal_lengths": True, "redundant_experts": 16, "shared_prefix_tokens": 700},
    {"input_tokens": 60, "output_tokens": 1, "equal_prompts": True, "expert_dispersion": 0.0},
]
SCHEDULERS: list[dict[str, Any]] = [
    {},
    {"poll_interval": 9, "batch_wait": 4, "max_num_seqs": 16, "clustering": 0.6},
    {"chunked_prefill": False, "pipeline_overlap": False, "whole_requests": True},
    {"continuous": False, "pipeline_tokens": 1024},
]
EXECUTIONS: list[dict[str, Any]] = [
    {},
    {"host_attention_fraction": 0.3, "hidden_copies": 0.4, "prefill_launch_time": 8e-4},
    {"decode_launch_time": 3e-4, "captured_context": 600, "score_passes": 2.0},
    {"captured_batch": 3, "prefill_launch_time": 4e-4},
    {"sustained_clock": 0.5},
    {"row_instructions": 2.0, "vector_rows": 40},
    {
        "decode_launch_time": 2e-4,
        "decode_expert_launch_time": 6e-4,
        "latent_launch_time": 1e-3,
        "recurrent_launch_time": 2e-3,
        "draft_overhead": 1e-3,
        "draft_sequence_overhead": 2e-4,
        "network_callback_time": 9e-5,
    },
]


def make_setting(
    model: str, gpu: str = "h100-sxm-80gb", engine: str = "vllm", *,
    scheduler: dict[str, Any] | None = None, execution: dict[str, Any] | None = None,
    **workload: Any,
) -> ServingInputs:  # fmt: skip
    """A setting of shipped specs; 512 tokens in and 128 out if nothing is said."""
    silicon, profile = load_gpu(gpu), load_engine(engine).spec
    profile = replace(
        profile,
        scheduler=replace(profile.scheduler, **(scheduler or {})),
        execution=replace(profile.execution, **(execution or {})),
    )
    return ServingInputs(
        machine=Machine(gpu=silicon, cluster=default_cluster(silicon)),
        model=load_model(model),
        engine=profile,
        workload=ServingWorkload(**{"input_tokens": 512, "output_tokens": 128, **workload}),
    )


def make_world(setting: ServingInputs) -> ServingWorld:
    """The same for the twin."""
    return ServingWorld(
        gpu=setting.machine.gpu,
        cluster=setting.machine.cluster,
        model=setting.model,
        engine=setting.engine,
        workload=setting.workload,
        draft=setting.draft,
    )


def make_replicas(replicas: Sequence[Replica]) -> ServingConfigurations:
    """The same as a table."""
    columns = {}
    for field in fields(Replica):
        values = [getattr(replica, field.name) for replica in replicas]
        codes = glossary()[field.name].codes
        columns[field.name] = [codes[value.upper()] for value in values] if codes else values
    return ServingConfigurations.of(**columns)
