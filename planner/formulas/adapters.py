"""Low-rank adapters and 4-bit weights."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric

_BLOCK = 64
_DOUBLE_BLOCK = 256

# 4 bits, an 8-bit scale per block, an fp32 scale per block of scales: 4.127 bits.
NF4_BYTES = 4 / 8 + 1 / _BLOCK + 4 / (_BLOCK * _DOUBLE_BLOCK)
"""Bytes per parameter of NF4 with double quantization (arXiv:2305.14314, section 3)."""
NF4_SINGLE_BYTES = 4 / 8 + 4 / _BLOCK
"""Bytes per parameter of NF4 with an fp32 scale per block: 4.5 bits (ibid.)."""


def adapter_parameters(*, depth: Numeric, columns: Numeric, lora_rank: Numeric) -> FloatArray:
    r"""Parameters of the two thin matrices beside one of ``depth`` inputs [1]_.

    .. math:: r (k + n)

    References
    ----------
    .. [1] E. Hu et al., "LoRA," 2021, arXiv:2106.09685, section 4.1.
    """
    r, k, n = lora_rank, depth, columns
    return np.asarray(r * (k + n))


def served_adapter_bytes(
    *, rows: Numeric, inputs: Numeric, outputs: Numeric, lora_rank: Numeric, adapters: Numeric
) -> FloatArray:
    r"""Traffic of adapters beside a product of m rows, with ``adapters`` a different ones [1]_.

    .. math:: 2 a r (k + n) + m (2 k + 4 n)

    The first matrices read what enters, once for each matrix of the product; the second ones add to
    what is there, which is read and written. The r numbers between them stay in the cache of the
    GPU. At r FLOPs for some 1.5 bytes it is bound by memory up to ranks of some hundreds.

    References
    ----------
    .. [1] L. Chen et al., "Punica: Multi-tenant LoRA serving," 2023, arXiv:2310.18547, section 4.
    """
    k, n, m, a = np.asarray(inputs), outputs, rows, adapters
    return np.asarray(2.0 * a * lora_rank * (k + n) + m * (2.0 * k + 4.0 * n))


def nf4_bytes(*, double_quantization: bool) -> float:
    r"""Bytes per parameter of NF4: `NF4_BYTES`, or `NF4_SINGLE_BYTES` without the second step.

    .. math:: \frac{4 + 8 / 64 + 32 / (64 \cdot 256)}{8} \text{ or } \frac{4 + 32 / 64}{8}

    The constants are those of double quantization [1]_.

    References
    ----------
    .. [1] T. Dettmers et al., "QLoRA," 2023, arXiv:2305.14314, section 3.
    """
    return NF4_BYTES if double_quantization else NF4_SINGLE_BYTES


def dequantize_bytes(
    *, parameters: Numeric, passes: Numeric, double_quantization: bool = True
) -> FloatArray:
    r"""Traffic of turning 4-bit weights into 16-bit ones: one read and one write, times passes.

    .. math:: N p (b + 2)

    b is `nf4_bytes`. Derived here.
    """
    b = nf4_bytes(double_quantization=double_quantization)
    return np.asarray(parameters * (b + 2.0) * passes)
