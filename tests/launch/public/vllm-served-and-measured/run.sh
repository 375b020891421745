#!/bin/bash
MODEL=nvidia/Llama-3.3-70B-Instruct-FP8
TP=2

vllm serve $MODEL \
    --tensor-parallel-size $TP \
    --kv-cache-dtype fp8 \
    --no-enable-prefix-caching \
    --max-num-batched-tokens 8192 &
SERVER=$!

until curl -s localhost:8000/health; do sleep 5; done

vllm bench serve \
    --model $MODEL \
    --dataset-name random \
    --random-input-len 1000 \
    --random-output-len 500 \
    --num-prompts $((64 * 5)) \
    --max-concurrency 64 \
    --ignore-eos --save-result

kill $SERVER
