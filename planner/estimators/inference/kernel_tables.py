"""The measured kernels of every quantization on a GPU, one column per number."""

from __future__ import annotations

from typing import Any

import numpy as np

from planner.arrays import FloatArray
from planner.enums import Precision, Quantization
from planner.estimators.machine import TILE_AREA, Machine
from planner.specs.engine import EngineExecution
from planner.specs.gpu import GpuSpec, GroupedGemmEfficiency, TiledGemmEfficiency
from planner.specs.quantization import FORMATS, QuantizationFormat, compute_precision

NO_TILES = {"row_offset": 0.0, "column_offset": 0.0, "depth_offset": 0.0, "area_floor": 0.0}
# What stands for experts that were not measured on a GPU, if not those of 16 bit.
_NEAREST_EXPERTS = {"fp8_tensor": "fp8"}
_ROOFLINE = ("compute_fraction", "bandwidth_fraction", "latency", "sharpness")


def matrix_table(machine: Machine, execution: EngineExecution) -> dict[str, FloatArray]:
    """Efficiencies, peak [FLOP/s] and bytes per element of dense products, by quantization."""
    rows = [_matrix_row(machine.gpu, execution, code) for code in Quantization]
    table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    table["area_floor"] = table["area_floor"] * machine.num_multiprocessors * TILE_AREA
    return table


def expert_table(gpu: GpuSpec) -> dict[str, FloatArray]:
    """The same of the products of experts."""
    names = GroupedGemmEfficiency.__dataclass_fields__
    rows = []
    for code in Quantization:
        form = FORMATS[code]
        table = gpu.efficiency.grouped_gemm
        nearest = table.get(_NEAREST_EXPERTS.get(form.experts, "bf16"), table["bf16"])
        measured: Any = table.get(form.experts, nearest)
        row = {name: getattr(measured, name) for name in names}
        rows.append({**row, "peak": _peak(gpu, code), "weight": form.weight})
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def _matrix_row(gpu: GpuSpec, execution: EngineExecution, code: Quantization) -> dict[str, float]:
    form = FORMATS[code]
    kernel, is_bare = _kernel_row(gpu, form)
    activation = form.activation if execution.reads_casts else min(form.activation, 2.0)
    fused = execution.fused_quantization
    casts = form.casts and is_bare and not fused
    row = {name: kernel[name] for name in TiledGemmEfficiency.__dataclass_fields__}
    if fused and not is_bare and "fp8" in gpu.efficiency.gemm:
        row["latency"] = min(row["latency"], gpu.efficiency.gemm["fp8"].latency)
    return {
        **row,
        "peak": _matrix_peak(gpu, execution, code),
        "weight": form.weight,
        "activation": activation,
        "casts": float(casts),
    }


def _matrix_peak(gpu: GpuSpec, execution: EngineExecution, code: Quantization) -> float:
    sixteen = compute_precision(code, gpu.peak_flops) in (Precision.FP16, Precision.BF16)
    if sixteen and execution.half_accumulation and gpu.fp16_accumulate_flops:
        return gpu.fp16_accumulate_flops
    return _peak(gpu, code)


def _peak(gpu: GpuSpec, code: Quantization) -> float:
    precision = compute_precision(code, gpu.peak_flops)
    return gpu.peak_flops[precision] if precision is not None else float("nan")


def _kernel_row(gpu: GpuSpec, form: QuantizationFormat) -> tuple[dict[str, float], bool]:
    """The measured kernel of a format, and whether its casts are not part of it."""
    efficiency = gpu.efficiency
    if form.kernel in efficiency.gemm:
        return {**NO_TILES, **vars(efficiency.gemm[form.kernel])}, True
    if form.kernel in efficiency.quantized_gemm:
        return dict(vars(efficiency.quantized_gemm[form.kernel])), False
    if form.kernel in efficiency.wave_gemm:
        wave = efficiency.wave_gemm[form.kernel]
        half_a_wave = wave.wave_rounding / 2
        row = {**NO_TILES, **{k: v for k, v in vars(wave).items() if k in _ROOFLINE}}
        return {**row, "depth_offset": wave.depth_offset, "area_floor": half_a_wave}, True
    return {**NO_TILES, **vars(efficiency.gemm["bf16"])}, True
