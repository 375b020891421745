#!/bin/bash
#SBATCH --job-name=gpt-oss
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=8  # 4 on GB200
#SBATCH --gpus-per-node=8    # 4 on GB200
MODEL=gpt_oss_20b
RECIPE="${RECIPE:-${MODEL}_pretrain_config}"
SEQ=4096
GBS=128
MBS=1
# TP,PP,EP,CP,SP
LAYOUTS=("2,4,4,1,True" "4,2,4,1,True" "2,4,4,2,True")
IMAGE=""
RUN="srun --mpi=pmix --container-image=$IMAGE"
export CUDA_DEVICE_MAX_CONNECTIONS=1
for LAYOUT in "${LAYOUTS[@]}"; do
    IFS=',' read -r TP PP EP CP SP <<< "$LAYOUT"
    OVERRIDES=" \
        model.seq_length=$SEQ \
        train.global_batch_size=$GBS \
        train.micro_batch_size=$MBS \
        dataset.seq_length=$SEQ \
        model.tensor_model_parallel_size=$TP \
        model.pipeline_model_parallel_size=$PP \
        model.expert_model_parallel_size=$EP \
        model.sequence_parallel=$SP \
        model.context_parallel_size=$CP \
    "
    CMD="uv run --no-sync python scripts/training/run_recipe.py"
    CMD="$CMD --recipe ${RECIPE}"
    CMD="$CMD $OVERRIDES"
    $RUN bash -c "$CMD"
done
