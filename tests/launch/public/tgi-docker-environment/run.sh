model=codellama/CodeLlama-7b-hf
num_shard=1
max_input_length=1024
max_total_tokens=2048

docker run -d --name tgi --gpus all -ti -p 8080:80 \
  -e MODEL_ID=$model \
  -e NUM_SHARD=$num_shard \
  -e MAX_INPUT_LENGTH=$max_input_length \
  -e MAX_TOTAL_TOKENS=$max_total_tokens \
  -e QUANTIZE=bitsandbytes-nf4 \
  -v data:/data \
  ghcr.io/huggingface/text-generation-inference:2.0.4
