"""A run that can be predicted, and tables of its changes."""

from __future__ import annotations

from collections.abc import Mapping

from planner.validation.run_tables import Run, Runs
from planner.validation.spec_library import Library
from planner.validation.training.cases import TrainingCase, training_case

MODEL = {
    "model": "tiny",
    "num_hidden_layers": "8",
    "hidden_size": "1024",
    "intermediate_size": "4096",
    "num_attention_heads": "16",
    "vocab_size": "51200",
    "gated_mlp": "0",
}
LAYOUT = {
    "framework": "Megatron-LM",
    "gpu": "a100-sxm-80gb",
    "num_gpus": "8",
    "year": "2024",
    "precision": "bf16",
    "sequence_length": "2048",
    "tensor_parallel": "2",
    "pipeline_parallel": "1",
    "micro_batch_size": "2",
    "global_batch_size": "64",
    "recompute": "none",
    "sequence_parallel": "1",
    "zero_stage": "1",
}
ROW = {"source": "a source", "workload": "pretrain", **MODEL, **LAYOUT}


def row(**changes: str) -> dict[str, str]:
    """A run that can be predicted, changed."""
    return {**ROW, **changes}


def run_of(**changes: str) -> Run:
    """The same as the reader gives it."""
    return Run(line=2, cells=row(**changes))


def case(library: Library, **changes: str) -> TrainingCase:
    """What is predicted of it."""
    return training_case(run_of(**changes), library)


def runs_of(*rows: Mapping[str, str]) -> Runs:
    """A table of rows that have the same columns."""
    lines = (Run(line=number, cells=cells) for number, cells in enumerate(rows, start=2))
    return Runs(columns=tuple(rows[0]), rows=tuple(lines))
