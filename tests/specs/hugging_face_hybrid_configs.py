"""Configs of hybrid models with the keys of real ``config.json`` files."""

from typing import Any

# Nemotron 3 Ultra names its layers in a list; here are as many of each kind, in another order.
HYBRID_CONFIGS: dict[str, dict[str, Any]] = {
    "nemotron-h-8b": {
        "attention_bias": False, "attention_head_dim": 128, "conv_kernel": 4,
        "hidden_size": 4096,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "intermediate_size": 21504, "mamba_head_dim": 64, "mamba_num_heads": 128,
        "mamba_proj_bias": False, "max_position_embeddings": 8192, "mlp_bias": False,
        "model_type": "nemotron_h", "n_groups": 8, "num_attention_heads": 32,
        "num_hidden_layers": 52, "num_key_value_heads": 8, "ssm_state_size": 128,
        "tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True,
        "vocab_size": 131072,
    },
    "nemotron-h-47b": {
        "attention_bias": False, "attention_head_dim": 128, "conv_kernel": 4,
        "hidden_size": 8192, "intermediate_size": 30720, "mamba_head_dim": 64,
        "mamba_num_heads": 256, "mamba_proj_bias": False, "max_position_embeddings": 8192,
        "mlp_bias": False, "model_type": "nemotron_h", "n_groups": 8,
        "num_attention_heads": 64, "num_key_value_heads": 8, "ssm_state_size": 256,
        "tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True,
        "vocab_size": 131072,
        "hybrid_override_pattern": (
            "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-"
            "M-M-M---MM---M-M*-M-M-M-M-M-"
        ),
    },
    "nemotron-h-56b": {
        "attention_bias": False, "attention_head_dim": 128, "conv_kernel": 4,
        "hidden_size": 8192, "intermediate_size": 32768, "mamba_head_dim": 64,
        "mamba_num_heads": 256, "mamba_proj_bias": False, "max_position_embeddings": 8192,
        "mlp_bias": False, "model_type": "nemotron_h", "n_groups": 8,
        "num_attention_heads": 64, "num_key_value_heads": 8, "ssm_state_size": 256,
        "tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True,
        "vocab_size": 131072,
        "hybrid_override_pattern": (
            "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-"
            "M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
        ),
    },
    "nemotron-nano-9b-v2": {
        "attention_bias": False, "conv_kernel": 4, "head_dim": 128, "hidden_size": 4480,
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        "intermediate_size": 15680, "mamba_head_dim": 80, "mamba_num_heads": 128,
        "mamba_proj_bias": False, "max_position_embeddings": 131072, "mlp_bias": False,
        "model_type": "nemotron_h", "n_groups": 8, "num_attention_heads": 40,
        "num_key_value_heads": 8, "ssm_state_size": 128, "tie_word_embeddings": False,
        "use_bias": False, "use_conv_bias": True, "vocab_size": 131072,
    },
    "nemotron-nano-12b-v2": {
        "attention_bias": False, "conv_kernel": 4, "head_dim": 128, "hidden_size": 5120,
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-",
        "intermediate_size": 20480, "mamba_head_dim": 80, "mamba_num_heads": 128,
        "mamba_proj_bias": False, "max_position_embeddings": 131072, "mlp_bias": False,
        "model_type": "nemotron_h", "n_groups": 8, "num_attention_heads": 40,
        "num_key_value_heads": 8, "ssm_state_size": 128, "tie_word_embeddings": False,
        "use_bias": False, "use_conv_bias": True, "vocab_size": 131072,
    },
    "nemotron-3-nano-30b-a3b": {
        "attention_bias": False, "conv_kernel": 4, "head_dim": 128, "hidden_size": 2688,
        "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
        "intermediate_size": 1856, "mamba_head_dim": 64, "mamba_num_heads": 64,
        "mamba_proj_bias": False, "max_position_embeddings": 262144, "mlp_bias": False,
        "model_type": "nemotron_h", "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712, "n_groups": 8, "n_routed_experts": 128,
        "n_shared_experts": 1, "num_attention_heads": 32, "num_experts_per_tok": 6,
        "num_hidden_layers": 52, "num_key_value_heads": 2, "ssm_state_size": 128,
        "tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True,
        "vocab_size": 131072,
    },
    "nemotron-3-super-120b-a12b": {
        "attention_bias": False, "conv_kernel": 4, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 2688, "mamba_head_dim": 64, "mamba_num_heads": 128,
        "mamba_proj_bias": False, "max_position_embeddings": 262144, "mlp_bias": False,
        "model_type": "nemotron_h", "moe_intermediate_size": 2688, "moe_latent_size": 1024,
        "moe_shared_expert_intermediate_size": 5376, "n_groups": 8, "n_routed_experts": 512,
        "n_shared_experts": 1, "num_attention_heads": 32, "num_experts_per_tok": 22,
        "num_hidden_layers": 88, "num_key_value_heads": 2, "ssm_state_size": 128,
        "tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True,
        "vocab_size": 131072,
        "hybrid_override_pattern": (
            "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
            "EMEMEMEM*EMEMEMEME"
        ),
    },
    "nemotron-3-ultra-550b-a55b": {
        "attention_bias": False, "conv_kernel": 4, "head_dim": 128, "hidden_size": 8192,
        "intermediate_size": 5120, "mamba_head_dim": 64, "mamba_num_heads": 256,
        "mamba_proj_bias": False, "max_position_embeddings": 262144, "mlp_bias": False,
        "model_type": "nemotron_h", "moe_intermediate_size": 5120, "moe_latent_size": 2048,
        "moe_shared_expert_intermediate_size": 10240, "n_groups": 8,
        "n_routed_experts": 512, "n_shared_experts": 1, "num_attention_heads": 64,
        "num_experts_per_tok": 22, "num_key_value_heads": 2, "ssm_state_size": 128,
        "tie_word_embeddings": False, "use_bias": False, "use_conv_bias": True,
        "vocab_size": 131072,
        "layers_block_type": [*["mamba", "moe"] * 36, *["mamba", "attention", "moe"] * 12],
        "num_hidden_layers": None,
    },
    "qwen3.5-27b": {
        "model_type": "qwen3_5", "tie_word_embeddings": False, "vision_config": {"depth": 27},
        "text_config": {
            "attention_bias": False, "attn_output_gate": True, "full_attention_interval": 4,
            "head_dim": 256, "hidden_size": 5120, "intermediate_size": 17408,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 48, "linear_value_head_dim": 128,
            "max_position_embeddings": 262144, "model_type": "qwen3_5_text",
            "num_attention_heads": 24, "num_hidden_layers": 64, "num_key_value_heads": 4,
            "vocab_size": 248320,
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 16,
        },
    },
    "qwen3.5-35b-a3b": {
        "model_type": "qwen3_5_moe", "tie_word_embeddings": False, "vision_config": {"depth": 27},
        "text_config": {
            "attention_bias": False, "attn_output_gate": True, "full_attention_interval": 4,
            "head_dim": 256, "hidden_size": 2048, "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 32, "linear_value_head_dim": 128,
            "max_position_embeddings": 262144, "model_type": "qwen3_5_moe_text",
            "moe_intermediate_size": 512, "num_attention_heads": 16, "num_experts": 256,
            "num_experts_per_tok": 8, "num_hidden_layers": 40, "num_key_value_heads": 2,
            "shared_expert_intermediate_size": 512, "vocab_size": 248320,
            "layer_types": [*["linear_attention"] * 3, "full_attention"] * 10,
        },
    },
}  # fmt: skip
