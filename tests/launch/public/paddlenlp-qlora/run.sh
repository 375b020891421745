python -u -m paddle.distributed.launch --gpus "0,1,2,3" \
  run_finetune.py ./config/llama/qlora_argument.json
