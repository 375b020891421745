#!/bin/bash
#SBATCH --job-name=multinode
#SBATCH -D .
#SBATCH --nodes=4                   # number of nodes
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:4                # GPUs per node
source env.sh
export PER_NODE=4
head_node_ip=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
export DIR="${DIR:-.}"
export LAUNCHER="accelerate launch \
    --config_file ${DIR}/fsdp.yaml \
    --num_processes $((SLURM_NNODES * PER_NODE)) \
    --num_machines $SLURM_NNODES \
    --rdzv_backend c10d \
    --main_process_ip $head_node_ip \
    "
export SCRIPT="${DIR}/train.py"
export SCRIPT_ARGS=" \
    --model_name_or_path meta-llama/Llama-3.1-8B \
    --per_device_train_batch_size 2 \
    --max_length 4096 \
    "
export CMD="$LAUNCHER $SCRIPT $SCRIPT_ARGS"
srun $CMD
