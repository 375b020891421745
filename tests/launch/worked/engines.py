"""Plans to serve: numbers that no two quantities of a plan share."""

from __future__ import annotations

from typing import Any

from worked.asked import QUESTIONS, SPECS, Plan


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
        **{name: more.pop(name) for name in ("lora_rank", "max_loras") if name in more},
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
# Ranks split the tokens of prompts.
PROMPTS = {"gpu": "h200-sxm", "concurrency": 34, "max_num_batched_tokens": 3001}
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
        max_loras=3,
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
    "prompts": serve("deepseek-v3", 8, "vllm", **PROMPTS, tensor_parallel=4, context_parallel=2),
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
        max_loras=3,
        concurrency=29,
        max_num_batched_tokens=2003,
    ),
    "pools": serve("llama-3.1-70b", 10, "sglang", **POOLS),
    "prompts": serve(
        "deepseek-v3", 8, "sglang", **PROMPTS, attention_data_parallel=2, context_parallel=4
    ),
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
        max_loras=3,
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
