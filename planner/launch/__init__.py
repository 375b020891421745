"""Launch files: written from a plan for a tool, and read from the files of a user."""

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
"""Programs with launch files that planner reads, but does not write."""

SCRIPT = "script"
WRAPPERS = (SCRIPT, "slurm", "kubernetes", "kserve")
MANIFEST = "launch.json"
"""Name of the list of files that planner wrote into a directory, with digests."""
