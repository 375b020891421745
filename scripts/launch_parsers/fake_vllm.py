"""vLLM as on an 80 GB H100, without its compiled kernels: imported before anything of vLLM.

Whether a model's class can be had is asked, as vLLM does, in a process of its own, which sees no
GPU; what it said is kept in the environment's folder.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import fake_gpu
import stubs
import torch

fake_gpu.install({})
stubs.install(
    "vllm._C",
    "vllm._C_stable_libtorch",
    "vllm._moe_C",
    "vllm._moe_C_stable_libtorch",
    "vllm.vllm_flash_attn._vllm_fa2_C",
    "vllm.vllm_flash_attn._vllm_fa3_C",
)

# What compiled kernels say of the GPU when modules of quantization are imported.
for question in (
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_group_gemm_supported",
    "cutlass_scaled_mm_supports_fp4",
):
    setattr(torch.ops._C, question, lambda *_: True)

import vllm.platforms  # noqa: E402
from vllm.platforms.cuda import NonNvmlCudaPlatform  # noqa: E402


class FakePlatform(NonNvmlCudaPlatform):
    """CUDA whose GPUs are those that torch was made to tell."""

    @classmethod
    def device_count(cls) -> int:
        return torch.cuda.device_count()


vllm.platforms._current_platform = FakePlatform()

from vllm import triton_utils  # noqa: E402


class KernelConfig:
    """triton.Config, whose values some modules sort out when they are imported."""

    def __init__(self, kwargs: dict[str, int], num_warps: int = 4, num_stages: int = 3, **_: Any):
        self.kwargs = kwargs
        self.num_warps = num_warps
        self.num_stages = num_stages


triton_utils.triton.Config = KernelConfig

from vllm.model_executor.models import registry  # noqa: E402

KEPT = Path(sys.prefix) / "inspected_models"


def load(model: Any, module_hash: str) -> Any:
    path = KEPT / f"{model._get_cache_filename()}.{module_hash}.pickle"
    return pickle.loads(path.read_bytes()) if path.is_file() else None


def save(model: Any, info: Any, module_hash: str) -> None:
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{model._get_cache_filename()}.{module_hash}.pickle"
    path.write_bytes(pickle.dumps(info))


registry._LazyRegisteredModel._load_modelinfo_from_cache = load
registry._LazyRegisteredModel._save_modelinfo_to_cache = save
