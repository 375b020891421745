"""The plans of the worked tables, by target and by name."""

from __future__ import annotations

from worked import engines, megatron, steps, trainers
from worked.asked import Plan

PLANS: dict[str, dict[str, Plan]] = {
    "megatron-lm": megatron.MEGATRON_LM,
    "megatron-bridge": megatron.BRIDGE,
    "megatron-deepspeed": megatron.MEGATRON_DEEPSPEED,
    "torchtitan": trainers.TORCHTITAN,
    "transformers": trainers.TRANSFORMERS,
    "deepspeed": trainers.DEEPSPEED,
    "accelerate": trainers.ACCELERATE,
    "axolotl": trainers.AXOLOTL,
    "maxtext": trainers.MAXTEXT,
    "verl": steps.VERL,
    "nemo-rl": steps.NEMO_RL,
    "openrlhf": steps.OPENRLHF,
    "vllm": engines.VLLM,
    "sglang": engines.SGLANG,
    "tensorrt-llm": engines.TENSORRT_LLM,
    "llama-server": engines.LLAMA_SERVER,
    "dynamo": engines.DYNAMO,
}
