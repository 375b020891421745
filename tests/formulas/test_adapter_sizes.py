"""Adapters and 4-bit weights against published counts."""

import pytest

from planner.formulas.memory import (
    NF4_BYTES,
    dequantize_bytes,
    lora_parameters,
    quantized_bytes,
)


def test_nf4_with_double_quantization_takes_4_127_bits() -> None:
    """arXiv:2305.14314, section 3: 4 bits, 8/64 and 32/(64 * 256) more."""
    assert pytest.approx(4.127, abs=5e-4) == 8 * NF4_BYTES


def test_weights_in_8_bits_take_a_byte() -> None:
    """arXiv:2208.07339, section 2.1; in 4 bits they take 4.127."""
    sizes = [quantized_bytes(bits=bits, double_quantization=True) for bits in (8, 4)]
    assert sizes == [1.0, NF4_BYTES]


def test_lora_paper_gpt_3() -> None:
    """arXiv:2106.09685, section 4.2: rank 4 on queries and values of GPT-3 is 18 million."""
    one = lora_parameters(depth=12288, columns=12288, lora_rank=4)
    assert 96 * 2 * float(one) == pytest.approx(18.9e6, rel=0.01)


def test_one_pass_of_dequantization_reads_4_bits_and_writes_16() -> None:
    traffic = dequantize_bytes(parameters=64 * 256, passes=1, width=NF4_BYTES)
    assert float(traffic) == 8192 + 256 + 4 + 32768
