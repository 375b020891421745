"""Plans of reinforcement learning: numbers that no two quantities of a plan share."""

from __future__ import annotations

from typing import Any

from worked.asked import SPECS, Plan

_QUESTIONS = (
    *("prompts_per_step", "samples_per_prompt", "input_tokens", "output_tokens", "output_cap"),
    *("algorithm", "reference_model", "old_logprob", "update_epochs", "micro_batch_tokens"),
    *("global_batch_size", "max_num_seqs", "enforce_eager", "max_steps", "engine", "reward_time"),
    "flat_groups",
)


def steps(framework: str, model: str, num_gpus: int, **more: Any) -> Plan:
    """24 prompts with 6 answers each, of 300 tokens and of 500 on average, 1,700 at most."""
    asked = {
        "prompts_per_step": 24, "samples_per_prompt": 6, "input_tokens": 300,
        "output_tokens": 500, "output_cap": 1700, "output_variation": 0.7,
        **{name: more.pop(name) for name in _QUESTIONS if name in more},
    }  # fmt: skip
    return {
        "workload": "rl", "model": model, "gpu": "h100-sxm", "framework": framework,
        "num_gpus": num_gpus, "reliability": "ideal", "specs": SPECS, **asked, "settings": more,
    }  # fmt: skip


VERL = {
    # 144 answers = 3 x 48, of 8 prompts; 48 = 3 x 16 GPUs.
    "colocated": steps(
        "verl", "qwen3-8b", 16, global_batch_size=48, recompute="full", algorithm="rloo",
        rollout_tensor_parallel=4, update_epochs=2, enforce_eager=True, engine="sglang",
        old_logprob=False, max_steps=77, max_num_seqs=192, micro_batch_tokens=9999,
        reward_time=1.5,
    ),
    "one step off": steps(
        "verl", "qwen3-8b", 24, placement="one_step_off", train_gpus=16, zero_stage=2,
        offload="optimizer_weights", reference_model=False, rollout_gpu_memory=0.65, staleness=1,
        recompute="none",
    ),
    # Of each of the two nodes of 8 GPUs 6 train and 2 generate.
    "within nodes": steps(
        "verl", "qwen3-8b", 16, placement="one_step_off", train_gpus=12, global_batch_size=72,
        staleness=1, recompute="none",
    ),
    "dapo": steps(
        "verl", "qwen3-8b", 8, algorithm="dapo", flat_groups=0.2, offload="activations",
        offload_train=False, offload_rollout=False, recompute="none",
    ),
    "going on": steps(
        "verl", "qwen3-8b", 8, staleness=5, partial_rollout=True, old_logprob=True,
        recompute="none",
    ),
    # 32 = tensor 2 x stages 2 x data 8.
    "ppo": steps(
        "verl-megatron", "odd-dense", 32, algorithm="ppo", tensor_parallel=2, pipeline_parallel=2,
        virtual_pipeline=11, sequence_parallel=True, recompute="selective", offload="optimizer",
        micro_batch_tokens=4000, max_num_seqs=100,
    ),
    "plain": steps(
        "verl-megatron", "llama-3.1-8b", 8, zero_stage=0, tensor_parallel=2,
        sequence_parallel=False,
    ),
    # 48 that train = sequence 2 x data 24; 16 that generate = 4 engines. 144 = 2 x 72.
    "async": steps(
        "verl-megatron", "qwen3-30b-a3b", 64, placement="async", train_gpus=48, staleness=3,
        partial_rollout=True, context_parallel=2, expert_parallel=4, recompute="full",
        recompute_num_layers=7, global_batch_size=72, old_logprob=False, max_steps=50,
        rollout_tensor_parallel=4, rollout_expert_parallel=4, rollout_quantization="fp8",
        micro_batch_tokens=7004, expert_tensor_parallel=2, tensor_parallel=1,
    ),
}  # fmt: skip

NEMO_RL = {
    # 32 = tensor 2 x sequence 2 x data 8.
    "colocated": steps(
        "nemo-rl", "llama-3.1-8b", 32, tensor_parallel=2, context_parallel=2,
        sequence_parallel=True, recompute="selective", offload="optimizer", algorithm="rloo",
        global_batch_size=72, rollout_tensor_parallel=4, rollout_gpu_memory=0.55,
        max_num_seqs=192, enforce_eager=True, max_steps=77, micro_batch_tokens=9992,
    ),
    # 16 = 2 nodes train, 48 = 6 nodes generate.
    "async": steps(
        "nemo-rl", "qwen3-30b-a3b", 64, placement="async", train_gpus=16, staleness=3,
        partial_rollout=True, expert_parallel=8, pipeline_parallel=2, recompute="full",
        old_logprob=False, rollout_tensor_parallel=4, rollout_expert_parallel=4,
        rollout_quantization="fp8", expert_tensor_parallel=1,
    ),
    "within a node": steps(
        "nemo-rl", "qwen3-8b", 8, placement="separate", train_gpus=6, zero_stage=0,
        reference_model=False,
    ),
    "dapo": steps("nemo-rl", "odd-dense", 8, algorithm="dapo", flat_groups=0.2),
    # 32 = tensor 2 x data 16.
    "by dtensor": steps(
        "nemo-rl-dtensor", "llama-3.1-8b", 32, tensor_parallel=2, sequence_parallel=True,
        global_batch_size=48, recompute="full", offload="optimizer_weights",
    ),
}  # fmt: skip

OPENRLHF = {
    # 16 = tensor 2 x data 8; 4 engines.
    "ppo": steps(
        "openrlhf", "qwen3-8b", 16, algorithm="ppo", zero_stage=3, recompute="full",
        offload="optimizer", rollout_tensor_parallel=4, rollout_gpu_memory=0.55, update_epochs=2,
        enforce_eager=True, max_steps=77, micro_batch_tokens=9999, max_num_seqs=192,
    ),
    "async": steps(
        "openrlhf", "odd-dense", 24, placement="async", train_gpus=16, staleness=3,
        partial_rollout=True, algorithm="rloo", global_batch_size=48, zero_stage=1,
    ),
    "dapo": steps(
        "openrlhf", "qwen3-8b", 8, algorithm="dapo", flat_groups=0.2, offload_train=False,
        offload_rollout=False,
    ),
    "separate": steps(
        "openrlhf", "qwen3-8b", 16, placement="separate", train_gpus=12, global_batch_size=144,
    ),
}  # fmt: skip
