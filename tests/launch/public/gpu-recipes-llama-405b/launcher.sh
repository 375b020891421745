config_overrides=()
if [[ -z "${config_overrides[*]}" ]]; then
  echo "No NeMo config overrides specified"
fi
explicit_log_dir=${EXPLICIT_LOG_DIR:-workload_logs}
cd /opt/Megatron-Bridge

worker_command=$(cat <<- EOM
  if [ "\$RANK" -eq "0" ]; then
    echo "The environment within worker rank 0 is:" ;
    env | sed 's/^/  /' ;
  fi ;

  numactl \
    --cpunodebind=\$((LOCAL_RANK/4)) \
    --membind=\$((LOCAL_RANK/4)) nsys profile \
    -t nvtx,cuda \
    --cuda-event-trace=false \
    --capture-range=cudaProfilerApi \
    --kill none \
    -o "/${explicit_log_dir}/$JOB_IDENTIFIER/rank-\$RANK" \
    --session-new "nsys-\$RANDOM-\$RANK" \
  nice -10 \
  python scripts/performance/custom_setup_experiment.py \
    --gpu b200 \
    --model_family_name llama \
    --model_recipe_name llama31_405b \
    --gpus_per_node 8 \
    --num_gpus 128 \
    --seq_length 8192 \
    --tensor_model_parallel_size 8 \
    --pipeline_model_parallel_size 8 \
    --context_parallel_size 1 \
    --virtual_pipeline_model_parallel_size 2 \
    --global_batch_size 128 \
    --micro_batch_size 1 \
    --compute_dtype fp8_cs \
    --cuda_graph_impl none \
    --max_steps 30

EOM
)

echo "$worker_command" > worker_command.sh
chmod 777 worker_command.sh

torchrun \
--nproc-per-node="8" \
--nnodes="16" \
--node_rank="${JOB_COMPLETION_INDEX}" \
--master_addr="${MASTER_ADDR}" \
--no-python bash worker_command.sh
