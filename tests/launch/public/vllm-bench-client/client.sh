vllm bench serve --backend openai --base-url http://server:8000 \
    --model meta-llama/Llama-3.1-8B-Instruct \
    --dataset-name random --random-input-len 1024 --random-output-len 512 \
    --request-rate 4 --num-prompts 100
