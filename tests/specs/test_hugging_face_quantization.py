from __future__ import annotations

import pytest
from rows import each

from planner.errors import SpecError
from planner.specs.hugging_face import published_types
from planner.specs.quantization import Checkpoint
from planner.specs.spec_files import check_spec

INT4 = {"weights": {"num_bits": 4, "type": "int"}, "input_activations": None}
FP8 = {
    "weights": {"num_bits": 8, "type": "float"},
    "input_activations": {"num_bits": 8, "type": "float"},
}
FROM = "quantization_config of the config.json"
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
            "config_groups": {"group_0": {"weights": {**INT4["weights"], "group_size": 32}}},
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
        },
        {
            "expert_quantization": "w4a16",
            "checkpoints": [
                {
                    "quantization": "w4a16",
                    "source": FROM,
                    "sixteen_bit": ["attention", "shared_experts"],
                    "group_size": 32,
                }
            ],
        },
    ),
    "compressed fp8": (
        {"quant_method": "compressed-tensors", "config_groups": {"group_0": FP8}},
        {"quantization": "fp8", "expert_quantization": "fp8"},
    ),
    "modelopt": (
        {"quant_method": "modelopt", "quant_algo": "NVFP4"},
        {"quantization": "nvfp4", "expert_quantization": "nvfp4"},
    ),
    "compressed NVFP4": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                    "input_activations": {"num_bits": 4, "type": "float"},
                }
            },
        },
        {"quantization": "nvfp4", "expert_quantization": "nvfp4"},
    ),
    "compressed MXFP4": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}}
            },
        },
        {"quantization": "mxfp4", "expert_quantization": "mxfp4"},
    ),
    "compressed fp8 of blocks": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {**FP8, "weights": {**FP8["weights"], "strategy": "block"}}
            },
        },
        {"quantization": "fp8_block", "expert_quantization": "fp8_block"},
    ),
    "compressed 4 bit, 8-bit inputs": (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {
                    "weights": INT4["weights"],
                    "input_activations": FP8["input_activations"],
                }
            },
        },
        {"quantization": "w4a8", "expert_quantization": "w4a8"},
    ),
    "modelopt with blocks": (
        {"quant_method": "modelopt_fp8", "quant_algo": "FP8_PB_WO"},
        {"quantization": "fp8_block", "expert_quantization": "fp8_block"},
    ),
    "FBGEMM": (
        {"quant_method": "fbgemm_fp8"},
        {"quantization": "fp8", "expert_quantization": "fp8"},
    ),
    "bitsandbytes of 4 bit": (
        {"quant_method": "bitsandbytes", "load_in_4bit": True},
        {"quantization": "w4a16", "expert_quantization": "w4a16"},
    ),
    "bitsandbytes of 8 bit": (
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        {"quantization": "w8a16", "expert_quantization": "w8a16"},
    ),
    "old AWQ": (
        {"quant_method": "awq", "w_bit": 4},
        {"quantization": "w4a16", "expert_quantization": "w4a16"},
    ),
    "unknown": ({"quant_method": "new"}, {}),
    "no groups": ({"quant_method": "compressed-tensors", "config_groups": 3}, {}),
}


@each("case", CASES)
def test_published_types_of_weights(case):
    config, expected = CASES[case]
    shape = {"num_hidden_layers": 61, "n_routed_experts": 384}
    inner = {**shape, "quantization_config": config}
    assert published_types(inner) == expected
    assert published_types({"text_config": inner}) == expected


def test_modules_of_a_dense_model_that_stay_in_16_bit():
    left_out = [
        *(f"model.layers.{i}.self_attn.{name}_proj" for i in range(126) for name in "qkvo"),
        *(f"model.layers.{i}.mlp.{name}_proj" for i in (0, 125) for name in ("down", "gate", "up")),
        *(f"model.layers.{i}.post_attention_layernorm" for i in range(126)),
        "lm_head",
    ]
    config = {"quant_method": "fp8", "modules_to_not_convert": left_out}
    found = published_types({"num_hidden_layers": 126, "quantization_config": config})
    assert found["quantization"] == "fp8"
    assert found["checkpoints"] == [
        {
            "quantization": "fp8",
            "source": FROM,
            "sixteen_bit": ["attention"],
            "sixteen_bit_layers": 2,
        }
    ]


def test_zero_points_of_groups():
    config = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}
    (stored,) = published_types({"quantization_config": config})["checkpoints"]
    assert (stored["group_size"], stored["zero_point_bytes"]) == (64, 0.5)


def test_a_scale_of_32_weights_of_8_bit():
    """MiniMax-M3-MXFP8: a byte of scale for 32 weights."""
    config = {"quant_method": "mxfp8", "weight_block_size": [1, 32]}
    found = published_types({"num_local_experts": 128, "quantization_config": config})
    assert found["quantization"] == found["expert_quantization"] == "fp8_block"
    (stored,) = found["checkpoints"]
    assert (stored["group_size"], stored["scale_bytes"]) == (32, 1.0)


def test_a_checkpoint_names_parts_that_there_are():
    with pytest.raises(SpecError, match=r"the parts are attention, feed_forward, shared_experts"):
        check_spec(
            Checkpoint,
            {"quantization": "fp8", "source": "test", "sixteen_bit": ["router"]},
            where="a checkpoint",
        )
