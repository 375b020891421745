"""Serving configurations as a struct of arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.base.records import record
from planner.configurations.table import ConfigurationTable


@record(kw_only=True)
class ServingConfigurations(ConfigurationTable):
    """Ways to serve a model; every field broadcasts to ``shape``.

    A replica has tensor_parallel x attention_data_parallel x pipeline_parallel GPUs and
    holds ``concurrency`` requests; ``max_num_batched_tokens`` bounds the tokens of a step of
    one attention rank.
    Experts are split over expert_parallel ranks, and each of them over what is left of the
    replica's stage. ``weight_offload``, ``kv_offload``: shares kept in host memory.
    ``gpu_memory_utilization``: the share of a GPU's memory as the engine is told it, see
    `planner.specs.engine.MemoryShare`; 0: the engine's own default.
    """

    workload = "serve"

    num_gpus: FloatArray
    tensor_parallel: FloatArray
    pipeline_parallel: FloatArray
    attention_data_parallel: FloatArray
    expert_parallel: FloatArray
    concurrency: FloatArray
    max_num_batched_tokens: FloatArray
    quantization: CodeArray
    expert_quantization: CodeArray
    kv_cache: CodeArray
    weight_offload: FloatArray
    kv_offload: FloatArray
    gpu_memory_utilization: FloatArray

    @property
    def stage_gpus(self) -> FloatArray:
        """GPUs of one pipeline stage of a replica."""
        return self.tensor_parallel * self.attention_data_parallel

    @property
    def replica_gpus(self) -> FloatArray:
        """GPUs of one replica."""
        return self.stage_gpus * self.pipeline_parallel

    @property
    def replica_step_tokens(self) -> FloatArray:
        """Most tokens of a step of all attention ranks of a replica."""
        return self.max_num_batched_tokens * self.attention_data_parallel

    @property
    def data_parallel(self) -> FloatArray:
        """Replicas; a fraction if they do not fill the GPUs."""
        return self.num_gpus / self.replica_gpus

    @property
    def expert_tensor_parallel(self) -> FloatArray:
        """Ranks that split one expert."""
        return self.stage_gpus / self.expert_parallel


SERVING_NAMES = ServingConfigurations.names()


@record(kw_only=True)
class PoolConfigurations(ServingConfigurations):
    """Pools of prefill and decode workers; the plain parameters are those of the decode workers.

    ``num_gpus`` are those of all ``replicas`` (decode workers) and ``prefill_replicas``.
    """

    replicas: FloatArray
    prefill_replicas: FloatArray
    prefill_tensor_parallel: FloatArray
    prefill_pipeline_parallel: FloatArray
    prefill_attention_data_parallel: FloatArray
    prefill_expert_parallel: FloatArray
    prefill_max_num_batched_tokens: FloatArray
    prefill_quantization: CodeArray
    prefill_expert_quantization: CodeArray
    prefill_kv_cache: CodeArray
    prefill_weight_offload: FloatArray
    prefill_kv_offload: FloatArray
    prefill_gpu_memory_utilization: FloatArray

    @classmethod
    def pooled(
        cls,
        prefill: ServingConfigurations,
        decode: ServingConfigurations,
        prefill_replicas: FloatArray,
        replicas: FloatArray,
    ) -> PoolConfigurations:
        """So many of two kinds of workers."""
        gpus = prefill.replica_gpus * prefill_replicas + decode.replica_gpus * replicas
        plain = {name: getattr(decode, name) for name in SERVING_NAMES}
        return cls(
            **{**plain, "num_gpus": gpus},
            replicas=replicas,
            prefill_replicas=prefill_replicas,
            **{PREFILL + name: getattr(prefill, name) for name in OF_PREFILL},
        )

    @property
    def decode(self) -> ServingConfigurations:
        """One decode worker."""
        values = {name: getattr(self, name) for name in SERVING_NAMES}
        return ServingConfigurations(**{**values, "num_gpus": self.replica_gpus})

    @property
    def prefill(self) -> ServingConfigurations:
        """One prefill worker; its concurrency follows from its steps."""
        values = {name: getattr(self, PREFILL + name) for name in OF_PREFILL}
        ones = np.ones_like(self.prefill_tensor_parallel)
        alone = ServingConfigurations(num_gpus=ones, concurrency=ones, **values)
        return replace(alone, num_gpus=alone.replica_gpus)


PREFILL = "prefill_"
OF_PREFILL = tuple(name for name in SERVING_NAMES if name not in ("num_gpus", "concurrency"))
