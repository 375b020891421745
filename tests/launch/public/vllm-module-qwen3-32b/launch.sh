mkdir -p logs
export CONFIG_PATH=./config.json
MODEL=Qwen/Qwen3-32B

VLLM_USE_V1=1 python -m vllm.entrypoints.cli.main serve $MODEL \
    --tensor-parallel-size 8 \
    --trust-remote-code \
    --max-num-seqs 128 \
    --max-num-batched-tokens 8192 \
    --max_model_len 8192 \
    --max-seq-len-to-capture 8192 \
    --enable-chunked-prefill \
    --kv-transfer-config \
    '{"kv_connector":"FlexKVConnectorV1","kv_role":"kv_both"}' | tee logs/vllm.log
