python -m sglang.launch_server --port 31245 \
  --model /path/to/kimi-k2.5 --served-model-name Kimi-K2.5 \
  --kt-weight-path /path/to/kimi-k2.5 --kt-method RAWINT4 \
  --kt-cpuinfer 96 --kt-threadpool-count 2 --kt-num-gpu-experts 30 \
  --tensor-parallel-size 4 --mem-fraction-static 0.94 \
  --chunked-prefill-size 32658 --max-running-requests 4
