"""Adapters and 4-bit weights against published counts."""

import pytest

from planner.formulas.memory import NF4_BYTES, adapter_parameters, dequantize_bytes


def test_nf4_with_double_quantization_takes_4_127_bits() -> None:
    """arXiv:2305.14314, section 3: 4 bits, 8/64 and 32/(64 * 256) more."""
    assert pytest.approx(4.127, abs=5e-4) == 8 * NF4_BYTES


def test_lora_paper_gpt_3() -> None:
    """arXiv:2106.09685, section 4.2: rank 4 on queries and values of GPT-3 is 18 million."""
    one = adapter_parameters(depth=12288, columns=12288, lora_rank=4)
    assert 96 * 2 * float(one) == pytest.approx(18.9e6, rel=0.01)


def test_one_pass_of_dequantization_reads_4_bits_and_writes_16() -> None:
    assert float(dequantize_bytes(parameters=64 * 256, passes=1)) == 8192 + 256 + 4 + 32768
