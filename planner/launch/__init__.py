"""The files that start a plan, written for a framework and read from a user's own."""

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
    "verl",
    "nemo-rl",
    "openrlhf",
    "vllm",
    "sglang",
    "tensorrt-llm",
    "llama-server",
    "dynamo",
)
"""In the order in which help and documentation list them."""
READ_ONLY_TOOLS = (
    "torchtune",
    "nanotron",
    "nemo-automodel",
    "llm-foundry",
    "xtuner",
    "gpt-neox",
    "verl",
    "openrlhf",
    "nemo-rl",
    "slime",
    "prime-rl",
    "tgi",
    "lmdeploy",
    "ollama",
)
"""Programs whose files of training are read, and not written."""

SCRIPT = "script"
WRAPPERS = (SCRIPT, "slurm", "kubernetes", "kserve")
MANIFEST = "launch.json"
"""What planner wrote into a directory, with digests."""
