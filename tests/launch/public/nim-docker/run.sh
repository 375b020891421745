export IMAGE=nvcr.io/nim/meta/llama-3.3-70b-instruct:1.8.5
docker run -it --rm --name nim \
    --runtime=nvidia --gpus '"device=0,1,2,3"' --shm-size=16GB \
    -e NGC_API_KEY \
    -e NIM_MODEL_PROFILE=tensorrt_llm-h100-fp8-tp4-pp1-throughput \
    -e NIM_MAX_MODEL_LEN=32768 \
    -v "$HOME/.cache/nim:/opt/nim/.cache" -p 8000:8000 \
    $IMAGE
