"""Configs with the keys of real ``config.json`` files, next to the built-in model they are."""

from typing import Any

from hugging_face_dense_configs import DENSE_CONFIGS
from hugging_face_expert_configs import EXPERT_CONFIGS
from hugging_face_hybrid_configs import HYBRID_CONFIGS

CONFIGS: dict[str, dict[str, Any]] = {
    "llama-2-70b": {
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
        "max_position_embeddings": 4096, "num_attention_heads": 64, "num_hidden_layers": 80,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "tie_word_embeddings": False,
        "vocab_size": 32000, "torch_dtype": "float16",
    },
    "llama-3.2-1b": {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": True, "vocab_size": 128256, "rope_scaling": {"factor": 32.0},
    },
    "mistral-7b": {
        "model_type": "mistral", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 32000,
        "tie_word_embeddings": False,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
        "sliding_window": None, "vocab_size": 32000,
    },
    "qwen2.5-0.5b": {
        "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
        "max_position_embeddings": 32768, "max_window_layers": 24, "num_attention_heads": 14,
        "num_hidden_layers": 24, "num_key_value_heads": 2, "sliding_window": 32768,
        "use_sliding_window": False, "tie_word_embeddings": True, "vocab_size": 151936,
    },
    "qwen2-57b-a14b": {
        "model_type": "qwen2_moe", "hidden_size": 3584, "intermediate_size": 18944,
        "max_position_embeddings": 131072, "num_attention_heads": 28, "num_hidden_layers": 28,
        "num_key_value_heads": 4, "num_experts": 64, "num_experts_per_tok": 8,
        "moe_intermediate_size": 2560, "shared_expert_intermediate_size": 20480,
        "decoder_sparse_step": 1, "mlp_only_layers": [], "vocab_size": 151936,
    },
    "qwen3-0.6b": {
        "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "head_dim": 128,
        "max_position_embeddings": 40960, "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "sliding_window": None, "use_sliding_window": False,
        "attention_bias": False, "tie_word_embeddings": True, "vocab_size": 151936,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
        "head_dim": 128, "max_position_embeddings": 40960, "num_attention_heads": 32,
        "num_hidden_layers": 48, "num_key_value_heads": 4, "num_experts": 128,
        "num_experts_per_tok": 8, "moe_intermediate_size": 768, "decoder_sparse_step": 1,
        "mlp_only_layers": [], "tie_word_embeddings": False, "vocab_size": 151936,
    },
    "gemma-7b": {
        "model_type": "gemma", "hidden_size": 3072, "intermediate_size": 24576, "head_dim": 256,
        "max_position_embeddings": 8192, "num_attention_heads": 16, "num_hidden_layers": 28,
        "num_key_value_heads": 16, "vocab_size": 256000,
    },
    "gemma-2-9b": {
        "model_type": "gemma2", "hidden_size": 3584, "intermediate_size": 14336,
        "head_dim": 256, "max_position_embeddings": 8192, "num_attention_heads": 16,
        "num_hidden_layers": 42, "num_key_value_heads": 8, "sliding_window": 4096,
        "vocab_size": 256000,
    },
    "phi-2": {
        "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 32, "qk_layernorm": False, "tie_word_embeddings": False,
        "vocab_size": 51200,
    },
    "phi-3-mini": {
        "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192,
        "max_position_embeddings": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 32, "sliding_window": 2047, "vocab_size": 32064,
    },
    "gpt-neox-20b": {
        "model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576,
        "max_position_embeddings": 2048, "num_attention_heads": 64, "num_hidden_layers": 44,
        "tie_word_embeddings": False, "vocab_size": 50432, "use_parallel_residual": True,
    },
    "gpt-j-6b": {
        "model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_inner": None, "n_layer": 28,
        "n_positions": 2048, "rotary_dim": 64, "tie_word_embeddings": False,
        "vocab_size": 50400,
    },
    "opt-6.7b": {
        "model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384, "num_attention_heads": 32,
        "num_hidden_layers": 32, "max_position_embeddings": 2048, "word_embed_proj_dim": 4096,
        "do_layer_norm_before": True, "vocab_size": 50272,
    },
    "mpt-7b": {
        "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "no_bias": True,
        "expansion_ratio": 4, "max_seq_len": 2048, "vocab_size": 50432,
        "attn_config": {"alibi": True, "attn_type": "multihead_attention"},
    },
    "falcon-7b": {
        "model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71,
        "num_hidden_layers": 32, "multi_query": True, "new_decoder_architecture": False,
        "parallel_attn": True, "bias": False, "alibi": False, "vocab_size": 65024,
    },
    "falcon-40b": {
        "model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128,
        "num_hidden_layers": 60, "num_kv_heads": 8, "new_decoder_architecture": True,
        "parallel_attn": True, "bias": False, "alibi": False, "vocab_size": 65024,
    },
    "bloom-176b": {
        "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
        "vocab_size": 250880,
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2", "hidden_size": 2048, "intermediate_size": 10944,
        "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
        "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
        "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 27,
        "q_lora_rank": None, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
        "topk_method": "greedy", "vocab_size": 102400, "tie_word_embeddings": False,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
        "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 8, "topk_group": 4,
        "first_k_dense_replace": 3, "moe_layer_freq": 1,
        "num_attention_heads": 128, "num_key_value_heads": 128, "num_hidden_layers": 61,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "max_position_embeddings": 163840,
        "topk_method": "noaux_tc", "vocab_size": 129280, "tie_word_embeddings": False,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
        "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8,
        "num_hidden_layers": 24, "num_local_experts": 32, "num_experts_per_tok": 4,
        "sliding_window": 128, "attention_bias": True, "max_position_embeddings": 131072,
        "layer_types": ["sliding_attention", "full_attention"] * 12, "vocab_size": 201088,
    },
    "llama-4-maverick-17b-128e": {
        "model_type": "llama4", "vision_config": {"hidden_size": 1408},
        "text_config": {
            "model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
            "intermediate_size_mlp": 16384, "head_dim": 128, "num_attention_heads": 40,
            "num_key_value_heads": 8, "num_hidden_layers": 48, "num_local_experts": 128,
            "num_experts_per_tok": 1, "interleave_moe_layer_step": 2,
            "attention_chunk_size": 8192, "max_position_embeddings": 1048576,
            "vocab_size": 202048,
        },
    },
    "command-r-plus": {
        "model_type": "cohere", "hidden_size": 12288, "intermediate_size": 33792,
        "num_attention_heads": 96, "num_key_value_heads": 8, "num_hidden_layers": 64,
        "use_qk_norm": True, "max_position_embeddings": 131072, "vocab_size": 256000,
    },
    "qwen3-next-80b-a3b": {
        "model_type": "qwen3_next", "hidden_size": 2048, "intermediate_size": 5120,
        "decoder_sparse_step": 1, "full_attention_interval": 4, "head_dim": 256,
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
        "linear_num_value_heads": 32, "linear_value_head_dim": 128, "mlp_only_layers": [],
        "max_position_embeddings": 262144, "moe_intermediate_size": 512,
        "num_attention_heads": 16, "num_experts": 512, "num_experts_per_tok": 10,
        "num_hidden_layers": 48, "num_key_value_heads": 2, "partial_rotary_factor": 0.25,
        "shared_expert_intermediate_size": 512, "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "qwen3.5-397b-a17b": {
        "model_type": "qwen3_5_moe", "tie_word_embeddings": False, "vision_config": {"depth": 27},
        "text_config": {
            "model_type": "qwen3_5_moe_text", "attention_bias": False, "attn_output_gate": True,
            "full_attention_interval": 4, "head_dim": 256, "hidden_size": 4096,
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 15,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 64, "linear_value_head_dim": 128,
            "max_position_embeddings": 262144, "moe_intermediate_size": 1024,
            "num_attention_heads": 32, "num_experts": 512, "num_experts_per_tok": 10,
            "num_hidden_layers": 60, "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 1024, "vocab_size": 248320,
        },
    },
    "minimax-m2.5": {
        "model_type": "minimax_m2", "attention_bias": False, "head_dim": 128, "hidden_size": 3072,
        "intermediate_size": 1536, "max_position_embeddings": 196608, "num_attention_heads": 48,
        "num_experts_per_tok": 8, "num_hidden_layers": 62, "num_key_value_heads": 8,
        "num_local_experts": 256, "num_mtp_modules": 3, "qk_norm_type": "per_layer",
        "rotary_dim": 64, "shared_intermediate_size": 0, "tie_word_embeddings": False,
        "use_qk_norm": True, "use_routing_bias": True, "vocab_size": 200064,
    },
    "deepseek-v3.2": {
        "model_type": "deepseek_v32", "first_k_dense_replace": 3, "hidden_size": 7168,
        "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048,
        "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
        "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
        "n_group": 8, "topk_group": 4,
        "num_hidden_layers": 61, "num_key_value_heads": 128, "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "tie_word_embeddings": False, "vocab_size": 129280,
    },
    "glm-5": {
        "model_type": "glm_moe_dsa", "first_k_dense_replace": 3, "head_dim": 64,
        "hidden_size": 6144, "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048,
        "intermediate_size": 12288, "kv_lora_rank": 512, "max_position_embeddings": 202752,
        "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_attention_heads": 64, "num_experts_per_tok": 8,
        "num_hidden_layers": 78, "num_key_value_heads": 64, "q_lora_rank": 2048,
        "qk_nope_head_dim": 192, "qk_rope_head_dim": 64, "v_head_dim": 256,
        "tie_word_embeddings": False, "vocab_size": 154880,
    },
    "kimi-k2.5": {
        "model_type": "kimi_k25", "vision_config": {"vt_num_hidden_layers": 27},
        "text_config": {
            "model_type": "kimi_k2", "first_k_dense_replace": 1, "hidden_size": 7168,
            "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 262144,
            "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_routed_experts": 384,
            "n_shared_experts": 1, "num_attention_heads": 64, "num_experts_per_tok": 8,
            "num_hidden_layers": 61, "num_key_value_heads": 64, "q_lora_rank": 1536,
            "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "tie_word_embeddings": False,
            "topk_method": "noaux_tc", "v_head_dim": 128, "vocab_size": 163840,
        },
    },
}  # fmt: skip

CONFIGS |= DENSE_CONFIGS | EXPERT_CONFIGS | HYBRID_CONFIGS
