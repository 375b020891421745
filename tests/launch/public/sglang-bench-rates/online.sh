python3 -m sglang.launch_server --model-path meta-llama/Llama-3.3-70B-Instruct --tp 4 --disable-radix-cache --port 30000 &
sleep 300
python3 -m sglang.bench_serving --backend sglang --dataset-name random --random-input 4096 --random-output 1024 --random-range-ratio 0.5 --num-prompts 600 --request-rate 2 --output-file online.jsonl
python3 -m sglang.bench_serving --backend sglang --dataset-name random --random-input 4096 --random-output 1024 --random-range-ratio 0.5 --num-prompts 1200 --request-rate 4 --output-file online.jsonl
