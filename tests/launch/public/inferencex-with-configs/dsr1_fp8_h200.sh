#!/usr/bin/env bash

source "$(dirname "$0")/../../benchmark_lib.sh"

check_env_vars MODEL TP CONC ISL OSL EP_SIZE DP_ATTENTION RANDOM_RANGE_RATIO RESULT_FILENAME

MEMORY=0.82
if [[ "$DP_ATTENTION" == "true" ]]; then
    MEMORY=0.7
fi

python3 -m sglang.launch_server --model-path $MODEL --port $PORT --trust-remote-code \
    --tensor-parallel-size=$TP --data-parallel-size=1 --ep-size $EP_SIZE \
    --max-running-requests 512 --mem-fraction-static $MEMORY > /workspace/server.log 2>&1 &

wait_for_server_ready --port "$PORT" --server-pid $!

run_benchmark_serving --model "$MODEL" --port "$PORT" --backend vllm \
    --input-len "$ISL" --output-len "$OSL" --random-range-ratio "$RANDOM_RANGE_RATIO" \
    --num-prompts $((CONC * 10)) --max-concurrency "$CONC" --result-filename "$RESULT_FILENAME"
