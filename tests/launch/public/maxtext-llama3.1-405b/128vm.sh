set -e
export OUT="gs://bucket"
export EXECUTABLE="train"
python3 -m maxtext.trainers.pre_train.$EXECUTABLE ${ROOT:-$PWD}/configs/models/llama3.1_405b.yml run_name=first \
    base_config=base.yml \
    run_name=second \
    hardware=gpu \
    model_name=llama3.1-405b \
    enable_checkpointing: False \
    attention=cudnn_flash_te \
    remat_policy=full \
    per_device_batch_size=1.0 \
    max_target_length=8192 \
    dcn_fsdp_parallelism=128 \
    ici_fsdp_parallelism=8 \
    base_output_directory=$OUT
