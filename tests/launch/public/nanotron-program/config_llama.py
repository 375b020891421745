import os

from nanotron.config import (
    AdamWOptimizerArgs,
    CheckpointsArgs,
    Config,
    GeneralArgs,
    LlamaConfig,
    ModelArgs,
    OptimizerArgs,
    ParallelismArgs,
    RandomInit,
    TokensArgs,
)

hidden = 2048
model_config = LlamaConfig(
    hidden_act="silu",
    hidden_size=hidden,
    intermediate_size=4 * hidden,
    max_position_embeddings=4096,
    num_attention_heads=16,
    num_hidden_layers=24,
    num_key_value_heads=8,
    tie_word_embeddings=True,
    vocab_size=49152,
)
parallelism = ParallelismArgs(
    dp=4,
    pp=1,
    tp=2,
    pp_engine="1f1b",
    tp_mode="REDUCE_SCATTER",
    recompute_layer=True,
)
tokens = TokensArgs(
    sequence_length=4096, train_steps=500, micro_batch_size=2, batch_accumulation_per_replica=8
)
config = Config(
    general=GeneralArgs(project="debug", run="llama", seed=42),
    checkpoints=CheckpointsArgs(checkpoints_path="./checkpoints", checkpoint_interval=10),
    parallelism=parallelism,
    model=ModelArgs(init_method=RandomInit(std=0.025), model_config=model_config),
    optimizer=OptimizerArgs(
        zero_stage=1,
        accumulate_grad_in_fp32=True,
        optimizer_factory=AdamWOptimizerArgs(adam_eps=1e-08, torch_adam_is_fused=True),
    ),
    tokens=tokens,
)

if __name__ == "__main__":
    config.save_as_yaml(os.path.join(os.path.dirname(__file__), "config_llama.yaml"))
