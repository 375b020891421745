"""Configs of models of other families."""

from typing import Any

OTHER_CONFIGS: dict[str, dict[str, Any]] = {
    "glm-4-9b-chat-hf": {
        "model_type": "glm", "attention_bias": True, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 13696, "max_position_embeddings": 131072, "num_attention_heads": 32,
        "num_hidden_layers": 40, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False, "vocab_size": 151552,
    },
    "glm-4.1v-9b": {
        "model_type": "glm4v", "tie_word_embeddings": False,
        "vision_config": {"hidden_size": 1536},
        "text_config": {
            "model_type": "glm4v_text", "attention_bias": True, "hidden_size": 4096,
            "intermediate_size": 13696, "max_position_embeddings": 65536, "num_attention_heads": 32,
            "num_hidden_layers": 40, "num_key_value_heads": 2, "vocab_size": 151552,
        },
    },
    "glm-4.5v": {
        "model_type": "glm4v_moe", "tie_word_embeddings": False,
        "vision_config": {"hidden_size": 1536},
        "text_config": {
            "model_type": "glm4v_moe_text", "attention_bias": True, "first_k_dense_replace": 1,
            "head_dim": 128, "hidden_size": 4096, "intermediate_size": 10944,
            "max_position_embeddings": 65536, "moe_intermediate_size": 1408, "n_group": 1,
            "n_routed_experts": 128, "n_shared_experts": 1, "num_attention_heads": 96,
            "num_experts_per_tok": 8, "num_hidden_layers": 46, "num_key_value_heads": 8,
            "num_nextn_predict_layers": 1, "partial_rotary_factor": 0.5,
            "tie_word_embeddings": False, "use_qk_norm": False, "vocab_size": 151552,
        },
    },
    "ministral-8b": {
        "model_type": "ministral", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
        "layer_types": ["full_attention", *["sliding_attention"] * 3] * 9,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "sliding_window": 32768, "tie_word_embeddings": False,
        "vocab_size": 131072,
    },
    "ministral3-8b": {
        "model_type": "ministral3", "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 262144, "num_attention_heads": 32,
        "num_hidden_layers": 34, "num_key_value_heads": 8, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 131072,
    },
    "olmo-3-32b": {
        "model_type": "olmo3", "attention_bias": False, "hidden_size": 5120,
        "intermediate_size": 27648, "max_position_embeddings": 4096, "num_attention_heads": 40,
        "num_hidden_layers": 64, "num_key_value_heads": 8, "sliding_window": 4096,
        "tie_word_embeddings": False, "vocab_size": 100278,
    },
    "granite-3.1-3b-a800m": {
        "model_type": "granitemoe", "attention_bias": False, "hidden_size": 1536,
        "intermediate_size": 512, "max_position_embeddings": 131072, "num_attention_heads": 24,
        "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 40, "tie_word_embeddings": True, "vocab_size": 49152,
    },
    "granitemoeshared": {
        "model_type": "granitemoeshared", "attention_bias": False, "hidden_size": 1536,
        "intermediate_size": 512, "max_position_embeddings": 131072, "num_attention_heads": 24,
        "num_experts_per_tok": 8, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 40, "shared_intermediate_size": 1024, "tie_word_embeddings": True,
        "vocab_size": 49152,
    },
    "stablelm-2-1.6b": {
        "model_type": "stablelm", "hidden_size": 2048, "intermediate_size": 5632,
        "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 24,
        "num_key_value_heads": 32, "tie_word_embeddings": False, "use_qkv_bias": True,
        "vocab_size": 100352,
    },
    "stablelm-2-12b": {
        "model_type": "stablelm", "hidden_size": 5120, "intermediate_size": 13824,
        "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 8, "qk_layernorm": True, "tie_word_embeddings": False,
        "use_parallel_residual": True, "use_qkv_bias": False, "vocab_size": 100352,
    },
    "ernie-4.5-0.3b": {
        "model_type": "ernie4_5", "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
        "max_position_embeddings": 131072, "num_attention_heads": 16, "num_hidden_layers": 18,
        "num_key_value_heads": 2, "tie_word_embeddings": True, "use_bias": False,
        "vocab_size": 103424,
    },
    "hunyuan-7b": {
        "model_type": "hunyuan_v1_dense", "attention_bias": False, "head_dim": 128,
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "tie_word_embeddings": True, "use_cla": False, "use_qk_norm": True, "vocab_size": 128167,
    },
    "command-a-vision": {
        "model_type": "cohere2_vision", "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "cohere2", "attention_bias": False, "head_dim": 128, "hidden_size": 12288,
            "intermediate_size": 36864, "max_position_embeddings": 131072,
            "num_attention_heads": 96, "num_hidden_layers": 64, "num_key_value_heads": 8,
            "sliding_window": 4096, "sliding_window_pattern": 4, "use_qk_norm": False,
            "vocab_size": 256000,
        },
    },
    "nemotron-4-mini-hindi-4b": {
        "model_type": "nemotron", "hidden_size": 3072, "intermediate_size": 9216,
        "kv_channels": 128, "max_position_embeddings": 4096, "num_attention_heads": 24,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "tie_word_embeddings": False,
        "vocab_size": 256000,
    },
    "afm-4.5b": {
        "model_type": "arcee", "attention_bias": False, "head_dim": 128, "hidden_size": 2560,
        "intermediate_size": 18432, "max_position_embeddings": 65536, "mlp_bias": False,
        "num_attention_heads": 20, "num_hidden_layers": 36, "num_key_value_heads": 4,
        "tie_word_embeddings": False, "vocab_size": 128005,
    },
    "internlm3-8b": {
        "model_type": "internlm3", "bias": False, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 10240, "max_position_embeddings": 32768, "num_attention_heads": 32,
        "num_hidden_layers": 48, "num_key_value_heads": 2, "qkv_bias": False,
        "tie_word_embeddings": False, "vocab_size": 128512,
    },
    "qwen2-vl-2b": {
        "model_type": "qwen2_vl", "hidden_size": 1536, "intermediate_size": 8960,
        "max_position_embeddings": 32768, "max_window_layers": 28, "num_attention_heads": 12,
        "num_hidden_layers": 28, "num_key_value_heads": 2, "sliding_window": 32768,
        "tie_word_embeddings": True, "use_sliding_window": False, "vocab_size": 151936,
        "vision_config": {"depth": 32},
    },
    "qwen3-vl-8b": {
        "model_type": "qwen3_vl", "tie_word_embeddings": False, "vision_config": {"depth": 27},
        "text_config": {
            "model_type": "qwen3_vl_text", "attention_bias": False, "head_dim": 128,
            "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 262144,
            "num_attention_heads": 32, "num_hidden_layers": 36, "num_key_value_heads": 8,
            "vocab_size": 151936,
        },
    },
    "internlm2.5-20b": {
        "model_type": "internlm2", "bias": False, "hidden_size": 6144, "intermediate_size": 16384,
        "max_position_embeddings": 32768, "num_attention_heads": 48, "num_hidden_layers": 48,
        "num_key_value_heads": 8, "tie_word_embeddings": False, "vocab_size": 92544,
    },
    "exaone-3.5-7.8b": {
        "model_type": "exaone", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_layers": 32, "tie_word_embeddings": False, "vocab_size": 102400,
    },
    "xverse-13b": {
        "model_type": "xverse", "hidden_size": 5120, "intermediate_size": 13824,
        "max_position_embeddings": 8192, "num_attention_heads": 40, "num_hidden_layers": 40,
        "tie_word_embeddings": False, "vocab_size": 100534,
    },
    "exaone-4.0-1.2b": {
        "model_type": "exaone4", "head_dim": 64, "hidden_size": 2048, "intermediate_size": 4096,
        "layer_types": ["full_attention"] * 30, "max_position_embeddings": 65536,
        "num_attention_heads": 32, "num_hidden_layers": 30, "num_key_value_heads": 8,
        "sliding_window": None, "sliding_window_pattern": None, "tie_word_embeddings": True,
        "vocab_size": 102400,
    },
}  # fmt: skip
