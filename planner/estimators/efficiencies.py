"""Efficiencies as arrays over configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.arrays import CodeArray, FloatArray
from planner.enums import ComputePrecision, Precision
from planner.specs.efficiency import gemm_key
from planner.specs.gpu import AttentionEfficiency


def by_precision(kind: Any, table: Mapping[str, Any]) -> dict[str, FloatArray]:
    """The efficiencies by precision code; those of bf16 where there are none of its own."""
    words = [Precision(code.word) for code in ComputePrecision]
    rows = [table.get(word, table.get(gemm_key(word), table["bf16"])) for word in words]
    return _columns(kind, rows)


def nearest_head(table: Mapping[str, AttentionEfficiency], head_dim: int) -> dict[str, FloatArray]:
    """The efficiencies of attention of the measured head size next to ``head_dim``."""
    nearest = min(table, key=lambda key: abs(int(key.rpartition("_")[2]) - head_dim))
    return {
        name: column[0] for name, column in _columns(AttentionEfficiency, [table[nearest]]).items()
    }


def chosen(columns: Mapping[str, FloatArray], index: CodeArray) -> dict[str, FloatArray]:
    """The efficiencies of each of some codes."""
    return {name: column[index] for name, column in columns.items()}


def _columns(kind: Any, rows: Sequence[object]) -> dict[str, FloatArray]:
    names = kind.__dataclass_fields__
    return {name: np.asarray([getattr(row, name) for row in rows]) for name in names}
