"""Bytes of a weight, from the ``quantization_config`` of a checkpoint."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving_cases import serving_setting

from planner.base.enums import Quantization
from planner.specs.published_quantization import published_types
from planner.specs.quantization import Checkpoint
from planner.specs.spec_files import check_spec

_SETTING = serving_setting("llama-3.1-8b", "h100-sxm-80gb")


def stored_bytes(config: dict[str, object], part: str = "feed_forward") -> float:
    """Bytes of a weight of a dense model with such a config."""
    table = published_types({"num_hidden_layers": 32, "quantization_config": config})
    checkpoints = table.get("checkpoints", [])
    assert isinstance(checkpoints, list)
    stored = tuple(check_spec(Checkpoint, one, where="a checkpoint") for one in checkpoints)
    setting = replace(_SETTING, model=replace(_SETTING.model, checkpoints=stored))
    code = Quantization[str(table["quantization"]).upper()]
    return float(setting.weight_formats.bytes_of(part, np.asarray(code)))


@given(
    st.sampled_from(["awq", "gptq", "gptqmodel", "auto-round", "auto_round", "hqq", "exl2"]),
    st.integers(2, 8),
    st.sampled_from([32, 64, 128]),
    st.booleans(),
)
def test_integers_are_stored_in_their_bits_and_scales(
    method: str, bits: int, group_size: int, has_zeros: bool
) -> None:
    config = {"quant_method": method, "bits": bits, "group_size": group_size, "sym": not has_zeros}
    expected = bits / 8 + (2.0 + 0.5 * has_zeros) / group_size
    if bits > 4 and group_size == 128 and not has_zeros:
        expected = bits / 8  # the scales of the format are those of channels
    assert stored_bytes(config) == pytest.approx(expected)


def test_attention_in_8_bit_beside_dense_blocks_in_4() -> None:
    """As nvidia/Qwen3.6-27B-NVFP4 has it."""
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.gate_proj": {"quant_algo": "NVFP4"},
        "model.layers.0.mlp.up_proj": {"quant_algo": "NVFP4"},
    }
    config: dict[str, object] = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    assert stored_bytes(config, "attention") == 1.0
    assert stored_bytes(config) == pytest.approx(0.5 + 1 / 16)


@pytest.mark.parametrize(
    ("nested", "expected"), [(True, 0.5 + (1 + 4 / 256) / 64), (False, 0.5 + 4 / 64)]
)
def test_scales_of_bitsandbytes(nested: bool, expected: float) -> None:
    """Blocks of 64 with a 32-bit scale, or one of 8 bits and a 256th (QLoRA, arXiv:2305.14314)."""
    config = {
        "quant_method": "bitsandbytes",
        "load_in_4bit": True,
        "bnb_4bit_use_double_quant": nested,
    }
    assert stored_bytes(config) == pytest.approx(expected)
