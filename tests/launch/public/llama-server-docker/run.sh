FILE="${FILE:-Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf}"
echo "Running with model at ./${FILE}"
docker run --gpus all -v ./models:/models -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server -m /models/$FILE --host 0.0.0.0 --port 8080 --ctx-size 16384 --parallel 8 --n-gpu-layers 20
