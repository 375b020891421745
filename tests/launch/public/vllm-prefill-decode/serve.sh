#!/bin/bash
set -xe
MODEL=${HF_MODEL_NAME:-meta-llama/Meta-Llama-3.1-8B-Instruct}
trap 'cleanup' INT
cleanup() {
    pgrep python | xargs kill -9
    exit 0
}
if [[ -z "${HOST_IP:-}" ]]; then
    export HOST_IP=127.0.0.1
fi
wait_for() {
  local port=$1
  timeout 1200 bash -c "
    until curl -i localhost:${port}/v1/models > /dev/null; do
      sleep 1
    done" && return 0 || return 1
}
CUDA_VISIBLE_DEVICES=2 vllm serve $MODEL \
    --port 8100 \
    --max-num-seqs 16 \
    --gpu-memory-utilization 0.8 \
    --kv-transfer-config \
    '{"kv_connector":"NixlConnector","kv_role":"kv_producer","kv_connector_extra_config":{"proxy_ip":"'"$HOST_IP"'"}}' &
CUDA_VISIBLE_DEVICES=3 vllm serve $MODEL \
    --port 8200 \
    --max-num-seqs 64 \
    --gpu-memory-utilization 0.8 \
    --kv-transfer-config \
    '{"kv_connector":"NixlConnector","kv_role":"kv_consumer","kv_connector_extra_config":{"proxy_ip":"'"$HOST_IP"'"}}' &
wait_for 8100
wait_for 8200
python3 proxy.py &
