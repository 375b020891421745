python benchmarks/cpp/prepare_dataset.py \
    --stdout --tokenizer nvidia/DeepSeek-R1-FP4 \
    token-norm-dist \
    --input-mean 1000 --output-mean 2000 \
    --input-stdev 0 --output-stdev 0 \
    --num-requests 49152 > dataset.txt

cat > ./extra.yml <<YAML
cuda_graph_config:
  enable_padding: true
enable_attention_dp: true
kv_cache_config:
  dtype: fp8
  free_gpu_memory_fraction: 0.85
YAML

trtllm-bench -m nvidia/DeepSeek-R1-FP4 \
    --model_path /models/r1 \
    throughput \
    --tp 8 --ep 8 \
    --warmup 0 \
    --dataset dataset.txt \
    --backend pytorch \
    --max_batch_size 384 --max_num_tokens 1536 \
    --num_requests 12288 --concurrency 3072 \
    --kv_cache_free_gpu_mem_fraction 0.7 \
    --extra_llm_api_options ./extra.yml
