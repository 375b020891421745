#!/usr/bin/env bash
# Set outside: MODEL, TP, CONC
vllm serve meta-llama/Llama-3.1-8B-Instruct \
    --tensor-parallel-size $TP \
    --max-num-seqs $CONC \
    --max-model-len 8192
