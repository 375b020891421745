"""Plans to train with Megatron and its forks: numbers that no two quantities of a plan share."""

from __future__ import annotations

from typing import Any

from worked.asked import Plan, train


def megatron(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    return train(model, num_gpus, batch, **{"framework": "megatron-lm", **more})


MEGATRON_LM = {
    # 48 GPUs = tensor 4 x pipeline 4 x data 3; 105 sequences = micro-batch 5 x data 3 x 7.
    "dense": megatron(
        "odd-dense", 48, 105, tensor_parallel=4, pipeline_parallel=4, micro_batch_size=5,
        sequence_parallel=True, zero_stage=1, recompute="full", recompute_num_layers=3,
        dropout=True, tp_comm_overlap=True, main_grads_precision="bf16",
    ),
    # 24 = tensor 2 x data 12, 6 of which split experts; 252 = 3 x 12 x 7.
    "experts": megatron(
        "odd-experts", 24, 252, tensor_parallel=2, expert_parallel=6, micro_batch_size=3,
        sequence_parallel=True, zero_stage=1, recompute="feed_forward", precision="fp16",
        offload="optimizer_activations", expert_capacity_factor=1.25, data_parallel_replicas=2,
        expert_tensor_parallel=2, overlap_expert_parallel=True, token_dispatcher="flex",
    ),
    # 24 = context 4 x pipeline 3 x data 2; 60 = 2 x 2 x 15.
    "latent": megatron(
        "odd-latent", 24, 60, context_parallel=4, pipeline_parallel=3, virtual_pipeline=7,
        micro_batch_size=2, precision="fp8", fp8_recipe="blockwise", cp_comm_type="a2a",
        recompute="selective", zero_stage=1, optimizer_state_precision="fp8",
        sequence_length=1104,
    ),
    # 8 = tensor 2 x pipeline 2 x data 2; 130 = 13 x 2 x 5.
    "hybrid": megatron(
        "odd-hybrid", 8, 130, tensor_parallel=2, pipeline_parallel=2, micro_batch_size=13,
        gpu="b200", precision="fp4", sequence_parallel=True, optimizer="muon",
    ),
    "linear": megatron(
        "odd-linear", 8, 88, micro_batch_size=11, offload="activations", dropout=True,
        optimizer_state_precision="fp32", zero_stage=1,
    ),
    "bias": megatron(
        "odd-bias", 16, 144, micro_batch_size=9, optimizer="momentum", flash_attention=False,
        recompute="full", main_grads_precision="fp32",
    ),
    "alibi": megatron(
        "bloom-560m", 8, 40, offload="optimizer", zero_stage=1, main_params_precision="fp32",
        optimizer_state_precision="bf16",
    ),
    "later": megatron(
        "deepseek-v3", 64, 192, pipeline_parallel=8, expert_parallel=8, mtp_num_layers=1,
        micro_batch_size=3, gpu="b200", precision="fp8",
    ),
}  # fmt: skip


def bridge(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    return train(model, num_gpus, batch, **{"framework": "megatron-bridge", **more})


BRIDGE = {
    # 48 = tensor 4 x pipeline 4 x data 3; 105 = 5 x 3 x 7.
    "dense": bridge(
        "odd-dense", 48, 105, tensor_parallel=4, pipeline_parallel=4, micro_batch_size=5,
        sequence_parallel=True, zero_stage=1, recompute="full", recompute_num_layers=3,
        dropout=True, main_grads_precision="bf16",
    ),
    "experts": bridge(
        "odd-experts", 24, 252, tensor_parallel=2, expert_parallel=6, micro_batch_size=3,
        sequence_parallel=True, recompute="feed_forward", precision="fp16",
        offload="optimizer_activations", expert_capacity_factor=1.25, data_parallel_replicas=2,
        expert_tensor_parallel=2, overlap_expert_parallel=True, tp_comm_overlap=True,
    ),
    # 48 = context 4 x pipeline 4 x data 3; 60 = 1 x 3 x 20.
    "context": bridge(
        "llama-3.1-8b", 48, 60, context_parallel=4, pipeline_parallel=4, virtual_pipeline=8,
        micro_batch_size=1, precision="fp8", fp8_recipe="blockwise", cp_comm_type="a2a",
        recompute="selective", optimizer_state_precision="bf16",
        sequence_length=1104, fp8_attention=True,
    ),
    "bias": bridge(
        "odd-bias", 16, 144, micro_batch_size=9, optimizer="momentum", flash_attention=False,
        main_grads_precision="fp32", framework="nemo", zero_stage=0,
    ),
    "later": bridge(
        "deepseek-v3", 64, 192, pipeline_parallel=8, expert_parallel=8, mtp_num_layers=1,
        micro_batch_size=3, gpu="b200", precision="fp4", framework="nemo", optimizer="muon",
    ),
    "states": bridge(
        "qwen3-30b-a3b", 8, 88, micro_batch_size=11, token_dispatcher="alltoall",
        optimizer_state_precision="fp32", main_params_precision="fp32",
    ),
    "optimizer": bridge("llama-3.1-8b", 8, 88, micro_batch_size=11, offload="optimizer"),
    "activations": bridge("llama-3.1-8b", 8, 88, micro_batch_size=11, offload="activations"),
    "queries": bridge(
        "llama-3.1-8b", 8, 88, micro_batch_size=11, adapter="lora", lora_rank=17,
        lora_targets="query_value",
    ),
    "attention": bridge(
        "llama-3.1-8b", 8, 88, micro_batch_size=11, adapter="lora", lora_rank=19,
        lora_targets="attention",
    ),
    "all": bridge(
        "llama-3.1-8b", 8, 88, micro_batch_size=11, adapter="lora", lora_rank=23,
        lora_targets="all_linear",
    ),
}  # fmt: skip


def of_deepspeed(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    return train(model, num_gpus, batch, **{"framework": "megatron-deepspeed", **more})


MEGATRON_DEEPSPEED = {
    # 48 = tensor 4 x pipeline 4 x data 3; 105 = 5 x 3 x 7.
    "dense": of_deepspeed(
        "llama-3.1-8b", 48, 105, tensor_parallel=4, pipeline_parallel=4, micro_batch_size=5,
        sequence_parallel=True, zero_stage=1, recompute="full", dropout=True, flash_attention=True,
    ),
    # 32 = tensor 2 x data 16; 144 = 3 x 16 x 3.
    "experts": of_deepspeed(
        "mixtral-8x7b", 32, 144, tensor_parallel=2, expert_parallel=4, sequence_parallel=True,
        micro_batch_size=3, zero_stage=2, precision="fp16", offload="optimizer_activations",
        recompute="selective", flash_attention=True,
    ),
    "bias": of_deepspeed(
        "odd-bias", 16, 144, micro_batch_size=9, flash_attention=False, offload="optimizer",
        zero_stage=2,
    ),
    "alibi": of_deepspeed(
        "bloom-560m", 8, 40, offload="activations", zero_stage=0, flash_attention=True,
    ),
    # 16 = context 2 x data 8; 440 = 11 x 8 x 5.
    "fp8": of_deepspeed(
        "llama-2-7b", 16, 440, micro_batch_size=11, precision="fp8", context_parallel=2,
        sequence_length=1104,
    ),
    "fp4": of_deepspeed(
        "odd-dense", 8, 88, micro_batch_size=11, precision="fp4", gpu="b200", flash_attention=True,
    ),
}  # fmt: skip
