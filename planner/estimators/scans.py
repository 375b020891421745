"""Work of a scan on one rank, in training and in inference."""

from __future__ import annotations

from planner.base.arrays import FloatArray
from planner.formulas.attention import chunked_scan_bytes, chunked_scan_flops
from planner.layers.operators import Scan


def scan_work(
    scan: Scan, tokens: FloatArray, tensor_parallel: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """FLOPs and bytes of the chunked scan over so many tokens on one tensor-parallel rank."""
    t = tensor_parallel
    flops = chunked_scan_flops(
        tokens=tokens,
        key_width=scan.keys / t,
        value_width=scan.values / t,
        expanded_key_width=scan.expanded_keys / t,
        state=scan.state / t,
        delta_rule=scan.delta_rule,
    )
    moved = chunked_scan_bytes(
        tokens=tokens,
        mixed_width=scan.mixed / t,
        value_width=scan.values / t,
        state=scan.state / t,
        delta_rule=scan.delta_rule,
    )
    return flops, moved
