from __future__ import annotations

import pytest

from planner.specs.hugging_face_quantization import published_types

INT4 = {"weights": {"num_bits": 4, "type": "int"}, "input_activations": None}
FP8 = {
    "weights": {"num_bits": 8, "type": "float"},
    "input_activations": {"num_bits": 8, "type": "float"},
}
CASES = {
    "16 bit": (None, {}),
    "DeepSeek-V3": (
        {"quant_method": "fp8", "weight_block_size": [128, 128]},
        {"quantization": "fp8_block", "expert_quantization": "fp8_block"},
    ),
    "fp8 per tensor": (
        {"quant_method": "fp8"},
        {"quantization": "fp8", "expert_quantization": "fp8"},
    ),
    "gpt-oss": (
        {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]},
        {"expert_quantization": "mxfp4"},
    ),
    "AWQ": (
        {"quant_method": "awq", "bits": 4},
        {"quantization": "w4a16", "expert_quantization": "w4a16"},
    ),
    "Kimi K2 Thinking": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"group_0": INT4},
            "ignore": ["lm_head", "re:.*self_attn.*"],
        },
        {"expert_quantization": "w4a16"},
    ),
    "compressed fp8": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": FP8}},
        {"quantization": "fp8", "expert_quantization": "fp8"},
    ),
    "modelopt": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"quantization": "nvfp4", "expert_quantization": "nvfp4"},
    ),
    "unknown": ({"quant_method": "new"}, {}),
    "no groups": ({"quant_method": "compressed-tensors", "config_groups": 3}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_published_types_of_weights(case):
    config, expected = CASES[case]
    assert published_types({"quantization_config": config}) == expected
    assert published_types({"text_config": {"quantization_config": config}}) == expected
