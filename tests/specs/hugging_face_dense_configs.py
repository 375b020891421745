"""Configs of dense models, next to the built-in model they are."""

from typing import Any

DENSE_CONFIGS: dict[str, dict[str, Any]] = {
    "gemma-3-1b": {
        "model_type": "gemma3_text", "attention_bias": False, "head_dim": 256, "hidden_size": 1152,
        "intermediate_size": 6912, "max_position_embeddings": 32768, "num_attention_heads": 4,
        "num_hidden_layers": 26, "num_key_value_heads": 1, "sliding_window": 512,
        "sliding_window_pattern": 6, "vocab_size": 262144,
    },
    "gemma-3-4b": {
        "model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
            "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
    },
    "gemma-3-12b": {
        "model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "gemma3_text", "hidden_size": 3840, "intermediate_size": 15360,
            "num_attention_heads": 16, "num_hidden_layers": 48, "num_key_value_heads": 8,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
    },
    "gemma-3-27b": {
        "model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"hidden_size": 1152},
        "text_config": {
            "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376,
            "intermediate_size": 21504, "num_attention_heads": 32, "num_hidden_layers": 62,
            "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
        },
    },
    "glm-4-32b": {
        "model_type": "glm4", "attention_bias": False, "head_dim": 128, "hidden_size": 6144,
        "intermediate_size": 23040, "max_position_embeddings": 32768, "num_attention_heads": 48,
        "num_hidden_layers": 61, "num_key_value_heads": 2, "partial_rotary_factor": 0.5,
        "tie_word_embeddings": False, "vocab_size": 151552,
    },
    "mistral-small-24b": {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 40,
        "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 131072,
    },
    "mistral-small-3.1-24b": {
        "model_type": "mistral3", "spatial_merge_size": 2, "vision_config": {"hidden_size": 1024},
        "text_config": {
            "model_type": "mistral", "head_dim": 128, "hidden_size": 5120,
            "intermediate_size": 32768, "max_position_embeddings": 131072,
            "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
            "sliding_window": None, "vocab_size": 131072,
        },
    },
    "mistral-large-2-123b": {
        "model_type": "mistral", "head_dim": 128, "hidden_size": 12288, "intermediate_size": 28672,
        "max_position_embeddings": 131072, "num_attention_heads": 96, "num_hidden_layers": 88,
        "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 32768,
    },
    "ministral-3-3b": {
        "model_type": "mistral3", "image_token_index": 10, "spatial_merge_size": 2,
        "vision_config": {"hidden_size": 1024},
        "text_config": {
            "model_type": "ministral3", "head_dim": 128, "hidden_size": 3072,
            "intermediate_size": 9216, "max_position_embeddings": 262144, "num_attention_heads": 32,
            "num_hidden_layers": 26, "num_key_value_heads": 8, "sliding_window": None,
            "tie_word_embeddings": True, "vocab_size": 131072,
        },
    },
    "ministral-3-8b": {
        "model_type": "mistral3", "image_token_index": 10, "spatial_merge_size": 2,
        "vision_config": {"hidden_size": 1024},
        "text_config": {
            "model_type": "ministral3", "head_dim": 128, "hidden_size": 4096,
            "intermediate_size": 14336, "max_position_embeddings": 262144,
            "num_attention_heads": 32, "num_hidden_layers": 34, "num_key_value_heads": 8,
            "sliding_window": None, "vocab_size": 131072,
        },
    },
    "olmo-2-7b": {
        "model_type": "olmo2", "attention_bias": False, "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 32, "tie_word_embeddings": False,
        "vocab_size": 100352,
    },
    "olmo-2-13b": {
        "model_type": "olmo2", "attention_bias": False, "hidden_size": 5120,
        "intermediate_size": 13824, "max_position_embeddings": 4096, "num_attention_heads": 40,
        "num_hidden_layers": 40, "num_key_value_heads": 40, "tie_word_embeddings": False,
        "vocab_size": 100352,
    },
    "olmo-2-32b": {
        "model_type": "olmo2", "attention_bias": False, "hidden_size": 5120,
        "intermediate_size": 27648, "max_position_embeddings": 4096, "num_attention_heads": 40,
        "num_hidden_layers": 64, "num_key_value_heads": 8, "tie_word_embeddings": False,
        "vocab_size": 100352,
    },
    "granite-3.3-8b": {
        "model_type": "granite", "attention_bias": False, "hidden_size": 4096,
        "intermediate_size": 12800, "max_position_embeddings": 131072, "mlp_bias": False,
        "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
        "tie_word_embeddings": True, "vocab_size": 49159,
    },
    "granite-4.0-micro": {
        "model_type": "granitemoehybrid", "attention_bias": False, "hidden_size": 2560,
        "intermediate_size": 8192, "layer_types": ["attention"] * 40,
        "max_position_embeddings": 131072, "num_attention_heads": 40, "num_experts_per_tok": 0,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "num_local_experts": 0,
        "position_embedding_type": "rope", "shared_intermediate_size": 8192,
        "tie_word_embeddings": True, "vocab_size": 100352,
    },
    "starcoder-15b": {
        "model_type": "gpt_bigcode", "multi_query": True, "n_embd": 6144, "n_head": 48,
        "n_inner": 24576, "n_layer": 40, "n_positions": 8192, "vocab_size": 49152,
    },
    "starcoder2-7b": {
        "model_type": "starcoder2", "hidden_size": 4608, "intermediate_size": 18432,
        "max_position_embeddings": 16384, "num_attention_heads": 36, "num_hidden_layers": 32,
        "num_key_value_heads": 4, "sliding_window": 4096, "use_bias": True, "vocab_size": 49152,
    },
    "starcoder2-15b": {
        "model_type": "starcoder2", "hidden_size": 6144, "intermediate_size": 24576,
        "max_position_embeddings": 16384, "num_attention_heads": 48, "num_hidden_layers": 40,
        "num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": False,
        "use_bias": True, "vocab_size": 49152,
    },
    "smollm3-3b": {
        "model_type": "smollm3", "attention_bias": False, "hidden_size": 2048,
        "intermediate_size": 11008, "layer_types": ["full_attention"] * 36,
        "max_position_embeddings": 65536, "max_window_layers": 28, "mlp_bias": False,
        "no_rope_layer_interval": 4, "no_rope_layers": [1, 1, 1, 0] * 9, "num_attention_heads": 16,
        "num_hidden_layers": 36, "num_key_value_heads": 4, "sliding_window": None,
        "use_sliding_window": False, "vocab_size": 128256,
    },
    "seed-oss-36b": {
        "model_type": "seed_oss", "attention_bias": True, "attention_out_bias": False,
        "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27648,
        "max_position_embeddings": 524288, "mlp_bias": False, "num_attention_heads": 80,
        "num_hidden_layers": 64, "num_key_value_heads": 8, "tie_word_embeddings": False,
        "vocab_size": 155136,
    },
    "phi-4": {
        "model_type": "phi3", "attention_bias": False, "hidden_size": 5120,
        "intermediate_size": 17920, "max_position_embeddings": 16384, "num_attention_heads": 40,
        "num_hidden_layers": 40, "num_key_value_heads": 10, "sliding_window": None,
        "tie_word_embeddings": False, "vocab_size": 100352,
    },
    "command-a-111b": {
        "model_type": "cohere2", "attention_bias": False, "head_dim": 128, "hidden_size": 12288,
        "intermediate_size": 36864, "max_position_embeddings": 131072, "num_attention_heads": 96,
        "num_hidden_layers": 64, "num_key_value_heads": 8, "sliding_window": 4096,
        "sliding_window_pattern": 4, "use_qk_norm": False, "vocab_size": 256000,
    },
    "command-r7b": {
        "model_type": "cohere2", "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 132096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 4096,
        "sliding_window_pattern": 4, "use_qk_norm": False, "vocab_size": 256000,
    },
    "exaone-4.0-32b": {
        "model_type": "exaone4", "head_dim": 128, "hidden_size": 5120, "intermediate_size": 27392,
        "layer_types": [*["sliding_attention"] * 3, "full_attention"] * 16,
        "max_position_embeddings": 131072, "num_attention_heads": 40, "num_hidden_layers": 64,
        "num_key_value_heads": 8, "sliding_window": 4096, "sliding_window_pattern": "LLLG",
        "tie_word_embeddings": False, "vocab_size": 102400,
    },
    "qwen2.5-vl-7b": {
        "model_type": "qwen2_5_vl", "hidden_size": 3584, "intermediate_size": 18944,
        "max_position_embeddings": 128000, "max_window_layers": 28, "num_attention_heads": 28,
        "num_hidden_layers": 28, "num_key_value_heads": 4, "sliding_window": 32768,
        "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 152064,
        "vision_config": {"depth": 32},
    },
    "qwen2.5-vl-72b": {
        "model_type": "qwen2_5_vl", "hidden_size": 8192, "intermediate_size": 29568,
        "max_position_embeddings": 128000, "max_window_layers": 80, "num_attention_heads": 64,
        "num_hidden_layers": 80, "num_key_value_heads": 8, "sliding_window": 32768,
        "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 152064,
        "vision_config": {"depth": 32},
    },
    "baichuan2-7b": {
        "model_type": "baichuan", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 4096, "model_max_length": 4096, "num_attention_heads": 32,
        "num_hidden_layers": 32, "tie_word_embeddings": False, "vocab_size": 125696,
    },
    "baichuan2-13b": {
        "model_type": "baichuan", "hidden_size": 5120, "intermediate_size": 13696,
        "model_max_length": 4096, "num_attention_heads": 40, "num_hidden_layers": 40,
        "tie_word_embeddings": False, "vocab_size": 125696,
    },
    "chatglm3-6b": {
        "model_type": "chatglm", "add_bias_linear": False, "add_qkv_bias": True,
        "ffn_hidden_size": 13696, "hidden_size": 4096, "kv_channels": 128,
        "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 32,
        "num_layers": 28, "padded_vocab_size": 65024, "post_layer_norm": True, "rmsnorm": True,
        "seq_length": 8192, "tie_word_embeddings": False,
    },
    "internlm-7b": {
        "model_type": "internlm", "bias": True, "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
        "tie_word_embeddings": False, "vocab_size": 103168,
    },
    "qwen-7b": {
        "model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "kv_channels": 128,
        "no_bias": True, "num_attention_heads": 32, "num_hidden_layers": 32, "seq_length": 8192,
        "tie_word_embeddings": False, "vocab_size": 151936,
    },
    "aquila-7b": {
        "model_type": "aquila", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
        "tie_word_embeddings": False, "vocab_size": 100008,
    },
}  # fmt: skip
