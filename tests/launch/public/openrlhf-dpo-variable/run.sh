set -x
read -r -d '' words <<EOF
openrlhf.cli.train_dpo \
   --model.model_name_or_path OpenRLHF/Llama-3-8b-sft-mixture \
   --data.dataset OpenRLHF/preference_dataset_mixture2_and_safe_pku \
   --data.max_len 8192 \
   --train.batch_size 256 \
   --train.micro_batch_size 1 \
   --ds.zero_stage 3 \
   --ds.param_dtype bf16 \
   --ds.packing_samples \
   --model.gradient_checkpointing_enable \
   --model.beta 0.1
EOF
    # --ref.offload

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $words
fi
