"""How gradients are kept, added up and exchanged, in fp16 training or in another precision."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planner.arrays import CodeArray, Numeric
from planner.enums import ComputePrecision
from planner.specs.framework import FrameworkProfile


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """Bytes per parameter of a framework's ``States``, for each configuration.

    ``scattered``: 1 where optimizer states that are sharded get them by a reduce-scatter.
    """

    kept: Numeric
    on_wire: Numeric
    accumulation_traffic: Numeric
    scattered: Numeric

    @classmethod
    def of(cls, framework: FrameworkProfile, precision: CodeArray) -> Gradients:
        """Those of a framework under each precision code."""
        states = framework.states
        is_fp16 = precision == ComputePrecision.FP16

        def either(name: str) -> Numeric:
            usual, in_fp16 = (float(getattr(s, name)) for s in (states, states.fp16 or states))
            return usual if usual == in_fp16 else np.where(is_fp16, in_fp16, usual)

        return cls(
            kept=either("gradient"),
            on_wire=either("gradient_on_wire"),
            accumulation_traffic=either("accumulation_traffic"),
            scattered=either("scattered_gradients"),
        )
