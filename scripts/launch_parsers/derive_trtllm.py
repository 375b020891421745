"""What `trtllm-serve` makes of its words and of its YAML: {"argv": [...], "yaml": text}.

click reads the words, the classes of `LlmArgs` the YAML, both from the checkout of TensorRT-LLM
that PLANNER_TENSORRT_LLM names. Its compiled libraries are stood in for.
"""

from __future__ import annotations

import enum
import os
import sys
from pathlib import Path
from typing import Any

import stubs
import yaml

PACKAGE = "tensorrt_llm"
COMPILED = ("_utils", "bindings", "mapping", "models", "sampling_params", "quantization")
COMPILED += ("_tensorrt_engine", "executor", "inputs", "serve", "tools", "lora_manager")
COMPILED += (
    *("llmapi.build_cache", "llmapi.tokenizer", "llmapi.utils", "llmapi.disagg_utils"),
    *("llmapi.llm_utils", "llmapi.mpi_session", "llmapi.reasoning_parser"),
)
GPUS_PER_NODE = 8  # torch counts none here

sys.modules["strenum"] = enum  # part of Python since 3.11
folder = Path(os.environ["PLANNER_TENSORRT_LLM"])
stubs.pass_over(folder, PACKAGE, f"{PACKAGE}.commands", f"{PACKAGE}.llmapi")
for name in COMPILED:
    sys.modules[f"{PACKAGE}.{name}"] = module = stubs.Empty(f"{PACKAGE}.{name}")
    module.__path__ = []
stubs.install_missing()
stubs.install(PACKAGE)

from tensorrt_llm.builder import BuildConfig  # noqa: E402

sys.modules[f"{PACKAGE}.llmapi"].BuildConfig = BuildConfig  # type: ignore[attr-defined]

from tensorrt_llm.commands.serve import serve  # noqa: E402
from tensorrt_llm.llmapi.llm_args import (  # noqa: E402
    TorchLlmArgs,
    update_llm_args_with_extra_dict,
)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    words = serve.make_context("serve", list(case["argv"])).params
    settings = {"model": words["model"], "gpus_per_node": GPUS_PER_NODE}
    further = yaml.safe_load(case["yaml"]) or {}
    read = TorchLlmArgs(**update_llm_args_with_extra_dict(settings, further))
    return {
        "tensor_parallel": words["tensor_parallel_size"],
        "pipeline_parallel": words["pipeline_parallel_size"],
        "reuses_blocks": read.kv_cache_config.enable_block_reuse,
        "draft_tokens": getattr(read.speculative_config, "max_draft_len", None),
        "lora_rank": getattr(read.lora_config, "max_lora_rank", None),
        "kv_cache": read.kv_cache_config.dtype,
        "attention_dp": read.enable_attention_dp,
    }
