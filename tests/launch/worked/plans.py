"""The plans of the worked tables: numbers that no two quantities of a plan share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from planner.launch.job import Job
from planner.plan import evaluated, one_configuration
from planner.request import Request

SPECS = Path(__file__).parent / "specs"
QUESTIONS = (
    *("sequence_length", "total_tokens", "dropout", "mtp_num_layers", "adapter", "lora_rank"),
    *("lora_targets", "modules_to_save", "double_quantization", "padding", "mean_sample_length"),
    *("mode", "draft_tokens", "acceptance_rate", "draft_model", "max_num_seqs", "enforce_eager"),
    *("redundant_experts", "prefix_cache_hit_rate", "request_rate", "input_variation"),
    *("output_variation",),
)
Plan = dict[str, Any]


def train(model: str, num_gpus: int, batch: int, **more: Any) -> Plan:
    """A plan to train; what is no question of the request is a setting. Nothing fails in it, so
    that checkpoints are 1,000 steps apart."""
    asked = {name: more.pop(name) for name in QUESTIONS if name in more}
    return {
        "workload": "train",
        "model": model,
        "gpu": more.pop("gpu", "h100-sxm"),
        "framework": more.pop("framework"),
        "num_gpus": num_gpus,
        "global_batch_size": batch,
        "sequence_length": 1100,
        "total_tokens": 1e9,
        "reliability": "ideal",
        "specs": SPECS,
        **asked,
        "settings": more,
    }


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
        sequence_parallel=True, zero_stage=1, recompute="full", dropout=True,
    ),
    # 32 = tensor 2 x data 16; 144 = 3 x 16 x 3.
    "experts": of_deepspeed(
        "mixtral-8x7b", 32, 144, tensor_parallel=2, expert_parallel=4, sequence_parallel=True,
        micro_batch_size=3, zero_stage=2, precision="fp16", offload="optimizer_activations",
        recompute="selective",
    ),
    "bias": of_deepspeed(
        "odd-bias", 16, 144, micro_batch_size=9, flash_attention=False, offload="optimizer",
        zero_stage=2,
    ),
    "alibi": of_deepspeed("bloom-560m", 8, 40, offload="activations", zero_stage=0),
    # 16 = context 2 x data 8; 440 = 11 x 8 x 5.
    "fp8": of_deepspeed(
        "llama-2-7b", 16, 440, micro_batch_size=11, precision="fp8", context_parallel=2,
        sequence_length=1104,
    ),
    "fp4": of_deepspeed("odd-dense", 8, 88, micro_batch_size=11, precision="fp4", gpu="b200"),
}  # fmt: skip


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
    ),
    "experts": titan(
        "qwen3-30b-a3b", 16, 144, expert_parallel=8, micro_batch_size=3, zero_stage=3,
        offload="optimizer_weights",
    ),
    "8 bits": titan("llama-3.1-8b", 8, 88, micro_batch_size=11, precision="fp8", zero_stage=3),
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
        offload="activations",
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
        optimizer_state_precision="int8", zero_stage=0, offload="activations",
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
    ),
    "4 bits": megatron(
        "llama-2-7b", 8, 152, micro_batch_size=19, precision="fp4", gpu="b200", dropout=True,
        flash_attention=False, offload="optimizer",
    ),
    "odd experts": megatron("odd-mixtral", 8, 136, micro_batch_size=17),
    # 64 ranks, 8 of which split experts; 192 = 3 x 64.
    "later": titan(
        "deepseek-v3", 64, 192, micro_batch_size=3, mtp_num_layers=1, zero_stage=3,
        expert_parallel=8,
    ),
    "qlora": hugging_face(
        "llama-2-7b", 8, 88, micro_batch_size=11, adapter="qlora", lora_rank=17, zero_stage=3,
    ),
    "lora": hugging_face(
        "llama-2-7b", 8, 88, micro_batch_size=11, adapter="lora", lora_rank=19, zero_stage=3,
    ),
}  # fmt: skip


def serve(model: str, num_gpus: int, engine: str, **more: Any) -> Plan:
    """A plan to serve prompts of 1,009 tokens and answers of 211."""
    asked = {name: more.pop(name) for name in QUESTIONS if name in more}
    return {
        "workload": more.pop("workload", "serve"),
        "model": model,
        "gpu": more.pop("gpu", "h100-sxm"),
        "engine": engine,
        "num_gpus": num_gpus,
        "input_tokens": 1009,
        "output_tokens": 211,
        "specs": SPECS,
        **({"lora_rank": more.pop("lora_rank")} if "lora_rank" in more else {}),
        **asked,
        "settings": more,
    }


# Prompts are computed by replicas of 2 GPUs, answers by one of 4.
POOLS = {
    "mode": "disaggregated", "prefill_replicas": 3, "prefill_tensor_parallel": 2,
    "prefill_max_num_batched_tokens": 5003, "tensor_parallel": 4, "concurrency": 37,
    "max_num_batched_tokens": 4001,
}  # fmt: skip
# 24 GPUs are 3 replicas of tensor 4 x pipeline 2; 37 requests of each at once.
REPLICAS = {
    "tensor_parallel": 4, "pipeline_parallel": 2, "concurrency": 37,
    "max_num_batched_tokens": 5003,
}  # fmt: skip
# Two nodes: 16 GPUs = tensor 2 x attention ranks 8; 104 requests are 13 of each rank.
RANKS = {
    "gpu": "h200-sxm", "tensor_parallel": 2, "attention_data_parallel": 8, "expert_parallel": 16,
    "concurrency": 104, "max_num_batched_tokens": 3001, "draft_tokens": 3, "acceptance_rate": 0.6,
}  # fmt: skip
VLLM = {
    "replicas": serve(
        "llama-3.1-70b",
        24,
        "vllm",
        **REPLICAS,
        kv_cache="fp8",
        quantization="fp8",
        prefix_cache_hit_rate=0.3,
        request_rate=1.7,
    ),
    "ranks": serve("deepseek-v3", 16, "vllm", **RANKS, kv_cache="bf16"),
    # A step of 64 tokens has no room for one of each of 101 requests.
    "few tokens": serve(
        "llama-3.1-8b",
        1,
        "vllm",
        concurrency=101,
        max_num_batched_tokens=64,
        kv_cache="int8",
        weight_offload=0.25,
        enforce_eager=True,
        quantization="fp8_block",
    ),
    "drafted": serve(
        "llama-3.1-70b",
        8,
        "vllm",
        tensor_parallel=8,
        draft_tokens=5,
        acceptance_rate=0.7,
        draft_model="llama-3.2-1b",
        lora_rank=17,
        kv_cache="int4",
        concurrency=29,
        max_num_seqs=31,
        max_num_batched_tokens=2003,
    ),
    "experts": serve(
        "qwen3-30b-a3b",
        2,
        "vllm",
        tensor_parallel=2,
        expert_parallel=2,
        kv_offload=0.5,
        concurrency=19,
        max_num_batched_tokens=2003,
        expert_quantization="w8a16",
    ),
    "4 bits": serve(
        "qwen3-30b-a3b",
        1,
        "vllm",
        gpu="b200",
        concurrency=23,
        max_num_batched_tokens=2011,
        expert_quantization="nvfp4",
        input_variation=0.5,
    ),
    "pools": serve("llama-3.1-70b", 10, "vllm", **POOLS),
    # Prompts by 4 attention ranks of a GPU, in steps of 4 x 5003 tokens; answers by 2 of 2 GPUs.
    "pools of ranks": serve(
        "qwen3-30b-a3b",
        16,
        "vllm",
        **{
            **POOLS,
            "prefill_replicas": 3,
            "prefill_tensor_parallel": 1,
            "prefill_attention_data_parallel": 4,
            "tensor_parallel": 2,
            "attention_data_parallel": 2,
            "concurrency": 38,
        },
    ),
}
SGLANG = {
    "replicas": serve(
        "llama-3.1-70b",
        24,
        "sglang",
        **REPLICAS,
        kv_cache="fp8",
        quantization="fp8",
        prefix_cache_hit_rate=0.3,
        request_rate=1.7,
    ),
    "ranks": serve("deepseek-v3", 16, "sglang", **RANKS, redundant_experts=32),
    "offloaded": serve(
        "llama-3.1-8b",
        1,
        "sglang",
        concurrency=101,
        max_num_batched_tokens=17011,
        weight_offload=0.25,
        kv_offload=0.5,
        enforce_eager=True,
    ),
    "drafted": serve(
        "llama-3.1-70b",
        8,
        "sglang",
        tensor_parallel=8,
        draft_tokens=5,
        acceptance_rate=0.7,
        draft_model="llama-3.2-1b",
        lora_rank=17,
        concurrency=29,
        max_num_batched_tokens=2003,
    ),
    "pools": serve("llama-3.1-70b", 10, "sglang", **POOLS),
}
TENSORRT_LLM = {
    "replicas": serve(
        "llama-3.1-70b",
        24,
        "tensorrt-llm",
        **REPLICAS,
        kv_cache="fp8",
        prefix_cache_hit_rate=0.3,
        request_rate=1.7,
    ),
    # 16 attention ranks of a GPU each; 104 requests are 7 of each but the last.
    "ranks": serve(
        "deepseek-v3",
        16,
        "tensorrt-llm",
        **{**RANKS, "tensor_parallel": 1, "attention_data_parallel": 16},
    ),
    "offloaded": serve(
        "llama-3.1-8b",
        1,
        "tensorrt-llm",
        concurrency=101,
        max_num_batched_tokens=2003,
        kv_offload=0.5,
    ),
    "drafted": serve(
        "llama-3.1-70b",
        8,
        "tensorrt-llm",
        tensor_parallel=8,
        draft_tokens=5,
        acceptance_rate=0.7,
        draft_model="llama-3.2-1b",
        lora_rank=17,
        concurrency=29,
        max_num_batched_tokens=2003,
    ),
    "pools": serve("llama-3.1-70b", 10, "tensorrt-llm", **POOLS),
}


def batch(model: str, num_gpus: int, **more: Any) -> Plan:
    return serve(model, num_gpus, "llama.cpp", workload="inference", **more)


LLAMA_SERVER = {
    "rows": batch(
        "llama-3.1-8b",
        2,
        tensor_parallel=2,
        concurrency=13,
        max_num_batched_tokens=509,
        kv_cache="int8",
        draft_tokens=5,
        acceptance_rate=0.6,
    ),
    # 33 layers with that of the logits: a third of them, 11, stay on the host.
    "layers": batch(
        "llama-3.1-8b",
        3,
        pipeline_parallel=3,
        concurrency=17,
        max_num_batched_tokens=521,
        kv_cache="int4",
        weight_offload=0.33,
    ),
    "one GPU": batch("llama-3.1-8b", 1, concurrency=19, max_num_batched_tokens=523),
}
DYNAMO = {
    "vllm": serve("llama-3.1-70b", 10, "vllm", **POOLS),
    "sglang": serve("llama-3.1-70b", 10, "sglang", **POOLS),
    "tensorrt-llm": serve("llama-3.1-70b", 10, "tensorrt-llm", **POOLS),
    "replicas": serve("llama-3.1-70b", 24, "vllm", **REPLICAS, request_rate=1.7),
    "ranks": serve("deepseek-v3", 16, "sglang", **RANKS),
}
PLANS: dict[str, dict[str, Plan]] = {
    "megatron-lm": MEGATRON_LM,
    "megatron-bridge": BRIDGE,
    "megatron-deepspeed": MEGATRON_DEEPSPEED,
    "torchtitan": TORCHTITAN,
    "transformers": TRANSFORMERS,
    "deepspeed": DEEPSPEED,
    "accelerate": ACCELERATE,
    "axolotl": AXOLOTL,
    "maxtext": MAXTEXT,
    "vllm": VLLM,
    "sglang": SGLANG,
    "tensorrt-llm": TENSORRT_LLM,
    "llama-server": LLAMA_SERVER,
    "dynamo": DYNAMO,
}
"""By target, by name."""


def job(plan: Plan) -> Job:
    """The job of a plan that the rules allow, whether it fits or not."""
    of = one_configuration(Request(**plan))
    found = evaluated(of)
    assert found.rejected_by in ("", "out_of_memory", "out_of_host_memory"), found.rejected_by
    return Job.of_plan(of, found)
