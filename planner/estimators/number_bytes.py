"""Bytes per number in each precision of training: of what is multiplied, and of all else."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import ComputePrecision
from planner.specs.quantization import NARROW, WIDE

WIDE_BYTES = 4.0
"""Bytes of a number in 32 bits."""

_COMPUTE_BYTES = {
    ComputePrecision.BF16: 2.0,
    ComputePrecision.FP16: 2.0,
    ComputePrecision.FP8: 1.0,
    ComputePrecision.FP4: 0.5625,
    ComputePrecision.INT8: 1.0,
    ComputePrecision.TF32: WIDE_BYTES,
    ComputePrecision.FP32: WIDE_BYTES,
}
_BYTES_BY_CODE = np.array([_COMPUTE_BYTES[code] for code in ComputePrecision])


def compute_bytes(precision: CodeArray) -> FloatArray:
    """Bytes per element of each precision code, scales included."""
    return np.asarray(_BYTES_BY_CODE[precision])


def is_wide(precision: CodeArray) -> BoolArray:
    """Where all numbers of training have 32 bits."""
    return np.asarray(WIDE[precision])


def is_narrow(precision: CodeArray) -> BoolArray:
    """Where products are in floating-point numbers of fewer than 16 bits."""
    return np.asarray(NARROW[precision])


def widened(usual: Numeric, precision: CodeArray) -> Numeric:
    """So many bytes per number, or at least those of 32 bits where training is in these."""
    wide = is_wide(precision)
    return np.where(wide, np.maximum(usual, WIDE_BYTES), usual) if np.any(wide) else usual
