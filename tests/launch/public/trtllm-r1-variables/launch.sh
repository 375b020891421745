NOW=$(date +%Y.%m.%d)
MODEL_PATH=/models/deepseek-ai/DeepSeek-V3.1-W4AFP8
MAX_SEQ_LEN=155648
MAX_NUM_TOKENS=16384
# MODEL_PATH=/models/Qwen3-0.6B
# MAX_NUM_TOKENS=8192
BATCH=4
TP=8
EP=$TP
trtllm-serve serve $MODEL_PATH \
    --backend pytorch \
    --tp_size $TP \
    --ep_size $EP \
    --max_seq_len $MAX_SEQ_LEN \
    --max_num_tokens $MAX_NUM_TOKENS \
    --max_batch_size $BATCH \
    --extra_llm_api_options extra.yml 2>&1 | tee logs/$NOW.log
