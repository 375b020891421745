# 16 machines of 8 GPUs
set -e
export OUT="gs://bucket"
export RUN_NAME="llama-2-16vm-$(date +%Y-%m-%d-%H-%M)"
export EXECUTABLE="train"
for ARGUMENT in "$@"; do
    IFS='=' read -r KEY VALUE <<< "$ARGUMENT"
    export "$KEY"="$VALUE"
done
export XLA_FLAGS="--xla_dump_to=$OUT/$RUN_NAME/
--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_command_buffer=''
--xla_disable_hlo_passes=rematerialization"
python3 -m maxtext.trainers.pre_train.$EXECUTABLE "${CONFIGS:-${ROOT:-$PWD}/src/maxtext/configs}"/models/gpu/llama2_7b.yml run_name=$RUN_NAME \
    hardware=gpu per_device_batch_size=4 max_target_length=4096 remat_policy=minimal_flash \
    dcn_data_parallelism=16 ici_fsdp_parallelism=8 base_output_directory=$OUT profiler=xplane
