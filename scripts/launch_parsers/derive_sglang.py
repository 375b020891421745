"""What SGLang derives of `sglang.launch_server`: {"argv": [...]}, of an 80 GB H100 by default."""

from __future__ import annotations

from typing import Any

import fake_gpu
import fake_sglang  # noqa: F401
from sglang.srt.server_args import prepare_server_args

NAMES = {
    "tensor_parallel": "tp_size",
    "pipeline_parallel": "pp_size",
    "data_parallel": "dp_size",
    "expert_parallel": "ep_size",
    "attention_data_parallel": "attn_dp_size",
    "nodes": "nnodes",
    "chunked_prefill_size": "chunked_prefill_size",
    "mem_fraction_static": "mem_fraction_static",
    "max_running_requests": "max_running_requests",
    "context_length": "context_length",
    "quantization": "quantization",
    "kv_cache_dtype": "kv_cache_dtype",
    "draft_tokens": "speculative_num_draft_tokens",
    "disaggregation_mode": "disaggregation_mode",
    "disaggregation_transfer_backend": "disaggregation_transfer_backend",
}


def answer(case: dict[str, Any]) -> dict[str, Any]:
    fake_gpu.install(case)
    given = prepare_server_args(case["argv"])
    given.resolve_once()
    found = {**vars(given), **given.resolved_dict()}
    return {ours: found.get(name) for ours, name in NAMES.items()}
