/root/.local/bin/lmdeploy serve api_server \
    /root/dataDisk/Meta-Llama-3-8B-Instruct \
    --model-format hf \
    --quant-policy 4 \
    --session-len 8192 \
    --server-name 0.0.0.0 \
    --server-port 23333 \
    --tp 2
