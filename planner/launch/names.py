"""The names of targets and wrappers, for those who need nothing else of them."""

TARGETS = (
    "megatron-lm",
    "megatron-bridge",
    "megatron-deepspeed",
    "deepspeed",
    "accelerate",
    "torchtitan",
    "transformers",
    "axolotl",
    "maxtext",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "llama-server",
    "dynamo",
)
"""In the order in which help and documentation list them; each has a module in `targets`."""

WRAPPERS = ("script", "slurm", "kubernetes", "kserve")
"""Each has a module in `wrappers` with ``wrapped``."""
