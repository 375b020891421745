export HF_TOKEN=token
aphrodite run meta-llama/Meta-Llama-3.1-8B-Instruct -tp 2 --max-model-len 16384 --kv-cache-dtype fp8
