"""Serving configurations as a struct of arrays."""

from __future__ import annotations

from dataclasses import dataclass

from planner.arrays import CodeArray, FloatArray
from planner.configurations.table import ConfigurationTable


@dataclass(frozen=True, kw_only=True)
class ServingConfigurations(ConfigurationTable):
    """Ways to serve a model; every field broadcasts to ``shape``.

    A replica has tensor_parallel x attention_data_parallel x pipeline_parallel GPUs and
    holds ``concurrency`` requests; ``max_num_batched_tokens`` bounds the tokens of a step of
    one attention rank.
    Experts are split over expert_parallel ranks, and each of them over what is left of the
    replica's stage. ``weight_offload``, ``kv_offload``: shares kept in host memory.
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
