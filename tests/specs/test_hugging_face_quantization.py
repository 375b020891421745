from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rows import each

from planner.base.enums import Quantization
from planner.errors import SpecError
from planner.specs.published_quantization import published_types
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
    "MiMo-V2": (
        {"quant_method": "fp8", "weight_block_size": [128, 128], "store_dtype": "mxfp4"},
        {"quantization": "fp8_block", "expert_quantization": "mxfp4"},
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
    "mixed groups of compressed-tensors": (
        {
            "quant_method": "compressed-tensors",
            "format": "mixed-precision",
            "config_groups": {
                "group_0": {**FP8, "targets": [".self_attn.q_proj", ".linear_attn.in_proj_qkv"]},
                "group_1": {
                    "targets": ["re:.*mlp.experts.*"],
                    "weights": {"num_bits": 4, "type": "float", "group_size": 16},
                },
            },
        },
        {"quantization": "fp8", "expert_quantization": "nvfp4"},
    ),
    "mixed layers of ModelOpt": (
        {
            "producer": {"name": "modelopt"},
            "quantization": {
                "quant_algo": "MIXED_PRECISION",
                "exclude_modules": ["mtp*"],
                "quantized_layers": {
                    "model.layers.0.mlp.experts": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                    "model.layers.3.self_attn.q_proj": {"quant_algo": "FP8"},
                    "lm_head": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
                },
            },
        },
        {"quantization": "fp8", "expert_quantization": "nvfp4"},
    ),
    "MXFP8 of ModelOpt": (
        {"quant_method": "modelopt", "quant_algo": "MXFP8"},
        {
            "quantization": "fp8_block",
            "expert_quantization": "fp8_block",
            "checkpoints": [
                {"quantization": "fp8_block", "source": FROM, "group_size": 32, "scale_bytes": 1.0}
            ],
        },
    ),
    "MXFP4 of Quark": (
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32}},
        },
        {"quantization": "mxfp4", "expert_quantization": "mxfp4"},
    ),
    "fp8 of Quark, experts in MXFP4": (
        {
            "quant_method": "quark",
            "global_quant_config": {"weight": {"dtype": "fp8_e4m3", "qscheme": "per_channel"}},
            "layer_quant_config": {"*.mlp.experts.*": {"weight": {"dtype": "fp4_e2m1"}}},
        },
        {"quantization": "fp8", "expert_quantization": "mxfp4"},
    ),
    "two steps of Quark": (
        {
            "quant_method": "quark",
            "global_quant_config": {
                "weight": [{"dtype": "fp8_e4m3"}, {"dtype": "int4"}],
                "input_tensors": {"dtype": "fp8_e4m3"},
            },
        },
        {"quantization": "w4a8", "expert_quantization": "w4a8"},
    ),
    "AutoRound with an underscore": (
        {"quant_method": "auto_round", "bits": 4, "group_size": 128, "sym": True},
        {"quantization": "w4a16", "expert_quantization": "w4a16"},
    ),
    "AutoRound of MXFP4": (
        {"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp", "group_size": 32},
        {"quantization": "mxfp4", "expert_quantization": "mxfp4"},
    ),
    "AutoRound without attention": (
        {
            "quant_method": "auto-round",
            "bits": 4,
            "extra_config": {".*self_attn.*": {"bits": 16, "data_type": "float"}},
        },
        {
            "expert_quantization": "w4a16",
            "checkpoints": [
                {"quantization": "w4a16", "source": FROM, "sixteen_bit": ["attention"]}
            ],
        },
    ),
    "torchao": (
        {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int4WeightOnlyConfig"}}},
        {"quantization": "w4a16", "expert_quantization": "w4a16"},
    ),
    "torchao of old": (
        {"quant_method": "torchao", "quant_type": "float8_dynamic_activation_float8_weight"},
        {"quantization": "fp8", "expert_quantization": "fp8"},
    ),
    "nested scales of bitsandbytes": (
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_use_double_quant": True,
            "llm_int8_skip_modules": ["lm_head"],
        },
        {
            "quantization": "w4a16",
            "expert_quantization": "w4a16",
            "checkpoints": [
                {
                    "quantization": "w4a16",
                    "source": FROM,
                    "group_size": 64,
                    "scale_bytes": 1.015625,
                }
            ],
        },
    ),
    "MLX": (
        {"group_size": 64, "bits": 4},
        {
            "quantization": "w4a16",
            "expert_quantization": "w4a16",
            "checkpoints": [
                {
                    "quantization": "w4a16",
                    "source": FROM,
                    "group_size": 64,
                    "zero_point_bytes": 2.0,
                }
            ],
        },
    ),
}


@each("case", CASES)
def test_published_types_of_weights(case):
    config, expected = CASES[case]
    shape = {"num_hidden_layers": 61, "n_routed_experts": 384}
    inner = {**shape, "quantization_config": config}
    assert published_types(inner) == expected
    assert published_types({"text_config": inner}) == expected


@each(
    ("config", "method"),
    [
        ({"quant_method": "new"}, "new"),
        ({"quant_method": "compressed-tensors", "config_groups": 3}, "compressed-tensors"),
        ({"quant_method": "modelopt", "quant_algo": "W1A1"}, "modelopt"),
        ({"quant_method": "gptq", "bits": 40}, "gptq"),
        ({"quant_method": "torchao", "quant_type": "autoquant"}, "torchao"),
    ],
)
def test_a_format_without_known_bits_is_refused(config, method):
    with pytest.raises(SpecError, match=f"the bits of quant_method {method} are not known"):
        published_types({"quantization_config": config})


_INTEGERS = ("awq", "gptq", "gptqmodel", "auto-round", "auto_round", "hqq", "exl2", "moe_wna16")


@given(
    st.sampled_from([*_INTEGERS, "fp8", "modelopt", "compressed-tensors", "quark", "torchao", "x"]),
    st.dictionaries(
        st.sampled_from(["bits", "quant_algo", "config_groups", "quant_type", "weight_block_size"]),
        st.one_of(st.none(), st.integers(-2, 70), st.text(max_size=8), st.lists(st.integers())),
    ),
)
def test_no_format_is_taken_as_16_bit(method, settings):
    try:
        found = published_types({"quantization_config": {"quant_method": method, **settings}})
    except SpecError:
        return
    assert found["quantization"] in set(Quantization.words()) - {"w16a16"}


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
