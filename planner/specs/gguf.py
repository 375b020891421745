"""The types of GGUF files."""

from __future__ import annotations

from collections.abc import Mapping

from planner.base.enums import Quantization

GGUF_BITS: Mapping[Quantization, float] = {
    Quantization.Q8_0: 8.5008,
    Quantization.Q6_K: 6.5633,
    Quantization.Q5_K_M: 5.7036,
    Quantization.Q5_K_S: 5.5704,
    Quantization.Q5_1: 6.04,
    Quantization.Q5_0: 5.57,
    Quantization.Q4_1: 5.11,
    Quantization.Q4_K_M: 4.8944,
    Quantization.Q4_K_S: 4.6672,
    Quantization.Q4_0: 4.64,
    Quantization.IQ4_NL: 4.6818,
    Quantization.IQ4_XS: 4.4597,
    Quantization.Q3_K_L: 4.2979,
    Quantization.Q3_K_M: 4,
    Quantization.Q3_K_S: 3.6429,
    Quantization.IQ3_M: 3.7628,
    Quantization.IQ3_S: 3.6606,
    Quantization.IQ3_XS: 3.4977,
    Quantization.IQ3_XXS: 3.2548,
    Quantization.Q2_K: 3.1593,
    Quantization.Q2_K_S: 2.9697,
    Quantization.IQ2_M: 2.9294,
    Quantization.IQ2_S: 2.7403,
    Quantization.IQ2_XS: 2.5882,
    Quantization.IQ2_XXS: 2.3824,
    Quantization.IQ1_M: 2.146,
    Quantization.IQ1_S: 2.0042,
}
"""Bits of a weight, by type: the mean of a whole file, whose embedding, output and some matrices
have more bits than the type is called by.

Of Llama-3.1-8B in tools/quantize/README.md of github.com/ggml-org/llama.cpp@311c2c9; Q3_K_M, Q4_0,
Q4_1, Q5_0 and Q5_1 from sizes of Llama-3-8B in tools/quantize/quantize.cpp (3.74, 4.34, 4.78, 5.21
and 5.65 GiB of 8.03 billion weights).
"""


def gguf_word(text: str) -> str | None:
    """The word of a type of GGUF files by any of its names; None of what is none.

    >>> gguf_word("Q4_K_M"), gguf_word("UD-Q4_K_XL"), gguf_word("q6"), gguf_word("fp8")
    ('q4_k_m', 'q4_k_m', 'q6_k', None)
    """
    word = Quantization.meant(text.lower().removeprefix("ud-"))
    return word if word in _WORDS else None


_WORDS = frozenset(code.word for code in GGUF_BITS)
