"""What the notes of a run say in words that no column of its table has."""

from __future__ import annotations

import re
from dataclasses import replace

from planner.validation.runs import Run

_STATED = {
    "sequence_length": r"(?:max seq length|max length|longest example) (\d{1,6})\b",
    "tensor_parallel": r"\btp=(\d{1,4})\b",
    "pipeline_parallel": r"\bpp=(\d{1,4})\b",
    "context_parallel": r"\bcp=(\d{1,4})\b",
    "virtual_pipeline": r"\bvp=(\d{1,4})\b",
    "global_batch_size": r"\bgbs=(\d{1,6})\b",
    "precision": r"^(bf16|fp8|mxfp8|nvfp4)\b",
    "recompute_num_layers": r"(?:full-layer recompute of|num-ckpt-layers=)\s?([1-9]\d{0,3})\b",
    "token_dispatcher": r"\b(deepep|hybrid-?ep|nccl (?:a2a|all-to-all))\b",
    "gpus_per_sequence": r"tp\*pp\*cp/micro_batch = ([1-9]\d{0,3})\b",
}
# Data-parallel ranks over which one copy of the states is sharded, or the ranks of a node.
_SHARDS = re.compile(r"zero1=(\d{1,4}) \(|fsdp=(\d{1,4}) \(hsdp\)|hsdp \(zero-3 inside a node")
_GPUS_PER_NODE = 8
_FP8_ATTENTION = re.compile(r"\bfp8 attention flag (?:1|true)\b")
# Megatron-Core's modules, by name or in words; moe_act is an operator of the block.
_EXPERTS_REPEATED = re.compile(r"\brecompute (?:modules )?[^;,]*\bmoe\b")
# A command quoted beside a table whose batch its source leaves open tells nothing of its rows.
_ACCUMULATED = re.compile(r"(?<!command uses )grad[- ]accum (\d{1,4})\b")


def with_notes(run: Run) -> Run:
    """The run, its empty cells filled with what its notes state.

    The longest sequence stands for the length: it decides the peak of the memory.
    """
    notes = run.word("notes")
    if not notes:
        return run
    found = {
        column: match.group(1)
        for column, pattern in _STATED.items()
        if not run.text(column) and (match := re.search(pattern, notes))
    }
    if not run.text("precision") and "ships both fp8 and nvfp4" in notes:
        found["precision"] = "fp8/nvfp4"
    if "recompute_num_layers" in found:
        found["recompute"] = "full"
    if run.word("recompute") == "selective" and _EXPERTS_REPEATED.search(notes):
        found["recompute"] = "feed_forward"
    if not run.text("fp8_attention") and _FP8_ATTENTION.search(notes):
        found["fp8_attention"] = "1"
    return replace(run, cells={**run.cells, **_batch(run, notes), **_replicas(run, notes), **found})


def _replicas(run: Run, notes: str) -> dict[str, str]:
    """How many copies of the states there are, where the notes tell the ranks that share one."""
    told, num_gpus = _SHARDS.search(notes), run.count("num_gpus")
    if told is None or not num_gpus or run.text("data_parallel_replicas"):
        return {}
    split = run.count("tensor_parallel") or 1
    ranks = num_gpus // (split * (run.count("pipeline_parallel") or 1))
    in_node = (run.count("gpus_per_node") or _GPUS_PER_NODE) // split
    shards = int(told[1] or told[2] or in_node)
    return {"data_parallel_replicas": str(max(ranks // max(shards, 1), 1))}


def _batch(run: Run, notes: str) -> dict[str, str]:
    """The global batch of a run that accumulates gradients on GPUs which split nothing."""
    steps = _ACCUMULATED.search(notes)
    micro, num_gpus = run.count("micro_batch_size"), run.count("num_gpus")
    if not (steps and micro and num_gpus) or run.text("global_batch_size"):
        return {}
    return {"global_batch_size": str(int(steps.group(1)) * micro * num_gpus)}
