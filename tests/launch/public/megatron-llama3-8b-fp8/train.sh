#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
#export NCCL_IB_TIMEOUT=${NCCL_IB_TIMEOUT:-19}
SAVE=${1:-"checkpoints/8b"}
TOKENIZER=${2:-"MOCK"}   # a path, or MOCK
mkdir -p "$(dirname "$SAVE")"

GPUS=8
NODES=1
TP=1
CP=1
PP=1
FORMAT="fp8"
SEQ=8192

LAUNCH=(--nproc_per_node $GPUS --nnodes $NODES --node_rank ${NODE_RANK:-0})
MODEL=(
    --use-mcore-models
    --num-layers 32
    --hidden-size 4096
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --kv-channels 128
    --seq-length $SEQ
    --max-position-embeddings $SEQ
    --position-embedding-type rope
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --swiglu
    --normalization RMSNorm
    --untie-embeddings-and-output-weights
    --disable-bias-linear
)
TRAIN=(
    --micro-batch-size 1
    --global-batch-size 128
    --train-samples 1953125000
    --lr 0.00015
    --bf16
)
EIGHT=()
if [[ "$FORMAT" == "fp8" ]]; then
    EIGHT+=(
        "--fp8-format hybrid"
        "--fp8-amax-history-len 1024"
        "--fp8-param-gather"
    )
fi
SPLIT=(
    --tensor-model-parallel-size $TP
    --context-parallel-size $CP
    # --pipeline-model-parallel-size $PP
    --sequence-parallel
)
SHARD=(
    --use-distributed-optimizer
    --overlap-grad-reduce
)
TRAIN+=("${SHARD[@]}")
DATA=()
if [[ "$TOKENIZER" == "MOCK" ]] || [[ -z "$TOKENIZER" ]]; then
    DATA+=("--mock-data" "--tokenizer-type NullTokenizer" "--vocab-size 128256" "--split '99,1,0'")
else
    DATA+=("--tokenizer-model $TOKENIZER")
fi
if [ ! -f pretrain_gpt.py ]; then
    echo "pretrain_gpt.py is not here"
    exit 1
fi
torchrun ${LAUNCH[@]} \
    "pretrain_gpt.py" \
    ${MODEL[@]} ${TRAIN[@]} ${EIGHT[@]} \
    ${SPLIT[@]} \
    ${DATA[@]} --save "$SAVE"
set +x
