litgpt download EleutherAI/pythia-12b
litgpt finetune_full EleutherAI/pythia-12b \
  --devices 8 --num_nodes 2 --precision bf16-true \
  --train.micro_batch_size 4 --train.global_batch_size 128 --train.max_seq_length 1024 \
  --data Alpaca
