#!/bin/bash
export OLLAMA_NUM_PARALLEL=2
OLLAMA_CONTEXT_LENGTH=32768 OLLAMA_SCHED_SPREAD=1 CUDA_VISIBLE_DEVICES=0,1 ollama serve &
until ollama list; do sleep 1; done

cat > Modelfile.long <<MODEL
FROM deepseek-r1:32b
PARAMETER num_ctx 20000
MODEL
ollama create long -f Modelfile.long
