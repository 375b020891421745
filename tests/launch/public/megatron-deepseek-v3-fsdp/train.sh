#!/bin/bash
export NVTE_FWD_LAYERNORM_SM_MARGIN=16
MEGATRON=${MEGATRON:-"/opt/megatron"}
OUT=${OUT:-"/results"}
FSDP=${FSDP:-1}
STRATEGY=${STRATEGY:-"optim_grads_params"}
PROFILE=${PROFILE:-0}
TP=${TP:-1}
EP=${EP:-8}
MBS=${MBS:-4}
GBS=${GBS:-2048}

ARGS=(
    --tensor-model-parallel-size ${TP}
    --expert-model-parallel-size ${EP}
    --expert-tensor-parallel-size 1
    --context-parallel-size 1
    --use-distributed-optimizer
    --sequence-parallel
    --use-flash-attn
    --disable-bias-linear
    --micro-batch-size ${MBS}
    --global-batch-size ${GBS}
    --train-samples 585937500
    --recompute-granularity selective
    --recompute-modules mlp moe mla_up_proj layernorm
    --transformer-impl transformer_engine
    --seq-length 4096
    --tokenizer-model deepseek-ai/DeepSeek-V3
    --num-layers 61
    --hidden-size 7168
    --ffn-hidden-size 18432
    --num-attention-heads 128
    --kv-channels 128
    --max-position-embeddings 4096
    --position-embedding-type rope
    --make-vocab-size-divisible-by 3232
    --normalization RMSNorm
    --swiglu
    --untie-embeddings-and-output-weights
    --multi-latent-attention
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --qk-layernorm
    --num-experts 256
    --moe-layer-freq [0]*3+[1]*58
    --moe-ffn-hidden-size 2048
    --moe-shared-expert-intermediate-size 2048
    --moe-router-topk 8
    --moe-router-num-groups 8
    --moe-router-group-topk 4
    --moe-router-score-function sigmoid
    --moe-router-enable-expert-bias
    --q-lora-rank 1536
    --kv-lora-rank 512
    --qk-head-dim 128
    --qk-pos-emb-head-dim 64
    --v-head-dim 128
    --mtp-num-layers 1
    --bf16
)
if [ "${FSDP}" = 1 ]; then
    unset CUDA_DEVICE_MAX_CONNECTIONS
    ARGS=(
        "${ARGS[@]}"
        --use-megatron-fsdp
        --data-parallel-sharding-strategy ${STRATEGY}
        --ckpt-format fsdp_dtensor
    )
fi
if [ "${PROFILE}" = 1 ]; then
    PREFIX="nsys profile --trace=cuda -o ${OUT}/nsys"
else
    PREFIX=""
fi
COMMAND="
cd ${MEGATRON};
export PYTHONPATH=${MEGATRON}:${PYTHONPATH};
${PREFIX} python ${MEGATRON}/pretrain_gpt.py ${ARGS[@]}"

sbatch <<EOF
#!/bin/bash
#SBATCH --job-name=dsv3
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun --mpi=pmix -l \
    --container-image=${IMAGE:-image.sqsh} \
    bash -x -c "${COMMAND}" 2>&1 | tee ${OUT}/\${SLURM_JOB_ID}.log
EOF
