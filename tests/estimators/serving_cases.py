"""Settings and configurations of serving for tests."""

from __future__ import annotations

from typing import Any

from planner.base.enums import (
    CacheType,
    Quantization,
)
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.ideal_hardware import ideal_engine, ideal_hardware
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.machine import Machine
from planner.specs.catalogue import default_cluster, load_gpu, load_model
from planner.specs.serving_workload import ServingWorkload
from planner.specs.software_profile import load_engine


def serving_setting(
    model: str = "llama-7b",
    gpu: str = "a100-sxm-80gb",
    engine: str = "vllm",
    ideal: bool = False,
    **workload: Any,
) -> ServingInputs:
    """A setting of shipped specs; 512 tokens in and 128 out if nothing is said."""
    silicon = load_gpu(gpu)
    cluster, profile = default_cluster(silicon), load_engine(engine).spec
    if ideal:
        silicon, cluster = ideal_hardware(silicon, cluster)
        profile = ideal_engine(profile)
    lengths = {"input_tokens": 512, "output_tokens": 128}
    return ServingInputs(
        machine=Machine(gpu=silicon, cluster=cluster, ideal=ideal),
        model=load_model(model),
        engine=profile,
        workload=ServingWorkload(**{**lengths, **workload}),
    )


def replicas(**values: Any) -> ServingConfigurations:
    """One replica on one GPU with one request in 16 bit, but for ``values``."""
    whole = {
        "num_gpus": 1,
        "tensor_parallel": 1,
        "pipeline_parallel": 1,
        "attention_data_parallel": 1,
        "expert_parallel": 1,
        "concurrency": 1,
        "max_num_batched_tokens": 8192,
        "quantization": Quantization.W16A16,
        "expert_quantization": Quantization.W16A16,
        "kv_cache": CacheType.BF16,
        "weight_offload": 0.0,
        "kv_offload": 0.0,
    }
    return ServingConfigurations.of(**{**whole, **values})
