"""Rows of inference that can be predicted, and tables of their changes."""

from __future__ import annotations

from collections.abc import Mapping

from planner.validation.run_tables import Run, Runs

ROW = {
    "source": "a source",
    "year": "2025",
    "framework": "vllm",
    "framework_version": "0.11.0",
    "mode": "static_batch",
    "model": "llama-3-8b",
    "gpu": "h100-sxm-80gb",
    "num_gpus": "1",
    "tensor_parallel": "1",
    "pipeline_parallel": "1",
    "weight_precision": "bf16",
    "concurrency": "8",
    "input_tokens": "512",
    "output_tokens": "128",
}
DISAGGREGATED = {
    "mode": "disagg",
    "model": "deepseek-v3",
    "gpu": "b200-sxm-180gb",
    "framework": "sglang",
    "weight_precision": "fp8",
    "num_gpus": "",
    "concurrency": "64",
    "input_tokens": "4096",
    "prefill_tensor_parallel": "8",
    "prefill_num_workers": "2",
    "decode_tensor_parallel": "8",
    "decode_num_workers": "1",
}


def row(**changes: str) -> dict[str, str]:
    """A run that can be predicted, changed."""
    return {**ROW, **changes}


def run_of(**changes: str) -> Run:
    """The same as the reader gives it."""
    return Run(line=2, cells=row(**changes))


def runs_of(*rows: Mapping[str, str]) -> Runs:
    """A table of rows under all of their columns."""
    columns = tuple(dict.fromkeys(name for cells in rows for name in cells))
    lines = (Run(line=number, cells=cells) for number, cells in enumerate(rows, start=2))
    return Runs(columns=columns, rows=tuple(lines))
