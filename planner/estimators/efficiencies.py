"""Efficiencies as arrays over configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.base.arrays import CodeArray, FloatArray
from planner.specs.gpu import AttentionEfficiency


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
