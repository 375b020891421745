"""A row of inference as a source gives it, and its changes."""

from __future__ import annotations

from planner.validation.run_tables import Run

ROW = {
    "source": "a source",
    "framework": "vllm",
    "framework_version": "0.11.0",
    "mode": "static_batch",
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "num_gpus": "1",
    "tensor_parallel": "1",
    "weight_precision": "bf16",
    "concurrency": "8",
    "input_tokens": "512",
    "output_tokens": "128",
}


def run_of(**changes: str) -> Run:
    """A run as the reader gives it, changed."""
    return Run(line=2, cells={**ROW, **changes})
