"""Plans that the real parsers are asked about: dense, experts, latent attention, hybrid."""

from __future__ import annotations

from typing import Any

Plan = dict[str, Any]


def train(model: str, num_gpus: int, batch: int, gpu: str = "h100-sxm", **more: Any) -> Plan:
    """A plan to train; what is no question of the request is a setting."""
    questions = (
        "sequence_length",
        "adapter",
        "lora_rank",
        "lora_targets",
        "dropout",
        "mtp_num_layers",
    )
    asked = {name: more.pop(name) for name in questions if name in more}
    return {
        "workload": "train",
        "model": model,
        "gpu": gpu,
        "num_gpus": num_gpus,
        "global_batch_size": batch,
        "sequence_length": 2048,
        "settings": more,
        **asked,
    }


def layout(tp: int = 1, pp: int = 1, vp: int = 1, mbs: int = 1, **more: Any) -> Plan:
    return {
        "tensor_parallel": tp,
        "pipeline_parallel": pp,
        "virtual_pipeline": vp,
        "micro_batch_size": mbs,
        "sequence_parallel": tp > 1,
        **more,
    }


MEGATRON = {
    "one GPU": train("gpt2-xl", 1, 8, sequence_length=1024, **layout(mbs=2)),
    "dense, one node": train("llama-2-7b", 8, 128, **layout(2)),
    "full recomputation": train("llama-2-13b", 16, 128, **layout(4, recompute="full")),
    "selective": train("llama-2-13b", 16, 64, **layout(2, 2, recompute="selective")),
    "chunks": train("llama-65b", 2048, 2048, "a100-sxm-80gb", **layout(8, 16, 5)),
    "fp8": train("llama-2-70b", 256, 512, **layout(4, 4, 4, precision="fp8")),
    "context": train(
        "llama-3.1-8b", 32, 64, sequence_length=16384, **layout(2, context_parallel=4)
    ),
    "fp16": train("gpt-3-175b", 1024, 1536, **layout(8, 8, precision="fp16")),
    "uneven": train("llama-3.1-405b", 2048, 2048, **layout(8, 16, recompute="full")),
    "experts": train("mixtral-8x7b", 64, 256, **layout(2, 4, expert_parallel=8)),
    "fine experts": train("qwen3-30b-a3b", 64, 256, **layout(1, 2, expert_parallel=8)),
    "latent": train(
        "deepseek-v3", 2048, 4096, "h200-sxm", **layout(1, 16, expert_parallel=64, recompute="full")
    ),
    "multi-query": train("falcon-40b", 64, 256, **layout(4, 2)),
    "no shards": train("llama-2-7b", 16, 64, **layout(8, zero_stage=0)),
    "hybrid": train("nemotron-h-8b", 16, 64, **layout(2)),
}
TITAN = {
    "dense": train("llama-3.1-8b", 8, 64, **layout(zero_stage=2)),
    "tensors": train("llama-3.1-70b", 256, 512, **layout(8, zero_stage=2, recompute="full")),
    "pipeline": train("llama-3.1-405b", 2048, 2048, **layout(8, 16, recompute="full")),
    "chunks": train("llama-3.1-70b", 256, 512, **layout(4, 4, 5, zero_stage=2)),
    "no shipped shape": train("llama-65b", 256, 512, **layout(8, 4, zero_stage=2)),
    "fp8": train("llama-3.1-70b", 256, 512, **layout(8, zero_stage=2, precision="fp8")),
    "experts": train("qwen3-30b-a3b", 64, 256, **layout(zero_stage=3, expert_parallel=8)),
    "latent": train(
        "deepseek-v3", 1024, 4096, "h200-sxm", mtp_num_layers=0,
        **layout(1, 8, zero_stage=2, expert_parallel=64, recompute="full"),
    ),
}  # fmt: skip
HF = {
    "one GPU": train("llama-2-7b", 1, 8, adapter="lora", lora_rank=16, lora_targets="query_value"),
    "adapters": train("llama-2-13b", 8, 64, adapter="lora", lora_rank=16, zero_stage=3),
    "four bits": train("llama-2-7b", 8, 32, adapter="qlora", lora_rank=64, zero_stage=0),
    "zero 2": train("llama-2-7b", 8, 64, zero_stage=2, recompute="full"),
    "zero 3": train("llama-2-7b", 16, 64, zero_stage=3, recompute="full", micro_batch_size=2),
    "offload": train("llama-2-7b", 8, 64, zero_stage=3, offload="optimizer", recompute="full"),
    "experts": train("mixtral-8x7b", 64, 128, "h200-sxm", zero_stage=3, recompute="full"),
}


def serve(model: str, num_gpus: int, gpu: str = "h100-sxm", **more: Any) -> Plan:
    """A plan to serve; what is no question of the request is a setting."""
    settings = {"concurrency": 64, "max_num_batched_tokens": 8192, **more}
    asked = {name: settings.pop(name) for name in ("mode",) if name in settings}
    return {
        "workload": "serve",
        "model": model,
        "gpu": gpu,
        "num_gpus": num_gpus,
        "input_tokens": 1024,
        "output_tokens": 256,
        "settings": settings,
        **asked,
    }


# config.json of models whose family `config_json` does not write.
CONFIGS: dict[str, Plan] = {
    "granite-4.0-h-tiny": {
        "model_type": "granitemoehybrid",
        "architectures": ["GraniteMoeHybridForCausalLM"],
        "torch_dtype": "bfloat16",
        "hidden_size": 1536,
        "intermediate_size": 512,
        "layer_types": [*["mamba"] * 9, "attention"] * 4,
        "mamba_d_conv": 4,
        "mamba_d_head": 64,
        "mamba_d_state": 128,
        "mamba_expand": 2,
        "mamba_n_groups": 1,
        "mamba_n_heads": 48,
        "max_position_embeddings": 131072,
        "num_attention_heads": 12,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 40,
        "num_key_value_heads": 4,
        "num_local_experts": 64,
        "position_embedding_type": "nope",
        "shared_intermediate_size": 1024,
        "tie_word_embeddings": True,
        "vocab_size": 100352,
    },
}
POOLS = {"mode": "disaggregated", "prefill_replicas": 1}
SERVING = {
    "one GPU": serve("llama-2-7b", 1),
    "dense": serve("llama-3.1-70b", 8, tensor_parallel=8),
    "copies": serve("llama-3.1-70b", 16, tensor_parallel=4),
    "fp8": serve("llama-3.1-70b", 4, tensor_parallel=4, quantization="fp8", kv_cache="fp8"),
    "experts": serve("mixtral-8x7b", 8, tensor_parallel=8, expert_parallel=8),
    "fine experts": serve("qwen3-30b-a3b", 4, tensor_parallel=4),
    "latent": serve(
        "deepseek-v3", 8, "h200-sxm", tensor_parallel=1, attention_data_parallel=8,
        expert_parallel=8, quantization="fp8",
    ),
    "hybrid": serve("granite-4.0-h-tiny", 2, tensor_parallel=2),
    "latent, one rank of attention": serve(
        "deepseek-v3", 8, "h200-sxm", tensor_parallel=8, quantization="fp8"
    ),
    "pools": serve(
        "llama-3.1-70b", 8, tensor_parallel=4, prefill_tensor_parallel=4, **POOLS
    ),
    "pools of fp8": serve(
        "llama-3.1-70b", 4, tensor_parallel=2, prefill_tensor_parallel=2, quantization="fp8",
        prefill_quantization="fp8", **POOLS,
    ),
}  # fmt: skip
