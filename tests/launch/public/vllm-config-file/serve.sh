MAJOR=$(nvidia-smi -i 0 --query-gpu=compute_cap --format=csv,noheader)
if [ "$MAJOR" = "10.0" ]; then
    DTYPE="FP4"
    CONFIG=blackwell.yaml
else
    DTYPE="FP8"
    CONFIG=hopper.yaml
fi
vllm serve nvidia/Llama-3.3-70B-Instruct-$DTYPE \
  --config ${CONFIG} \
  --tensor-parallel-size 1 \
  --max-num-seqs 512 &
