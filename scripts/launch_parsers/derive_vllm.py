"""What vLLM derives of `vllm serve`: {"argv": [...], "devices": n}; argv starts with the model."""

from __future__ import annotations

from typing import Any

import fake_gpu
import fake_vllm  # noqa: F401
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.common.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser


def answer(case: dict[str, Any]) -> dict[str, Any]:
    fake_gpu.install(case)
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(case["argv"])
    validate_parsed_serve_args(parsed)
    parsed.model = getattr(parsed, "model_tag", None) or parsed.model
    config = AsyncEngineArgs.from_cli_args(parsed).create_engine_config()
    parallel, cache = config.parallel_config, config.cache_config
    scheduler, model = config.scheduler_config, config.model_config
    speculative, transfer = config.speculative_config, config.kv_transfer_config
    return {
        "tensor_parallel": parallel.tensor_parallel_size,
        "pipeline_parallel": parallel.pipeline_parallel_size,
        "data_parallel": parallel.data_parallel_size,
        "expert_parallel": parallel.enable_expert_parallel,
        "context_parallel": parallel.decode_context_parallel_size,
        "world": parallel.world_size_across_dp,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "chunked_prefill": scheduler.enable_chunked_prefill,
        "max_model_len": model.max_model_len,
        "dtype": str(model.dtype).removeprefix("torch."),
        "quantization": model.quantization,
        "kv_cache_dtype": cache.cache_dtype,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "prefix_caching": cache.enable_prefix_caching,
        "block_size": cache.block_size,
        "draft_tokens": speculative and speculative.num_speculative_tokens,
        "connector": transfer and transfer.kv_connector,
        "role": transfer and transfer.kv_role,
    }
