model=meta-llama/Llama-2-13b-hf
volume=$PWD/data

docker run -d --gpus '"device=0,1"' --shm-size 1g -p 8080:80 \
    -e MAX_TOTAL_TOKENS=3000 \
    -v $volume:/data \
    ghcr.io/predibase/lorax:main \
    --model-id $model --num-shard 2 \
    --quantize bitsandbytes-nf4 \
    --max-input-length 2000 --max-concurrent-requests 64 \
    --adapter-id acme/summaries
