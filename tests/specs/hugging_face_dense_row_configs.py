"""Parameters that transformers 5.23 builds from configs it saves, of dense families."""

from typing import Any

FULL = ["full_attention"]
WINDOW = ["sliding_attention"]

DENSE_ROW_CONFIGS: dict[str, tuple[int, dict[str, Any]]] = {
    "apertus": (2_030_097_932, {
        "model_type": "apertus", "attention_bias": False, "hidden_size": 4096,
        "intermediate_size": 14336, "max_position_embeddings": 65536, "num_attention_heads": 32,
        "num_hidden_layers": 6, "num_key_value_heads": 8, "tie_word_embeddings": False,
        "vocab_size": 131072,
    }),
    "biogpt": (120_031_232, {
        "model_type": "biogpt", "hidden_size": 1024, "intermediate_size": 4096,
        "max_position_embeddings": 1024, "num_attention_heads": 16, "num_hidden_layers": 6,
        "tie_word_embeddings": True, "vocab_size": 42384,
    }),
    "bitnet": (1_073_569_792, {
        "model_type": "bitnet", "attention_bias": False, "hidden_size": 2560,
        "intermediate_size": 6912, "max_position_embeddings": 2048, "num_attention_heads": 20,
        "num_hidden_layers": 6, "num_key_value_heads": 5, "tie_word_embeddings": False,
        "vocab_size": 128256,
    }),
    "ctrl": (481_081_606, {
        "model_type": "ctrl", "dff": 8192, "n_embd": 1280, "n_head": 16, "n_layer": 6,
        "n_positions": 256, "tie_word_embeddings": True, "vocab_size": 246534,
    }),
    "cwm": (4_483_037_184, {
        "model_type": "cwm", "head_dim": 128, "hidden_size": 6144, "intermediate_size": 21504,
        "layer_types": FULL + WINDOW * 3 + FULL + WINDOW, "max_position_embeddings": 131072,
        "mlp_bias": True, "num_attention_heads": 48, "num_hidden_layers": 6,
        "num_key_value_heads": 8, "sliding_window": 8192, "tie_word_embeddings": False,
        "vocab_size": 128256,
    }),
    "gpt_neo": (409_237_504, {
        "model_type": "gpt_neo",
        "attention_layers": ["global", "local", "global", "local", "global", "local"],
        "attention_types": [[["global", "local"], 3]], "hidden_size": 2048,
        "max_position_embeddings": 2048, "num_heads": 16, "num_layers": 6,
        "tie_word_embeddings": True, "vocab_size": 50257, "window_size": 256,
    }),
    "gpt_neox_japanese": (553_848_320, {
        "model_type": "gpt_neox_japanese", "hidden_size": 2560, "intermediate_multiple_size": 4,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 6,
        "tie_word_embeddings": True, "vocab_size": 32000,
    }),
    "granite_swa": (728_830_584, {
        "model_type": "granite_swa", "attention_bias": True, "hidden_size": 2560,
        "intermediate_size": 8192, "layer_types": FULL + WINDOW * 3 + FULL + WINDOW,
        "max_position_embeddings": 8192, "mlp_bias": False, "num_attention_heads": 20,
        "num_hidden_layers": 6, "num_key_value_heads": 4, "sliding_window": 128,
        "tie_word_embeddings": True, "vocab_size": 100352,
    }),
    "helium": (688_161_280, {
        "model_type": "helium", "attention_bias": False, "head_dim": 128, "hidden_size": 2560,
        "intermediate_size": 7040, "max_position_embeddings": 4096, "mlp_bias": False,
        "num_attention_heads": 20, "num_hidden_layers": 6, "num_key_value_heads": 10,
        "tie_word_embeddings": False, "vocab_size": 48000,
    }),
    "hyperclovax": (1_476_448_256, {
        "model_type": "hyperclovax", "attention_bias": False, "head_dim": 128, "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 2048, "mlp_bias": False,
        "num_attention_heads": 32, "num_hidden_layers": 6, "num_key_value_heads": 32,
        "tie_word_embeddings": False, "use_post_norm": False, "vocab_size": 32000,
    }),
    "iquestcoder": (3_712_025_600, {
        "model_type": "iquestcoder", "attention_bias": False, "head_dim": 128, "hidden_size": 5120,
        "intermediate_size": 27648, "max_position_embeddings": 131072, "mlp_bias": False,
        "num_attention_heads": 40, "num_hidden_layers": 6, "num_key_value_heads": 8,
        "tie_word_embeddings": False, "vocab_size": 76800,
    }),
    "jais2": (2_329_626_624, {
        "model_type": "jais2", "attention_bias": True, "head_dim": 128, "hidden_size": 3328,
        "intermediate_size": 26624, "max_position_embeddings": 8192, "mlp_bias": True,
        "num_attention_heads": 26, "num_hidden_layers": 6, "num_key_value_heads": 26,
        "tie_word_embeddings": False, "vocab_size": 150272,
    }),
    "minicpm3": (564_079_104, {
        "model_type": "minicpm3", "attention_bias": False, "head_dim": 32, "hidden_size": 2560,
        "intermediate_size": 6400, "kv_lora_rank": 256, "max_position_embeddings": 32768,
        "mlp_bias": False, "num_attention_heads": 40, "num_hidden_layers": 6,
        "num_key_value_heads": 40, "q_lora_rank": 768, "qk_nope_head_dim": 64,
        "qk_rope_head_dim": 32, "tie_word_embeddings": True, "v_head_dim": 64, "vocab_size": 73448,
    }),
    "modernbert-decoder": (149_655_232, {
        "model_type": "modernbert-decoder", "attention_bias": False, "decoder_bias": True,
        "hidden_size": 768, "intermediate_size": 1152,
        "layer_types": (FULL + WINDOW * 2) * 7 + FULL, "local_attention": 128,
        "max_position_embeddings": 8192, "mlp_bias": False, "norm_bias": False,
        "num_attention_heads": 12, "num_hidden_layers": 22, "sliding_window": 64,
        "tie_word_embeddings": True, "vocab_size": 50368,
    }),
    "nanochat": (166_920_192, {
        "model_type": "nanochat", "attention_bias": False, "hidden_size": 768,
        "intermediate_size": 8192, "max_position_embeddings": 2048, "num_attention_heads": 6,
        "num_hidden_layers": 6, "num_key_value_heads": 6, "tie_word_embeddings": False,
        "vocab_size": 50304,
    }),
    "olmo": (1_626_341_376, {
        "model_type": "olmo", "attention_bias": False, "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 6, "num_key_value_heads": 32, "tie_word_embeddings": False,
        "vocab_size": 50304,
    }),
    "openai-gpt": (74_007_552, {
        "model_type": "openai-gpt", "n_embd": 768, "n_head": 12, "n_layer": 6, "n_positions": 512,
        "tie_word_embeddings": True, "vocab_size": 40478,
    }),
    "bert": (334_092_288, {  # without its pooling layer, as the next two
        "model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096,
        "max_position_embeddings": 512, "num_attention_heads": 16, "num_hidden_layers": 24,
        "vocab_size": 30522,
    }),
    "roberta": (124_055_040, {
        "model_type": "roberta", "hidden_size": 768, "intermediate_size": 3072,
        "max_position_embeddings": 514, "num_attention_heads": 12, "num_hidden_layers": 12,
        "vocab_size": 50265,
    }),
    "xlm-roberta": (566_705_152, {
        "model_type": "xlm-roberta", "hidden_size": 1024, "intermediate_size": 4096,
        "max_position_embeddings": 8194, "num_attention_heads": 16, "num_hidden_layers": 24,
        "vocab_size": 250002,
    }),
    "persimmon": (3_355_772_416, {
        "model_type": "persimmon", "hidden_size": 4096, "intermediate_size": 16384,
        "max_position_embeddings": 16384, "num_attention_heads": 64, "num_hidden_layers": 6,
        "qk_layernorm": True, "tie_word_embeddings": False, "vocab_size": 262144,
    }),
    "vaultgemma": (1_056_994_560, {
        "model_type": "vaultgemma", "attention_bias": False, "head_dim": 256, "hidden_size": 2304,
        "intermediate_size": 9216, "layer_types": (WINDOW + FULL) * 3,
        "max_position_embeddings": 8192, "num_attention_heads": 8, "num_hidden_layers": 6,
        "num_key_value_heads": 4, "sliding_window": 4096, "tie_word_embeddings": True,
        "vocab_size": 256000,
    }),
    "xglm": (337_731_584, {
        "model_type": "xglm", "attention_heads": 16, "d_model": 1024, "ffn_dim": 4096,
        "max_position_embeddings": 2048, "num_layers": 6, "tie_word_embeddings": True,
        "vocab_size": 256008,
    }),
    "youtu": (581_212_160, {
        "model_type": "youtu", "attention_bias": False, "head_dim": 64, "hidden_size": 2048,
        "intermediate_size": 6144, "kv_lora_rank": 512, "max_position_embeddings": 131072,
        "num_attention_heads": 16, "num_hidden_layers": 6, "num_key_value_heads": 16,
        "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "tie_word_embeddings": True, "v_head_dim": 128, "vocab_size": 128256,
    }),
    "codegen": (1_621_066_976, {
        "model_type": "codegen", "n_embd": 4096, "n_head": 16, "n_layer": 6, "n_positions": 2048,
        "tie_word_embeddings": False, "vocab_size": 50400,
    }),
    "phi4_multimodal": (1_823_775_744, {
        "model_type": "phi4_multimodal", "hidden_size": 3072, "intermediate_size": 8192,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 6,
        "num_key_value_heads": 8, "sliding_window": None, "tie_word_embeddings": False,
        "vocab_size": 200064,
    }),
    "cohere_compass_text": (7_029_710_848, {
        "model_type": "cohere_compass_text", "attention_bias": False, "head_dim": 128,
        "hidden_size": 8192, "intermediate_size": 22528,
        "layer_types": WINDOW * 3 + FULL + WINDOW * 2, "max_position_embeddings": 8192,
        "num_attention_heads": 64, "num_hidden_layers": 6, "num_key_value_heads": 64,
        "sliding_window": 4096, "tie_word_embeddings": True, "vocab_size": 256000,
    }),
    "exaone4-without-windows": (2_449_528_320, {
        "model_type": "exaone4", "hidden_size": 4096, "intermediate_size": 16384,
        "layer_types": FULL * 6, "max_position_embeddings": 2048, "num_attention_heads": 32,
        "num_hidden_layers": 6, "num_key_value_heads": 32, "sliding_window": None,
        "sliding_window_pattern": 0, "tie_word_embeddings": False, "vocab_size": 102400,
    }),
    "chameleon": (1_751_273_472, {
        "model_type": "chameleon", "attention_bias": False, "hidden_size": 4096,
        "intermediate_size": 11008, "max_position_embeddings": 4096, "mlp_bias": False,
        "num_attention_heads": 32, "num_hidden_layers": 6, "num_key_value_heads": 32,
        "tie_word_embeddings": False, "vocab_size": 65536,
    }),
}  # fmt: skip
