"""Rules of the number formats that training multiplies in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from planner.base.arrays import BoolArray
from planner.base.enums import ComputePrecision, Fp8Recipe, Precision
from planner.configurations.training import TrainingConfigurations
from planner.specs.quantization import NARROW

if TYPE_CHECKING:
    from planner.configurations.training_rules import Context

# cuDNN's attention in 8 bit: 128, or 192 for the keys of latent attention.
WIDEST_FP8_HEAD = 192


def fp8_attention(c: TrainingConfigurations, context: Context) -> BoolArray:
    """Attention in 8 bit where there are no kernels for it, or nothing else is in 8 bit."""
    if not np.any(c.fp8_attention):
        return np.zeros((), dtype=np.bool_)
    widest = max((a.head_dim for a in context.model.attentions if not a.has_state), default=0)
    lacking = context.gpu.efficiency.fp8_attention is None or widest > WIDEST_FP8_HEAD
    wider = ~NARROW[c.precision]
    return np.asarray(c.fp8_attention & (lacking | wider | ~c.fused_attention))


def fp8_recipe(c: TrainingConfigurations, context: Context) -> BoolArray:
    """Exponents of groups of 32 are of GPUs that have 4 bit, too; each recipe is of 8 bit."""
    if not np.any(c.fp8_recipe):
        return np.zeros((), dtype=np.bool_)
    violated = (c.fp8_recipe != Fp8Recipe.AUTO) & (c.precision != ComputePrecision.FP8)
    if not context.gpu.scales_groups:
        violated = violated | (c.fp8_recipe == Fp8Recipe.MXFP8)
    if "fp8_block" not in context.gpu.efficiency.quantized_gemm:
        violated = violated | (c.fp8_recipe == Fp8Recipe.BLOCKWISE)
    return np.asarray(violated)


def lacking_precision(c: TrainingConfigurations, context: Context) -> BoolArray:
    """What the GPU does not multiply in."""
    peaks = context.gpu.peak_flops
    lacking = [Precision(code.word) not in peaks for code in ComputePrecision]
    return np.asarray(lacking)[c.precision]
