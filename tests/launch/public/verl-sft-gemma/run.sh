nproc_per_node=$1
shift 1
torchrun --standalone --nnodes=1 --nproc_per_node=$nproc_per_node \
     -m verl.trainer.fsdp_sft_trainer \
    data.train_files=$HOME/data/gsm8k/train.parquet \
    data.prompt_dict_keys=['question'] \
    data.micro_batch_size_per_gpu=4 \
    model.partial_pretrain=google/gemma-1.1-7b-it \
    trainer.total_epochs=4 \
    trainer.logger='["console","wandb"]' $@
