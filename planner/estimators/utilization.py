"""The greatest utilization that kernels of a GPU reach, which no run goes beyond."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from planner.errors import PlannerError
from planner.estimators.flops import attention_flops_per_token, model_flops_per_token
from planner.estimators.share import Setting
from planner.specs.efficiency import is_assumed

_PASSES = 3  # forward, and twice as much backward
_CAUSAL = 0.5


def most_utilization(setting: Setting) -> float:
    r"""The MFU of a step of nothing but large products and attention without a gap.

    .. math:: MFU_{max} = \frac{F}{(F - A) / e + c A / e_a}

    e and e_a are the shares of the peak that products and attention reach, 1 where no publication
    says it; of F FLOPs per token, which MFU counts, A are those of attention, of which causal
    kernels compute the share c = 1/2. The 2,343 published runs of the validation stay below; the
    nearest reaches 0.93 of it, on B200.
    """
    length = setting.workload.sequence_length
    counted = float(np.ravel(np.asarray(model_flops_per_token(setting.model, length, setting)))[0])
    attention = min(_PASSES * attention_flops_per_token(setting.model, length), counted)
    efficiency = setting.machine.gpu.efficiency
    products = _reached(setting, "gemm", efficiency.gemm)
    cores = _reached(setting, "attention", efficiency.attention)
    return counted / ((counted - attention) / products + _CAUSAL * attention / cores)


def _reached(setting: Setting, part: str, rows: Mapping[str, Any]) -> float:
    """The greatest published share of the peak of a kind of kernels; 1 without any."""
    try:
        provenance = setting.machine.catalogue.load_gpu(setting.machine.gpu.name).provenance
    except PlannerError:
        provenance = {}
    known = [
        float(row.compute_fraction)
        for key, row in rows.items()
        if not is_assumed(provenance, f"{part}.{key}.compute_fraction")
    ]
    return max(known, default=1.0)
