"""How gradients are kept, added up and exchanged, in fp16 training or in another precision."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import CodeArray, Numeric
from planner.base.enums import ComputePrecision, MainPrecision
from planner.base.records import record
from planner.estimators.number_bytes import WIDE_BYTES, is_wide
from planner.specs.framework import FrameworkProfile

_MAIN_BYTES = np.array([np.nan, 4.0, 2.0])
# Two of 32 bits are read and their sum is written.
_WIDE_ACCUMULATION = 12.0


@record(kw_only=True)
class Gradients:
    """Bytes per parameter of a framework's ``States``, for each configuration.

    ``scattered``: 1 where optimizer states that are sharded get them by a reduce-scatter.
    """

    kept: Numeric
    on_wire: Numeric
    accumulation_traffic: Numeric
    scattered: Numeric

    @classmethod
    def of(
        cls,
        framework: FrameworkProfile,
        precision: CodeArray,
        main: CodeArray | None = None,
    ) -> Gradients:
        """Those of a framework under each precision code; ``main``: formats they are told to have.

        As `planner.base.enums.MainPrecision`; they are reduced in that format, too.
        """
        states = framework.states
        is_fp16 = precision == ComputePrecision.FP16

        wide = is_wide(precision)

        def either(name: str) -> Numeric:
            usual, in_fp16 = (float(getattr(s, name)) for s in (states, states.fp16 or states))
            return usual if usual == in_fp16 else np.where(is_fp16, in_fp16, usual)

        def widened(usual: Numeric, in_32_bits: float) -> Numeric:
            if not np.any(wide):
                return usual
            return np.where(wide & (np.asarray(usual) > 0), in_32_bits, usual)

        def told(usual: Numeric) -> Numeric:
            if main is None or not np.any(main):
                return usual
            return np.where(main == MainPrecision.FRAMEWORK, usual, _MAIN_BYTES[main])

        return cls(
            kept=told(widened(either("gradient"), WIDE_BYTES)),
            on_wire=told(widened(either("gradient_on_wire"), WIDE_BYTES)),
            accumulation_traffic=widened(either("accumulation_traffic"), _WIDE_ACCUMULATION),
            scattered=either("scattered_gradients"),
        )
