"""Training configurations as a struct of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np

from planner.arrays import BoolArray, CodeArray, FloatArray, IndexArray
from planner.enums import ComputePrecision, Recompute, ZeroStage

CODES = {"precision": ComputePrecision, "recompute": Recompute, "zero_stage": ZeroStage}
FLAGS = ("sequence_parallel", "flash_attention")


@dataclass(frozen=True, kw_only=True)
class TrainingConfigurations:
    """Layouts of a training step; every field broadcasts to ``shape``.

    A flat table holds equal-length vectors; an open mesh holds one axis per parameter,
    so that a formula costs only the axes it depends on. Quantities are float64,
    choices int8 codes, switches bool.
    """

    num_gpus: FloatArray
    tensor_parallel: FloatArray
    context_parallel: FloatArray
    pipeline_parallel: FloatArray
    virtual_pipeline: FloatArray
    expert_parallel: FloatArray
    micro_batch_size: FloatArray
    global_batch_size: FloatArray
    zero_stage: CodeArray
    recompute: CodeArray
    precision: CodeArray
    sequence_parallel: BoolArray
    flash_attention: BoolArray

    @classmethod
    def of(cls, **values: Any) -> Self:
        """Configurations from numbers, lists or arrays; each is cast to its type."""
        return cls(**{name: cast(name, value) for name, value in values.items()})

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the whole table or mesh."""
        return np.broadcast_shapes(*(np.shape(getattr(self, name)) for name in NAMES))

    @property
    def size(self) -> int:
        """Number of configurations."""
        return math.prod(self.shape)

    @property
    def data_parallel(self) -> FloatArray:
        """GPUs over tensor, context and pipeline parallelism; a fraction if they do not fit."""
        return self.num_gpus / (
            self.tensor_parallel * self.context_parallel * self.pipeline_parallel
        )

    @property
    def num_micro_batches(self) -> FloatArray:
        """Micro-batches of a step (gradient accumulation steps)."""
        return self.global_batch_size / (self.data_parallel * self.micro_batch_size)

    def rows(self, indices: Any) -> Self:
        """The flat table of the rows at these flat indices of the mesh."""
        positions = np.unravel_index(indices, self.shape)
        return type(self)(
            **{name: pick(getattr(self, name), self.shape, positions) for name in NAMES}
        )

    def narrowed(self, kept: Sequence[IndexArray]) -> Self:
        """The mesh of some indices of each axis."""
        shape = self.shape

        def narrow(values: Any) -> Any:
            padded = np.reshape(values, (1,) * (len(shape) - np.ndim(values)) + np.shape(values))
            for axis, indices in enumerate(kept):
                if padded.shape[axis] > 1 or not indices.size:
                    padded = np.take(padded, indices, axis=axis)
            return padded

        return type(self)(**{name: narrow(getattr(self, name)) for name in NAMES})

    def chosen(self, mask: Any) -> Self:
        """The rows of a flat table where ``mask`` (or at which indices) it is true."""
        return type(self)(
            **{name: np.broadcast_to(getattr(self, name), self.shape)[mask] for name in NAMES}
        )


NAMES = tuple(field.name for field in fields(TrainingConfigurations))


def cast(name: str, value: Any) -> Any:
    """``value`` in the array type of the parameter ``name``."""
    if name in CODES:
        return np.asarray(value, dtype=np.int8)
    if name in FLAGS:
        return np.asarray(value, dtype=np.bool_)
    return np.asarray(value, dtype=np.float64)


def word(name: str, value: Any) -> Any:
    """A value of the parameter ``name`` as it is shown: a word, a bool or an int."""
    if name in CODES:
        return CODES[name](int(value)).word if name != "zero_stage" else int(value)
    if name in FLAGS:
        return bool(value)
    return int(value)


def pick(values: Any, shape: tuple[int, ...], positions: Any) -> Any:
    """The entries of a broadcastable array at positions of the whole ``shape``."""
    padded = np.reshape(values, (1,) * (len(shape) - np.ndim(values)) + np.shape(values))
    index = tuple(
        position if size > 1 else np.zeros_like(position)
        for position, size in zip(positions, padded.shape, strict=True)
    )
    return padded[index]
