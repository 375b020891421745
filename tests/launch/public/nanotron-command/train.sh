#!/bin/bash
# the file is written by the launcher, as slurm_launcher.py does
cat > config.yaml <<'EOF'
model:
  dtype: bfloat16
  model_config:
    is_llama_config: true
    hidden_size: 4096
    intermediate_size: 14336
    num_hidden_layers: 32
    num_attention_heads: 32
    num_key_value_heads: 8
    vocab_size: 128256
    max_position_embeddings: 131072
    tie_word_embeddings: false
optimizer: {zero_stage: 1, accumulate_grad_in_fp32: true, optimizer_factory: {name: adamW}}
parallelism: {dp: 8, tp: 4, pp: 2, tp_mode: ALL_REDUCE, recompute_layer: true}
tokens: {micro_batch_size: 1, batch_accumulation_per_replica: 16, sequence_length: 8192, train_steps: 100}
EOF
export CUDA_DEVICE_MAX_CONNECTIONS=1
srun --nodes=8 torchrun --nnodes=8 --nproc_per_node=8 --rdzv_backend=c10d run_train.py --config-file config.yaml
