"""What a quantization stores, moves and computes with."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace

import numpy as np

from planner.base.arrays import CodeArray
from planner.base.enums import CacheType, ComputePrecision, Fp8Recipe, Precision, Quantization
from planner.base.records import record
from planner.specs.gguf import GGUF_BITS


@record(kw_only=True)
class KernelFormat:
    """Bytes per element of weights and activations, scales included, and the arithmetic.

    ``compute`` lists precisions in the order of preference: the first that a GPU has is
    used. ``kernel`` is the row of the GPU's measured quantized kernels, ``experts`` that of
    its grouped ones. ``cast_bytes``: what kernels of their own, which the row does not contain,
    move for an activation that they quantize; 0: the row contains them, or nothing is quantized.
    Rows of tiled kernels contain them whatever is said here, those of grouped ones do not.
    """

    weight: float
    activation: float
    compute: tuple[Precision, ...]
    kernel: str
    experts: str
    cast_bytes: float = 0.0


# Reads two bytes, writes one.
_CAST = 3.0
_SIXTEEN = (Precision.BF16, Precision.FP16, Precision.FP32)
_EIGHT = (Precision.FP8, Precision.INT8)

# Scales: one 16-bit number per 128 weights (GPTQ, AWQ), an fp8 one per 16 (nvfp4), an 8-bit
# exponent per 32 (mxfp4), an fp32 one per 128 x 128 (block-scaled fp8).
_PLAIN: dict[Quantization, KernelFormat] = {
    Quantization.W16A16: KernelFormat(
        weight=2.0, activation=2.0, compute=_SIXTEEN, kernel="bf16", experts="bf16"
    ),
    Quantization.W8A8: KernelFormat(
        weight=1.0, activation=1.0, compute=(Precision.INT8,), kernel="int8", experts="fp8",
        cast_bytes=_CAST,
    ),
    Quantization.W8A16: KernelFormat(
        weight=1.0, activation=2.0, compute=_SIXTEEN, kernel="int8_weight_only", experts="bf16"
    ),
    Quantization.W4A16: KernelFormat(
        weight=0.5 + 2 / 128, activation=2.0, compute=_SIXTEEN, kernel="int4_weight_only",
        experts="int4_weight_only",
    ),
    Quantization.W4A8: KernelFormat(
        weight=0.5 + 2 / 128, activation=1.0, compute=_EIGHT, kernel="int4_weight_only",
        experts="fp8", cast_bytes=_CAST,
    ),
    Quantization.W4A4: KernelFormat(
        weight=0.5 + 2 / 128, activation=0.5, compute=(Precision.INT4,),
        kernel="int4_weight_only", experts="fp8", cast_bytes=_CAST,
    ),
    Quantization.FP8: KernelFormat(
        weight=1.0, activation=1.0, compute=(Precision.FP8,), kernel="fp8", experts="fp8_tensor",
        cast_bytes=_CAST,
    ),
    Quantization.FP8_BLOCK: KernelFormat(
        weight=1.0 + 4 / 128**2, activation=4.0, compute=(Precision.FP8,), kernel="fp8_block",
        experts="fp8",
    ),
    Quantization.NVFP4: KernelFormat(
        weight=0.5 + 1 / 16, activation=3.0, compute=(Precision.FP4,), kernel="nvfp4",
        experts="nvfp4",
    ),
    Quantization.MXFP4: KernelFormat(
        weight=0.5 + 1 / 32, activation=2.0, compute=_SIXTEEN, kernel="int4_weight_only",
        experts="mxfp4",
    ),
}  # fmt: skip
# Kernels of GGUF files are those of integers of 4 bits or of 8, whichever are nearer.
_MIDDLE_BITS = 5.0
FORMATS: Mapping[Quantization, KernelFormat] = _PLAIN | {
    code: replace(
        _PLAIN[Quantization.W4A16 if bits < _MIDDLE_BITS else Quantization.W8A16], weight=bits / 8
    )
    for code, bits in GGUF_BITS.items()
}

_UNPACKED: Mapping[Quantization, KernelFormat] = {
    Quantization.FP8: FORMATS[Quantization.W8A16],
    Quantization.FP8_BLOCK: FORMATS[Quantization.W8A16],
    Quantization.NVFP4: FORMATS[Quantization.W4A16],
}  # The kernels that read weights of a type into 16 bits: those of integers of as many bits.

_FP8_TRAINING: Mapping[Fp8Recipe, KernelFormat] = {
    Fp8Recipe.DELAYED: FORMATS[Quantization.FP8],
    Fp8Recipe.TENSORWISE: FORMATS[Quantization.FP8],
    # No faster than 16 bit, casts included: torchao's tables of training Llama-3 8B on H100 and
    # torchtitan's of asynchronous tensor parallelism.
    Fp8Recipe.ROWWISE: replace(
        FORMATS[Quantization.W16A16], compute=(Precision.BF16, Precision.FP16)
    ),
    # Experts by kernels such as DeepGEMM's, whose published rates on H800 are those of one scale
    # per tensor, not by those that serve; casts write rows and columns, an fp32 scale per 128.
    Fp8Recipe.BLOCKWISE: replace(
        FORMATS[Quantization.FP8_BLOCK], experts="fp8_tensor",
        cast_bytes=2.0 + 2 * (1.0 + 4 / 128),
    ),
    # A copy by rows and one by columns, each with an 8-bit exponent per 32 numbers.
    Fp8Recipe.MXFP8: replace(
        FORMATS[Quantization.FP8], weight=1.0 + 1 / 32, activation=1.0 + 1 / 32, experts="fp8",
        cast_bytes=2.0 + 2 * (1.0 + 1 / 32),
    ),
}  # fmt: skip
_OF_RECIPES = tuple(_FP8_TRAINING)

# No table: what 16-bit products reach of their peak stands for what these reach of theirs.
_WIDE = replace(FORMATS[Quantization.W16A16], weight=4.0, activation=4.0, kernel="", experts="")

WIDE = np.isin([*ComputePrecision], (ComputePrecision.TF32, ComputePrecision.FP32))
"""By code: whether all numbers of training have 32 bits."""

NARROW = np.isin([*ComputePrecision], (ComputePrecision.FP8, ComputePrecision.FP4))
"""By code: whether products are in floating-point numbers of fewer than 16 bits."""

TRAINING_FORMATS: tuple[KernelFormat, ...] = (
    replace(FORMATS[Quantization.W16A16], compute=(Precision.BF16,)),
    replace(FORMATS[Quantization.W16A16], compute=(Precision.FP16,)),
    FORMATS[Quantization.FP8],
    FORMATS[Quantization.NVFP4],
    FORMATS[Quantization.W8A8],
    replace(_WIDE, compute=(Precision.TF32,)),
    replace(_WIDE, compute=(Precision.FP32,)),
    *_FP8_TRAINING.values(),
)
"""What training multiplies in: by the codes of `ComputePrecision`, then by recipes of fp8."""


def training_format(precision: CodeArray, recipe: CodeArray) -> CodeArray:
    """Where ``TRAINING_FORMATS`` has a precision; ``recipe`` is none but of fp8, and never auto."""
    of_recipe = np.array([0, *(len(ComputePrecision) + i for i in range(len(_OF_RECIPES)))])
    return np.where(precision == ComputePrecision.FP8, of_recipe[recipe], precision)


SIXTEEN_BIT_BYTES = FORMATS[Quantization.W16A16].weight

CACHE_BYTES: Mapping[CacheType, float] = {
    CacheType.NONE: 0.0,
    CacheType.BF16: 2.0,
    CacheType.FP8: 1.0,
    CacheType.INT8: 1.0,
    CacheType.INT4: 0.5 + 2 / 64,
}


def compute_precision(
    quantization: Quantization, supported: Mapping[Precision, float]
) -> Precision | None:
    """The precision a GPU with these peaks multiplies in; None if it has none for it."""
    return first_of(FORMATS[quantization].compute, supported)


def format_on(quantization: Quantization, supported: Mapping[Precision, float]) -> KernelFormat:
    """How a GPU with these peaks multiplies: on weights of a type whose arithmetic it lacks, in 16
    bits as kernels like Marlin do, with the bytes that the type stores."""
    own = FORMATS[quantization]
    unpacked = _UNPACKED.get(quantization)
    if unpacked is None or compute_precision(quantization, supported) is not None:
        return own
    return replace(unpacked, weight=own.weight)


def first_of(precisions: Iterable[Precision], supported: Container[Precision]) -> Precision | None:
    """The first of some precisions that is supported, if any is."""
    return next((precision for precision in precisions if precision in supported), None)
