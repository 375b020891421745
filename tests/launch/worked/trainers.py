"""Plans to train with FSDP, DeepSpeed and MaxText: numbers that no two quantities share."""

from __future__ import annotations

from typing import Any

from worked.asked import Plan, train
from worked.megatron import megatron


def titan(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    return train(model, num_gpus, batch, **{"framework": "torchtitan", **more})


TORCHTITAN = {
    # 96 = tensor 2 x context 2 x data 24 (3 copies of 8 shards); 360 = 5 x 24 x 3.
    "dense": titan(
        "llama-3.1-8b", 96, 360, tensor_parallel=2, context_parallel=2, micro_batch_size=5,
        data_parallel_replicas=3, zero_stage=3, recompute="full", sequence_length=1104,
    ),
    # 24 = pipeline 4 x data 6; a rank has 504 / 6 = 84 sequences, 12 micro-batches of 7.
    "pipeline": titan(
        "llama-3.1-8b", 24, 504, pipeline_parallel=4, micro_batch_size=7, zero_stage=2,
        recompute="selective", optimizer_state_precision="bf16",
    ),
    # 80 layers in 20 stages; 80 = tensor 4 x pipeline 4 x data 5; 120 = 2 x 5 x 12.
    "chunks": titan(
        "llama-3.1-70b", 80, 120, tensor_parallel=4, pipeline_parallel=4, virtual_pipeline=5,
        micro_batch_size=2, zero_stage=0, sequence_parallel=True, recompute="none",
    ),
    # 126 layers in 16 stages, of which embedding and logits take a layer each: 7, 8 ... 8, 7.
    "ends": titan(
        "llama-3.1-405b", 128, 80, pipeline_parallel=16, micro_batch_size=1, zero_stage=2,
        recompute="none",
    ),
    "experts": titan(
        "qwen3-30b-a3b", 16, 144, expert_parallel=8, micro_batch_size=3, zero_stage=3,
        offload="optimizer_weights", recompute="none",
    ),
    "8 bits": titan(
        "llama-3.1-8b", 8, 88, micro_batch_size=11, precision="fp8", zero_stage=3, recompute="none",
    ),
}  # fmt: skip


def hugging_face(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    return train(model, num_gpus, batch, **{"framework": "hf-fsdp", **more})


TRANSFORMERS = {
    # 16 GPUs are the data-parallel ranks; 240 = 5 x 16 x 3.
    "lora": hugging_face(
        "llama-2-7b", 16, 240, micro_batch_size=5, adapter="lora", lora_rank=17,
        lora_targets="query_value", framework="hf-trainer", zero_stage=0, recompute="full",
        modules_to_save="embeddings", padding="none", mean_sample_length=501,
    ),
    "qlora": hugging_face(
        "llama-2-7b", 24, 168, micro_batch_size=7, adapter="qlora", lora_rank=19,
        lora_targets="attention", zero_stage=3, precision="fp16", offload="optimizer_weights",
    ),
    "once": hugging_face(
        "llama-2-7b", 8, 88, micro_batch_size=11, adapter="qlora", lora_rank=23,
        lora_targets="all_linear", framework="hf-trainer-triton", flash_attention=False,
        double_quantization=False, optimizer_state_precision="int8", zero_stage=0,
        offload="activations", recompute="none", eval_batch_size=3,
    ),
    "whole": hugging_face(
        "odd-bias", 16, 208, micro_batch_size=13, zero_stage=2, recompute="full",
        framework="hf-bf16", optimizer_state_precision="bf16",
    ),
}  # fmt: skip
DEEPSPEED = {
    # 24 = tensor 2 x data 12; 420 = 5 x 12 x 7; DeepSpeed counts 5 x 7 x 24 = 840.
    "tensors": hugging_face(
        "llama-2-7b", 24, 420, tensor_parallel=2, micro_batch_size=5, zero_stage=1,
        framework="deepspeed", offload="optimizer",
    ),
    # 24 data-parallel ranks; 504 = 3 x 24 x 7.
    "weights": hugging_face(
        "llama-2-7b", 24, 504, micro_batch_size=3, zero_stage=3, framework="deepspeed",
        reduce_bucket_size=210_000_000, sub_group_size=320_000_000,
        stage3_max_live_parameters=430_000_000,
        offload="optimizer_weights", precision="fp16", recompute="full", optimizer="lion",
    ),
    "activations": hugging_face(
        "llama-2-7b", 16, 144, micro_batch_size=9, zero_stage=2, framework="deepspeed",
        offload="optimizer_activations",
    ),
    "drives": hugging_face(
        "llama-2-7b", 8, 88, micro_batch_size=11, zero_stage=3, framework="deepspeed",
        offload="optimizer_nvme", precision="fp8",
    ),
    "all drives": hugging_face(
        "llama-2-7b", 8, 104, micro_batch_size=13, zero_stage=3, framework="deepspeed",
        offload="optimizer_weights_nvme",
    ),
    "all": hugging_face(
        "llama-2-7b", 8, 136, micro_batch_size=17, zero_stage=3, framework="deepspeed",
        offload="optimizer_weights_activations",
    ),
    "lora": hugging_face(
        "llama-2-7b", 8, 152, micro_batch_size=19, adapter="lora", lora_rank=17,
        framework="hf-trainer", zero_stage=0,
    ),
}  # fmt: skip
ACCELERATE = {
    # 24 data-parallel ranks: 3 copies of 8 shards; 360 = 5 x 24 x 3.
    "copies": hugging_face(
        "llama-2-7b", 24, 360, micro_batch_size=5, data_parallel_replicas=3, zero_stage=3,
        recompute="full", framework="fsdp-compiled",
    ),
    "fsdp": hugging_face(
        "llama-2-7b", 16, 336, micro_batch_size=7, zero_stage=2, precision="fp16",
        offload="optimizer_weights",
    ),
    "8 bits": hugging_face(
        "llama-2-7b", 24, 264, micro_batch_size=11, zero_stage=3, precision="fp8",
    ),
    "4 bits": hugging_face(
        "llama-2-7b", 8, 136, micro_batch_size=17, zero_stage=3, precision="fp4", gpu="b200",
    ),
    "deepspeed": hugging_face(
        "llama-2-7b", 16, 624, micro_batch_size=13, zero_stage=3, framework="deepspeed",
        offload="optimizer_weights", recompute="full",
    ),
    "lora": hugging_face(
        "llama-2-7b", 16, 240, micro_batch_size=5, adapter="lora", lora_rank=17,
        framework="hf-trainer", zero_stage=0,
    ),
    # 8 data-parallel ranks; 120 = 5 x 8 x 3.
    "heads": hugging_face(
        "llama-2-7b", 32, 120, micro_batch_size=5, zero_stage=3, recompute="full",
        framework="deepspeed", context_parallel=4,
    ),
}  # fmt: skip
AXOLOTL = {
    # 16 data-parallel ranks; 240 = 5 x 16 x 3.
    "fsdp": hugging_face(
        "llama-2-7b", 16, 240, micro_batch_size=5, zero_stage=3, recompute="full",
        framework="hf-bf16", offload="optimizer_weights", optimizer="muon",
    ),
    "lora": hugging_face(
        "llama-2-7b", 16, 336, micro_batch_size=7, adapter="lora", lora_rank=17,
        lora_targets="query_value", framework="hf-trainer", zero_stage=2, recompute="full",
        modules_to_save="embeddings", padding="full", mean_sample_length=501, precision="fp16",
    ),
    # 24 ranks: 2 copies of 12 shards.
    "qlora": hugging_face(
        "llama-2-7b", 24, 264, micro_batch_size=11, adapter="qlora", lora_rank=19,
        lora_targets="attention", zero_stage=2, data_parallel_replicas=2,
    ),
    "triton": hugging_face(
        "llama-2-7b", 8, 104, micro_batch_size=13, adapter="lora", lora_rank=23,
        lora_targets="all_linear", framework="hf-trainer-triton", flash_attention=False,
        optimizer_state_precision="int8", zero_stage=0, offload="activations", recompute="full",
    ),
    # 24 = tensor 2 x data 12; 420 = 5 x 12 x 7.
    "deepspeed": hugging_face(
        "llama-2-7b", 24, 420, tensor_parallel=2, micro_batch_size=5, zero_stage=3,
        framework="deepspeed", precision="fp8", offload="optimizer",
    ),
    "4 bits": hugging_face(
        "llama-2-7b", 8, 136, micro_batch_size=17, zero_stage=0, precision="fp4", gpu="b200",
        framework="hf-bf16",
    ),
}  # fmt: skip
MAXTEXT = {
    # 24 = tensor 2 x data 12, 3 copies of 4 shards; 420 = 5 x 12 x 7: 420 / 7 / 24 = 2.5.
    "dense": titan(
        "llama-3.1-8b", 24, 420, tensor_parallel=2, micro_batch_size=5, zero_stage=3,
        data_parallel_replicas=3, recompute="full", sequence_parallel=True,
    ),
    # 64 = tensor 2 x pipeline 4 x data 8; 288 = 3 x 8 x 12: 288 / 64 = 4.5.
    "pipeline": megatron(
        "llama-3.1-8b", 64, 288, tensor_parallel=2, pipeline_parallel=4, virtual_pipeline=2,
        micro_batch_size=3, zero_stage=1, recompute="selective", precision="fp8",
    ),
    # 64 = context 2 x data 32, 8 of which split experts; 352 = 11 x 32: 352 / 64 = 5.5.
    "experts": megatron(
        "mixtral-8x7b", 64, 352, context_parallel=2, expert_parallel=8, micro_batch_size=11,
        zero_stage=0, recompute="feed_forward", precision="fp16", sequence_length=1104,
    ),
    "sizes": titan(
        "odd-llama", 8, 104, micro_batch_size=13, offload="optimizer_weights", zero_stage=3,
        recompute="none",
    ),
    "4 bits": megatron(
        "llama-2-7b", 8, 152, micro_batch_size=19, precision="fp4", gpu="b200", dropout=True,
        flash_attention=False, offload="optimizer",
    ),
    "odd experts": megatron("odd-mixtral", 8, 136, micro_batch_size=17),
    # 64 ranks, 8 of which split experts; 192 = 3 x 64.
    "later": titan(
        "deepseek-v3", 64, 192, micro_batch_size=3, mtp_num_layers=1, zero_stage=3,
        expert_parallel=8, recompute="none",
    ),
    "qlora": hugging_face(
        "llama-2-7b", 8, 88, micro_batch_size=11, adapter="qlora", lora_rank=17, zero_stage=3,
    ),
    "lora": hugging_face(
        "llama-2-7b", 8, 88, micro_batch_size=11, adapter="lora", lora_rank=19, zero_stage=3,
    ),
}  # fmt: skip
