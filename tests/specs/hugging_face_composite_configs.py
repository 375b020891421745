"""Parameters of the language model that transformers 5.23 builds from configs it saves."""

from typing import Any

FULL = ["full_attention"]
WINDOW = ["sliding_attention"]
LINEAR = ["linear_attention"]
DENSE = ["dense"]
SPARSE = ["sparse"]

COMPOSITE_CONFIGS: dict[str, tuple[int, dict[str, Any]]] = {
    "gemma4-26b": (5_637_188_608, {
        "model_type": "gemma4", "tie_word_embeddings": True,
        "text_config": {
            "attention_bias": False, "enable_moe_block": True, "head_dim": 256, "hidden_size": 2816,
            "hidden_size_per_layer_input": 0, "intermediate_size": 2112,
            "layer_types": WINDOW * 5 + FULL, "max_position_embeddings": 131072,
            "model_type": "gemma4_text", "moe_intermediate_size": 704, "num_attention_heads": 16,
            "num_experts": 128, "num_hidden_layers": 6, "num_key_value_heads": 8,
            "num_kv_shared_layers": 0,
            "per_layer_config": {"5": {"head_dim": 512, "num_key_value_heads": 2}},
            "sliding_window": 1024, "tie_word_embeddings": True, "top_k_experts": 8,
            "vocab_size": 262144,
        },
    }),
    "cosmos3_edge": (838_887_424, {
        "model_type": "cosmos3_edge", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 2048,
            "intermediate_size": 9216, "max_position_embeddings": 131072, "mlp_bias": False,
            "model_type": "cosmos3_edge_text", "num_attention_heads": 16, "num_hidden_layers": 6,
            "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 131072,
        },
    }),
    "granite_docling": (190_501_888, {
        "model_type": "granite_docling", "tie_word_embeddings": True,
        "text_config": {
            "attention_bias": False, "hidden_size": 1024, "intermediate_size": 2048,
            "max_position_embeddings": 32768, "mlp_bias": False,
            "model_type": "granite_docling_text", "num_attention_heads": 16, "num_hidden_layers": 6,
            "num_key_value_heads": 4, "tie_word_embeddings": True, "vocab_size": 133800,
        },
    }),
    "glm_ocr": (216_032_256, {
        "model_type": "glm_ocr", "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 1024, "intermediate_size": 4096, "max_position_embeddings": 131072,
            "model_type": "glm_ocr_text", "num_attention_heads": 16, "num_hidden_layers": 6,
            "num_key_value_heads": 8, "vocab_size": 59392,
        },
    }),
    "molmo2": (2_402_895_872, {
        "model_type": "molmo2", "tie_word_embeddings": False,
        "text_config": {
            "additional_vocab_size": 128, "attention_bias": False, "head_dim": 128,
            "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 36864,
            "model_type": "molmo2_text", "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 8, "qk_norm_type": "olmo", "tie_word_embeddings": False,
            "vocab_size": 151936,
        },
    }),
    "muse_glimmer": (5_593_336_320, {
        "model_type": "muse_glimmer",
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 6656,
            "intermediate_size": 19968, "layer_types": WINDOW + FULL + WINDOW * 3 + FULL,
            "max_position_embeddings": 131072, "model_type": "muse_glimmer_text",
            "num_attention_heads": 32, "num_hidden_layers": 6, "num_key_value_heads": 2,
            "sliding_window": 2048, "tie_word_embeddings": False, "vocab_size": 202048,
        },
    }),
    "muse_spark": (82_343_929_344, {
        "model_type": "muse_spark",
        "text_config": {
            "attention_bias": False, "head_dim": 64, "hidden_size": 8192,
            "intermediate_size": 16384, "layer_types": WINDOW + FULL + WINDOW * 3 + FULL,
            "max_position_embeddings": 1048576, "mlp_layer_types": SPARSE * 6,
            "model_type": "muse_spark_text", "moe_hidden_size": 4096, "moe_intermediate_size": 4096,
            "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 6,
            "num_key_value_heads": 16, "num_local_experts": 256, "sliding_window": 2048,
            "tie_word_embeddings": False, "vocab_size": 202048,
        },
    }),
    "paddleocr_vl": (190_854_144, {
        "model_type": "paddleocr_vl", "tie_word_embeddings": True,
        "text_config": {
            "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
            "max_position_embeddings": 131072, "model_type": "paddleocr_vl_text",
            "num_attention_heads": 16, "num_hidden_layers": 6, "num_key_value_heads": 2,
            "tie_word_embeddings": True, "use_bias": False, "vocab_size": 103424,
        },
    }),
    "hunyuan_vl": (2_406_008_320, {
        "model_type": "hunyuan_vl", "tie_word_embeddings": True,
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 2048,
            "model_type": "hunyuan_vl_text", "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 32, "tie_word_embeddings": True, "vocab_size": 290943,
        },
    }),
    "step3p7": (15_700_113_760, {
        "model_type": "step3p7", "projector_bias": False,
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 11264, "layer_types": (FULL + WINDOW * 2) * 2,
            "max_position_embeddings": 128000, "mlp_bias": False,
            "mlp_layer_types": DENSE * 3 + SPARSE * 3, "model_type": "step3p5",
            "moe_intermediate_size": 1280, "n_routed_experts": 288, "num_attention_heads": 64,
            "num_experts_per_tok": 8, "num_hidden_layers": 6, "num_key_value_heads": 8,
            "num_sliding_attention_heads": 96,
            "per_layer_config": {layer: {"num_attention_heads": 96} for layer in "1245"},
            "share_expert_dim": 1280, "sliding_window": 512, "tie_word_embeddings": False,
            "vocab_size": 128815,
        },
    }),
    "deepseek_ocr2": (5_011_460_096, {
        "model_type": "deepseek_ocr2", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 11008, "max_position_embeddings": 2048, "mlp_bias": False,
            "mlp_layer_types": DENSE + SPARSE * 5, "model_type": "deepseek_ocr2_text",
            "moe_intermediate_size": 896, "n_routed_experts": 64, "n_shared_experts": 2,
            "num_attention_heads": 32, "num_experts_per_tok": 6, "num_hidden_layers": 6,
            "num_key_value_heads": 32, "tie_word_embeddings": False, "vocab_size": 102400,
        },
    }),
    "qwen2_5_omni_thinker": (2_488_345_088, {
        "model_type": "qwen2_5_omni_thinker", "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 3584, "intermediate_size": 18944, "layer_types": FULL * 6,
            "max_position_embeddings": 32768, "model_type": "qwen2_5_omni_text",
            "num_attention_heads": 28, "num_hidden_layers": 6, "num_key_value_heads": 4,
            "sliding_window": None, "tie_word_embeddings": True, "use_sliding_window": False,
            "vocab_size": 152064,
        },
    }),
    "qwen3_omni_moe_thinker": (3_753_405_952, {
        "model_type": "qwen3_omni_moe_thinker", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
            "intermediate_size": 18944, "max_position_embeddings": 32768, "mlp_only_layers": [],
            "model_type": "qwen3_omni_moe_text", "moe_intermediate_size": 768,
            "num_attention_heads": 32, "num_experts": 128, "num_experts_per_tok": 8,
            "num_hidden_layers": 6, "num_key_value_heads": 4, "sliding_window": None,
            "vocab_size": 3584,
        },
    }),
    "mistral3-mistral4": (20_723_592_704, {
        "model_type": "mistral3", "multimodal_projector_bias": False, "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "first_k_dense_replace": 0, "head_dim": 128,
            "hidden_size": 4096, "intermediate_size": 12288, "kv_lora_rank": 256,
            "max_position_embeddings": 1048576, "model_type": "mistral4",
            "moe_intermediate_size": 2048, "n_routed_experts": 128, "n_shared_experts": 1,
            "num_attention_heads": 32, "num_experts_per_tok": 4, "num_hidden_layers": 6,
            "num_key_value_heads": 32, "q_lora_rank": 1024, "qk_nope_head_dim": 64,
            "qk_rope_head_dim": 64, "tie_word_embeddings": False, "v_head_dim": 128,
            "vocab_size": 131072,
        },
    }),
    "emu3": (2_821_099_520, {
        "model_type": "emu3", "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 9216,
            "model_type": "emu3_text_model", "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 184622,
        },
    }),
    "granite4_vision": (1_476_448_256, {
        "model_type": "granite4_vision", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "hidden_size": 4096, "intermediate_size": 11008,
            "max_position_embeddings": 2048, "mlp_bias": False,
            "model_type": "granite4_vision_text", "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 32, "tie_word_embeddings": False, "vocab_size": 32000,
        },
    }),
    "internvl-tied": (2_648_305_664, {
        "model_type": "internvl", "tie_word_embeddings": True,
        "text_config": {
            "hidden_size": 4096, "intermediate_size": 22016, "layer_types": FULL * 6,
            "max_position_embeddings": 32768, "model_type": "qwen2", "num_attention_heads": 32,
            "num_hidden_layers": 6, "num_key_value_heads": 32, "sliding_window": None,
            "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
        },
    }),
    "fuyu": (3_355_772_416, {
        "model_type": "fuyu", "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 4096, "intermediate_size": 16384, "max_position_embeddings": 16384,
            "model_type": "persimmon", "num_attention_heads": 64, "num_hidden_layers": 6,
            "qk_layernorm": True, "tie_word_embeddings": False, "vocab_size": 262144,
        },
    }),
    "aria": (3_684_945_920, {
        "model_type": "aria", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 4096, "max_position_embeddings": 2048, "mlp_bias": False,
            "model_type": "aria_text", "moe_num_experts": 8, "moe_num_shared_experts": 2,
            "moe_topk": 2, "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 32, "tie_word_embeddings": False, "vocab_size": 32000,
        },
    }),
    "llava-mistral": (1_570_820_096, {
        "model_type": "llava", "multimodal_projector_bias": True, "tie_word_embeddings": False,
        "text_config": {
            "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336,
            "max_position_embeddings": 131072, "model_type": "mistral", "num_attention_heads": 32,
            "num_hidden_layers": 6, "num_key_value_heads": 8, "sliding_window": 4096,
            "tie_word_embeddings": False, "vocab_size": 32000,
        },
    }),
    "qwen3_vl_moe": (3_838_029_312, {
        "model_type": "qwen3_vl_moe", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048,
            "intermediate_size": 5632, "max_position_embeddings": 128000, "mlp_only_layers": [],
            "model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 1408,
            "num_attention_heads": 16, "num_experts_per_tok": 4, "num_hidden_layers": 6,
            "num_key_value_heads": 16, "num_local_experts": 60, "sliding_window": None,
            "tie_word_embeddings": True, "vocab_size": 151936,
        },
    }),
    "exaone4_5": (2_449_528_320, {
        "model_type": "exaone4_5", "tie_word_embeddings": False,
        "text_config": {
            "hidden_size": 4096, "intermediate_size": 16384,
            "layer_types": WINDOW * 3 + FULL + WINDOW * 2, "max_position_embeddings": 2048,
            "model_type": "exaone4", "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 32, "sliding_window": 4096, "sliding_window_pattern": 4,
            "tie_word_embeddings": False, "vocab_size": 102400,
        },
    }),
    "nemotron_h_omni": (1_968_355_720, {
        "model_type": "nemotron_h_omni",
        "text_config": {
            "attention_bias": False, "conv_kernel": 4, "expand": 2, "head_dim": 128,
            "hidden_size": 4096, "intermediate_size": 21504,
            "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"],
            "mamba_head_dim": 64, "mamba_hidden_act": "silu", "mamba_num_heads": 128,
            "mamba_proj_bias": False, "max_position_embeddings": 4096, "mlp_bias": False,
            "model_type": "nemotron_h", "moe_intermediate_size": 7688,
            "moe_shared_expert_intermediate_size": 7688, "moe_shared_expert_overlap": True,
            "n_groups": 8, "n_routed_experts": 8, "n_shared_experts": 1, "num_attention_heads": 32,
            "num_experts_per_tok": 2, "num_key_value_heads": 8, "sliding_window": None,
            "ssm_state_size": 128, "tie_word_embeddings": False, "use_bias": False,
            "use_conv_bias": True, "vocab_size": 131072,
        },
    }),
    "minicpmv4_6": (3_336_000_960, {
        "model_type": "minicpmv4_6", "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "head_dim": 256, "hidden_size": 4096,
            "intermediate_size": 12288, "layer_types": LINEAR * 3 + FULL + LINEAR * 2,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "linear_value_head_dim": 128,
            "max_position_embeddings": 32768, "model_type": "qwen3_5_text",
            "num_attention_heads": 16, "num_hidden_layers": 6, "num_key_value_heads": 4,
            "tie_word_embeddings": False, "vocab_size": 248320,
        },
    }),
    "voxtral": (1_447_074_816, {
        "model_type": "voxtral", "hidden_size": 3072,
        "text_config": {
            "attention_bias": False, "head_dim": 128, "hidden_size": 3072,
            "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
            "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 6,
            "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 131072,
        },
    }),
    "qwen2_audio": (3_270_635_520, {
        "model_type": "qwen2_audio",
        "text_config": {
            "hidden_size": 4096, "intermediate_size": 22016, "layer_types": FULL * 6,
            "max_position_embeddings": 32768, "model_type": "qwen2", "num_attention_heads": 32,
            "num_hidden_layers": 6, "num_key_value_heads": 32, "sliding_window": None,
            "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 151936,
        },
    }),
    "granite_speech": (1_345_376_256, {
        "model_type": "granite_speech", "tie_word_embeddings": True, "window_size": 15,
        "text_config": {
            "attention_bias": False, "hidden_size": 4096, "intermediate_size": 11008,
            "max_position_embeddings": 2048, "mlp_bias": False, "model_type": "granite",
            "num_attention_heads": 32, "num_hidden_layers": 6, "num_key_value_heads": 32,
            "tie_word_embeddings": False, "vocab_size": 32000,
        },
    }),
}  # fmt: skip
