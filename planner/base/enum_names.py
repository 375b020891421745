"""Other names that people give the words of enumerations, by the name of the enumeration."""

from __future__ import annotations

from collections.abc import Mapping

_SIXTEEN_BIT = ("bf16", "fp16", "bfloat16", "float16", "half", "16bit", "none")
_FP8_NAMES = (
    "fp8_e4m3", "float8", "w8a8_fp8", "fp8_w8a8", "fp8_tensor", "fp8_dynamic", "fbgemm_fp8",
    "ptpc_fp8", "modelopt", "modelopt_fp8",
)  # fmt: skip
# Checkpoints and engines name the format, the method or its authors' library.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "Quantization": {
        **dict.fromkeys(_SIXTEEN_BIT, "w16a16"),
        **dict.fromkeys(("int8", "w8a8_int8", "smoothquant"), "w8a8"),
        **dict.fromkeys(
            (
                "int8_weight_only",
                "gptq_int8",
                "awq_int8",
                "bnb_8bit",
                "bnb_int8",
                "bitsandbytes_8bit",
                "llm_int8",
                "eetq",
            ),
            "w8a16",
        ),
        **dict.fromkeys(
            (
                "int4",
                "int4_weight_only",
                "awq",
                "awq_int4",
                "awq_marlin",
                "gptq",
                "gptq_int4",
                "gptq_marlin",
                "marlin",
                "nf4",
                "bnb",
                "bnb_4bit",
                "bnb_nf4",
                "bitsandbytes",
                "bitsandbytes_4bit",
                "hqq",
                "auto_round",
            ),
            "w4a16",
        ),
        **dict.fromkeys(("qserve", "qoq", "w4afp8"), "w4a8"),
        **dict.fromkeys(_FP8_NAMES, "fp8"),
        **dict.fromkeys(("deepseek_fp8", "blockwise_fp8", "fp8_blockwise"), "fp8_block"),
        **dict.fromkeys(("fp4", "modelopt_fp4", "w4a4_nvfp4"), "nvfp4"),
        # Of GGUF files, dynamic ones among them.
        **dict.fromkeys(("q8", "q8_1", "q8_k", "q8_k_xl"), "q8_0"),
        **dict.fromkeys(("q6", "q6_k_l", "q6_k_xl"), "q6_k"),
        **dict.fromkeys(("q5", "q5_k", "q5_k_l", "q5_k_xl"), "q5_k_m"),
        **dict.fromkeys(("q4", "q4_k", "q4_k_l", "q4_k_xl"), "q4_k_m"),
        **dict.fromkeys(("q4_0_4_4", "q4_0_4_8", "q4_0_8_8"), "q4_0"),
        **dict.fromkeys(("q3", "q3_k"), "q3_k_m"),
        **dict.fromkeys(("q3_k_xl",), "q3_k_l"),
        **dict.fromkeys(("q2", "q2_k_l", "q2_k_xl"), "q2_k"),
    },
    "ComputePrecision": {
        **dict.fromkeys(("bfloat16",), "bf16"),
        **dict.fromkeys(("float16", "half"), "fp16"),
        **dict.fromkeys(("float8", "fp8_e4m3"), "fp8"),
        **dict.fromkeys(("nvfp4",), "fp4"),
        **dict.fromkeys(("float32", "single", "32"), "fp32"),
        **dict.fromkeys(("w8a8", "int8_mixed_precision"), "int8"),
    },
    "Fp8Recipe": {
        **dict.fromkeys(("current", "per_tensor"), "tensorwise"),
        **dict.fromkeys(("subchannel", "block"), "blockwise"),
    },
    "AttentionKernel": {
        **dict.fromkeys(("flash_attention_2", "flash_attn_2", "flash_attn2"), "fa2"),
        **dict.fromkeys(("flash_attention_3", "flash_attn_3", "flash_attn3"), "fa3"),
        **dict.fromkeys(("flash_attention_4", "flash_attn_4", "flash_attn4"), "fa4"),
        **dict.fromkeys(("flex", "flex_attention"), "triton"),
        **dict.fromkeys(("unfused", "dot_product"), "eager"),
        **dict.fromkeys(("cudnn_flash_te", "cudnn_flash_jax", "fused"), "cudnn"),
    },
    "ExpertCompute": {
        **dict.fromkeys(("grouped_mm", "grouped_gemm"), "grouped"),
        **dict.fromkeys(("eager", "sequential"), "loop"),
    },
    "TorchCompile": {
        **dict.fromkeys(("0", "no", "off", "none", "eager"), "false"),
        **dict.fromkeys(("1", "yes", "on", "inductor", "compiled"), "true"),
    },
    "LossKernel": {
        **dict.fromkeys(
            ("liger", "fused_linear", "linear_fused", "cce", "cut_cross_entropy"), "linear"
        ),
        **dict.fromkeys(("te", "liger_cross_entropy"), "fused"),
    },
    # Policies of MaxText (src/maxtext/layers/decoders.py at e591f30, get_remat_policy).
    "KeptTensors": {
        **dict.fromkeys(("full", "remat"), "none"),
        "save_out_proj": "out_proj",
        "save_qkv_proj": "qkv_proj",
        "qkv_proj_offloaded": "qkv_proj",
        "save_dot_except_mlp": "qkv_proj+out_proj",
        "save_dot_with_context_except_mlp": "qkv_proj+context+out_proj",
        "save_dot_except_mlpwi": "qkv_proj+out_proj+mlpwo",
        "minimal": "qkv_proj+out_proj+mlpwi+mlpwo",
        "minimal_offloaded": "qkv_proj+out_proj+mlpwi+mlpwo",
        **dict.fromkeys(
            ("minimal_with_context", "minimal_flash"), "qkv_proj+context+out_proj+mlpwi+mlpwo"
        ),
    },
    # Levels of llm-analysis, activation functions as NeMo and llm-analysis have them.
    "RecomputedModules": {
        **dict.fromkeys(("attn", "self_attention", "self_attn"), "attention"),
        **dict.fromkeys(("norm_attention_norm", "norm_attn_norm"), "attention+layernorm"),
        **dict.fromkeys(("attn_compute", "attention_core"), "core_attn"),
        **dict.fromkeys(("gelu", "swiglu", "activation_function"), "mlp_act+moe_act"),
        "feed_forward": "mlp+moe",
    },
    "OptimizerKind": {**dict.fromkeys(("adamw",), "adam")},
    "PipelineSchedule": {
        **dict.fromkeys(("1f1b",), "one_forward_one_backward"),
        **dict.fromkeys(("interleaved_1f1b",), "interleaved"),
        **dict.fromkeys(("zb_h1", "zb1p", "zbh1"), "zero_bubble"),
    },
    "TokenDispatcher": {**dict.fromkeys(("deepep", "hybridep"), "flex")},
    "ContextExchange": {
        **dict.fromkeys(("ring",), "p2p"),
        **dict.fromkeys(("ulysses", "all_to_all"), "a2a"),
    },
    "CacheType": {
        **dict.fromkeys(("fp16", "bfloat16", "float16", "half", "16bit", "auto"), "bf16"),
        **dict.fromkeys(("fp8_e4m3", "fp8_e5m2", "float8"), "fp8"),
    },
}
