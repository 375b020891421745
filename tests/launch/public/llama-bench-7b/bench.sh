CUDA_VISIBLE_DEVICES=0 ./build/bin/llama-bench \
    -m models/llama-2-7b.Q4_0.gguf \
    -p 512 -n 512 -ngl 99 -fa 1 -ub 1024 -r 5
