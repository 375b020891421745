docker run --gpus 2 --ipc=host -p 8000:8000 \
  -e MODEL_NAME=deepseek-ai/DeepSeek-R1-Distill-Qwen-32B \
  -e MAX_MODEL_LEN=16384 \
  -e TENSOR_PARALLEL_SIZE=2 \
  -e GPU_MEMORY_UTILIZATION=0.95 \
  runpod/worker-v1-vllm:v2.7.0stable-cuda12.1.0
