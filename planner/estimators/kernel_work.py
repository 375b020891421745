"""What kernels and copies do, as `planner.estimators.ledger` keeps it."""

from __future__ import annotations

import numpy as np

from planner.base.arrays import FloatArray, Numeric
from planner.base.records import record
from planner.estimators.kernel_rows import Rows
from planner.estimators.ledger import COMPUTE, HOST, LAUNCH, MEMORY, Work
from planner.question.terms import terms_about
from planner.specs.gpu import GpuSpec


@record()
class Done:
    """What a kernel did: the ``flops`` that it needs and those ``paid`` for, and ``moved`` bytes.

    ``sizes`` are rows, columns and depth of a product.
    """

    flops: Numeric
    moved: Numeric
    paid: Numeric
    sizes: tuple[Numeric, ...] = ()


def kernel_work(formula: str, gpu: GpuSpec, e: Rows, time: FloatArray, done: Done) -> Work:
    """A kernel that computes and moves data: a product, experts, attention.

    ``e`` is what it reaches of the peaks, as `planner.estimators.kernel_rows` has it.
    """
    compute = done.paid / (e["peak"] * e["compute_fraction"])
    memory = done.moved / (gpu.memory_bandwidth * e["bandwidth_fraction"])
    sizes = dict(zip(terms_about("product"), done.sizes, strict=False))
    return Work(
        formula=formula,
        time=time,
        at_peak=np.maximum(done.flops / e["peak"], done.moved / gpu.memory_bandwidth),
        terms={COMPUTE: compute, MEMORY: memory, LAUNCH: e["latency"]},
        figures={
            **sizes,
            "flops": done.flops,
            "paid_flops": done.paid,
            "num_bytes": done.moved,
            "peak_flops": e["peak"],
            "compute_fraction": e["compute_fraction"],
            "memory_bandwidth": np.asarray(gpu.memory_bandwidth),
            "bandwidth_fraction": e["bandwidth_fraction"],
            "latency": e["latency"],
            "sharpness": e["sharpness"],
        },
        key=_key(gpu, formula, e),
    )


def moved_work(
    gpu: GpuSpec, num_bytes: Numeric, fraction: Numeric, latency: Numeric, time: FloatArray
) -> Work:
    """Kernels that only move data."""
    return Work(
        formula="memory",
        time=time,
        at_peak=num_bytes / gpu.memory_bandwidth,
        terms={MEMORY: num_bytes / (gpu.memory_bandwidth * fraction), LAUNCH: latency},
        figures={
            "num_bytes": num_bytes,
            "memory_bandwidth": np.asarray(gpu.memory_bandwidth),
            "bandwidth_fraction": fraction,
            "latency": latency,
        },
        key="efficiency.memory_bound",
    )


def cache_work(
    gpu: GpuSpec,
    *,
    moved: Numeric,
    bandwidth: Numeric,
    flops: Numeric,
    rate: Numeric,
    peak: Numeric,
    others: Numeric,
    latency: Numeric,
    time: FloatArray,
    cache: str,
) -> Work:
    """Attention over a cache: the slowest of reading it, of its products, and of its instructions.

    ``others``: seconds of vector instructions, or of blocks that read alone.
    """
    return Work(
        formula="cache",
        time=time,
        at_peak=np.maximum(moved / gpu.memory_bandwidth, flops / peak),
        terms={
            MEMORY: moved / bandwidth,
            COMPUTE: np.maximum(flops / rate, others),
            LAUNCH: latency,
        },
        figures={
            "flops": flops,
            "num_bytes": moved,
            "peak_flops": peak,
            "compute_fraction": rate / peak,
            "memory_bandwidth": np.asarray(gpu.memory_bandwidth),
            "bandwidth_fraction": bandwidth / gpu.memory_bandwidth,
            "latency": latency,
        },
        key=f"efficiency.attention_decode.{cache}",
    )


def peak_work(flops: Numeric, peak: Numeric, reached: Numeric, time: FloatArray) -> Work:
    """FLOPs at a share of a peak, whatever they move."""
    return Work(
        formula="rate",
        time=time,
        at_peak=flops / peak,
        terms={COMPUTE: time},
        figures={"flops": flops, "peak_flops": peak, "compute_fraction": np.asarray(reached)},
        key="efficiency.vector_product_fraction",
    )


def copy_work(num_bytes: Numeric, rate: Numeric, peak: Numeric, time: FloatArray) -> Work:
    """A copy between a GPU and its host, or the host's own reading and writing."""
    return Work(
        formula="copy",
        time=time,
        at_peak=num_bytes / np.asarray(peak),
        terms={HOST: time},
        figures={"num_bytes": num_bytes, "bandwidth": np.asarray(rate)},
        key="host.bandwidth",
    )


def _key(gpu: GpuSpec, formula: str, e: Rows) -> str:
    """Where the spec of a GPU says what a kernel reaches."""
    table = {"experts": "grouped_gemm", "attention": "attention"}.get(formula, "")
    places = (table,) if table else ("gemm", "quantized_gemm", "wave_gemm")
    sharpness = float(np.ravel(e["sharpness"])[0])
    for place in places:
        for name, reached in getattr(gpu.efficiency, place).items():
            if reached.sharpness == sharpness:
                return f"efficiency.{place}.{name}"
    return f"efficiency.{places[0]}"
