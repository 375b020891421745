"""Serving configurations as a struct of arrays."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from planner.arrays import CodeArray, FloatArray
from planner.configurations.training import pick
from planner.enums import CacheType, Quantization

SERVING_CODES = {
    "quantization": Quantization,
    "expert_quantization": Quantization,
    "kv_cache": CacheType,
}
SHARES = ("weight_offload", "kv_offload")


@dataclass(frozen=True, kw_only=True)
class ServingConfigurations:
    """Ways to serve a model; every field broadcasts to ``shape``.

    A replica has tensor_parallel x attention_data_parallel x pipeline_parallel GPUs and
    holds ``concurrency`` requests; ``max_num_batched_tokens`` bounds the tokens of a step.
    Experts are split over expert_parallel ranks, and each of them over what is left of the
    replica's stage. ``weight_offload``, ``kv_offload``: shares kept in host memory.
    """

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

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Configurations from numbers, lists or arrays; each is cast to its type."""
        return cls(**{name: serving_cast(name, value) for name, value in values.items()})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole table or mesh."""
        return np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in SERVING_NAMES))

    @property
    def size(self) -> int:
        """Number of configurations."""
        return math.prod(self.shape)

    @property
    def stage_gpus(self) -> FloatArray:
        """GPUs of one pipeline stage of a replica."""
        return self.tensor_parallel * self.attention_data_parallel

    @property
    def replica_gpus(self) -> FloatArray:
        """GPUs of one replica."""
        return self.stage_gpus * self.pipeline_parallel

    @property
    def data_parallel(self) -> FloatArray:
        """Replicas; a fraction if they do not fill the GPUs."""
        return self.num_gpus / self.replica_gpus

    @property
    def expert_tensor_parallel(self) -> FloatArray:
        """Ranks that split one expert."""
        return self.stage_gpus / self.expert_parallel

    def rows(self, indices: Any) -> Self:
        """The flat table of the rows at these flat indices of the mesh."""
        positions = np.unravel_index(indices, self.shape)
        return type(self)(
            **{name: pick(getattr(self, name), self.shape, positions) for name in SERVING_NAMES}
        )


SERVING_NAMES = tuple(field.name for field in fields(ServingConfigurations))


def serving_cast(name: str, value: Any) -> Any:
    """``value`` in the array type of the parameter ``name``."""
    return np.asarray(value, dtype=np.int8 if name in SERVING_CODES else np.float64)


def serving_word(name: str, value: Any) -> Any:
    """A value of the parameter ``name`` as it is shown: a word, a share or an int."""
    if name in SERVING_CODES:
        return SERVING_CODES[name](int(value)).word
    return float(value) if name in SHARES else int(value)
