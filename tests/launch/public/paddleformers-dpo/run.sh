CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 paddleformers-cli train ./full_tp_pp.yaml
