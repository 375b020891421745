composer -n 8 train/train.py \
  train/yamls/pretrain/mpt-7b.yaml \
  train_loader.dataset.split=train_small \
  max_duration=10ba \
  save_folder=mpt-7b
