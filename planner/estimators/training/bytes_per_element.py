"""Bytes per number in each training precision: of operands, gradients and states."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import BoolArray, CodeArray, FloatArray, Numeric
from planner.base.enums import ComputePrecision, MainPrecision
from planner.base.records import record
from planner.specs.framework import FrameworkProfile
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
    """Mask of configurations that train in 32 bits."""
    return np.asarray(WIDE[precision])


def is_narrow(precision: CodeArray) -> BoolArray:
    """Mask of configurations with floating-point products below 16 bits."""
    return np.asarray(NARROW[precision])


def widen(default: Numeric, precision: CodeArray) -> Numeric:
    """Bytes per number, at least 4 in configurations that train in 32 bits."""
    wide = is_wide(precision)
    return np.where(wide, np.maximum(default, WIDE_BYTES), default) if wide.any() else default


_MAIN_BYTES = np.array([np.nan, 4.0, 2.0])
# Two of 32 bits are read and their sum is written.
_WIDE_ACCUMULATION = 12.0


@record(kw_only=True)
class GradientBytes:
    """Bytes per parameter of a framework's ``States``, for each configuration.

    ``scattered``: 1 where optimizer states that are sharded get them by a reduce-scatter.
    """

    stored_bytes: Numeric
    on_wire: Numeric
    accumulation_traffic: Numeric
    scattered: Numeric

    @classmethod
    def of(
        cls,
        framework: FrameworkProfile,
        precision: CodeArray,
        main: CodeArray | None = None,
        weights: CodeArray | None = None,
    ) -> GradientBytes:
        """Return gradient bytes per parameter of a framework at each precision code.

        ``main``: specified formats of gradients (`planner.base.enums.MainPrecision`), also used for
        their reduction. ``weights``: formats of those that are updated. Where there is no copy of
        these in 32 bits, gradients are kept in their type: PyTorch's autograd refuses another
        (``Tensor.grad``).
        """
        states = framework.states
        is_fp16 = precision == ComputePrecision.FP16

        wide = is_wide(precision)

        def either(name: str) -> Numeric:
            default, in_fp16 = (float(getattr(s, name)) for s in (states, states.fp16 or states))
            return default if default == in_fp16 else np.where(is_fp16, in_fp16, default)

        def widened(default: Numeric, in_32_bits: float) -> Numeric:
            if not wide.any():
                return default
            return np.where(wide & (np.asarray(default) > 0), in_32_bits, default)

        def in_main_format(default: Numeric) -> Numeric:
            if main is None or not main.any():
                return default
            return np.where(main == MainPrecision.FRAMEWORK, default, _MAIN_BYTES[main])

        def of_weights(default: Numeric) -> Numeric:
            if states.main_weight or weights is None or not weights.any():
                return default
            narrow = weights == MainPrecision.BF16
            return np.where(narrow, np.minimum(default, _MAIN_BYTES[MainPrecision.BF16]), default)

        return cls(
            stored_bytes=in_main_format(widened(of_weights(either("gradient")), WIDE_BYTES)),
            on_wire=in_main_format(widened(either("gradient_on_wire"), WIDE_BYTES)),
            accumulation_traffic=widened(either("accumulation_traffic"), _WIDE_ACCUMULATION),
            scattered=either("scattered_gradients"),
        )
