"""One table of kernels per GPU: training and serving take the same time for the same kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from rows import each
from serving_cases import serving_setting

from planner.base.enums import (
    ComputePrecision,
    Fp8Recipe,
    Precision,
    Quantization,
)
from planner.estimators.ideal_hardware import ideal_engine, ideal_hardware
from planner.estimators.inference.kernels import Kernels
from planner.estimators.machine import Machine
from planner.specs.catalogue import load_gpu
from planner.specs.quantization import training_format
from planner.specs.software_profile import load_framework

NEUTRAL = {
    "sustained_clock": 1.0,
    "compute_fraction": 1.0,
    "weight_bandwidth_fraction": 1.0,
    "quantized_bandwidth_fraction": 1.0,
    "kernel_latency_fraction": 1.0,
    "fused_quantization": False,
    "elementwise_passes": 1.0,
    "vector_bandwidth": 0.0,
    "triton_experts": False,
}
NO_FACTORS: dict[str, Any] = {
    f"{name}_by_architecture": {} for name in ("kernel_latency", "dense_latency", "expert_latency")
} | {"linear_compute_by_architecture": {}}
PRODUCTS = [(8192, 8192, 8192), (64, 4096, 4096), (4096, 1024, 28672), (1, 8192, 1024)]


def neutral(gpu: str, **execution: Any) -> tuple[Machine, Kernels]:
    """A machine, and its kernels as an engine that shows all of them runs them."""
    setting = serving_setting("llama-7b", gpu)
    values = dataclasses.replace(setting.engine.execution, **(NEUTRAL | execution))
    engine = dataclasses.replace(setting.engine, execution=values, **NO_FACTORS)
    return setting.machine, Kernels(machine=setting.machine, engine=engine)


def codes(training: ComputePrecision, serving: Quantization) -> Any:
    return np.asarray(training, dtype=np.int8), np.asarray(serving, dtype=np.int8)


@each("sizes", PRODUCTS)
@each(
    ("gpu", "training", "serving"),
    [
        ("a100-sxm-80gb", ComputePrecision.BF16, Quantization.W16A16),
        ("a100-sxm-40gb", ComputePrecision.BF16, Quantization.W16A16),
        ("h100-sxm-80gb", ComputePrecision.BF16, Quantization.W16A16),
        ("h100-sxm-80gb", ComputePrecision.FP8, Quantization.FP8),
        ("b200-sxm-180gb", ComputePrecision.FP8, Quantization.FP8),
        ("b200-sxm-180gb", ComputePrecision.FP4, Quantization.NVFP4),
        ("mi355x", ComputePrecision.FP4, Quantization.NVFP4),
    ],
)
def test_a_product_takes_as_long_in_training_as_in_serving(
    gpu: str, training: ComputePrecision, serving: Quantization, sizes: tuple[int, int, int]
) -> None:
    machine, kernels = neutral(gpu)
    precision, quantization = codes(training, serving)
    trained = machine.gemm_time(*sizes, precision)
    if training == ComputePrecision.FP8:  # its casts are an operator of their own
        trained = trained + machine.memory_time(3.0 * sizes[0] * sizes[2])
    served = kernels.linear(*sizes, kernels.matrices(quantization))
    assert served == pytest.approx(trained, rel=1e-12)


def test_products_together_take_as_long_as_each_alone() -> None:
    machine, precision = neutral("a100-sxm-80gb")[0], np.asarray(ComputePrecision.BF16)
    products = [(*sizes, width) for sizes in PRODUCTS for width in (2.0, 8.0)]
    alone = [machine.gemm_time(*sizes, precision, width) for *sizes, width in products]
    assert machine.gemm_times(products, precision) == alone


@pytest.mark.parametrize("gpu", ["a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb"])
def test_experts_take_as_long_in_training_as_in_serving(gpu: str) -> None:
    """But for the sorting of tokens, which is an operator of its own in training."""
    machine, kernels = neutral(gpu)
    precision, quantization = codes(ComputePrecision.BF16, Quantization.W16A16)
    tokens, local, width = 1e9, 8, 1024
    trained = machine.grouped_gemm_time(tokens, local, 4096, width, 3, precision)
    served = kernels.experts(
        tokens=tokens,
        pairs=tokens,
        num_experts=local,
        num_experts_per_tok=1,
        local_experts=local,
        hidden_size=4096,
        width=width,
        matrices=3,
        quantization=quantization,
        dispersion=0.0,
    )
    e = machine.gpu.efficiency.grouped_gemm["bf16"]
    sorted_bytes = 2.0 * e.permute_passes * 4096 * tokens
    sorting = sorted_bytes / (machine.gpu.memory_bandwidth * e.bandwidth_fraction)
    assert served == pytest.approx(trained + sorting, rel=1e-9)


A100_16_BIT = ("a100-sxm-80gb", Quantization.W16A16, 128, 4096, 1536)
H200_BLOCKS = ("h200-sxm-141gb", Quantization.FP8_BLOCK, 256, 7168, 2048)


@each(
    ("kernel", "tokens", "split", "ms"),
    [
        (A100_16_BIT, 1, 8, 0.0675),
        (A100_16_BIT, 512, 4, 1.134),
        (A100_16_BIT, 8192, 1, 24.61),
        (A100_16_BIT, 8192, 8, 3.443),
        (H200_BLOCKS, 64, 1, 2.816),
        (H200_BLOCKS, 64, 8, 0.473),
        (H200_BLOCKS, 8192, 8, 2.218),
    ],
)
def test_experts_of_triton_take_as_long_as_published(
    kernel: tuple[str, Quantization, int, int, int], tokens: int, split: int, ms: float
) -> None:
    """In SGLang 0.5.10, 8 experts for each token: the tables of aiconfigurator-core 0.12.0."""
    gpu, quantization, num_experts, hidden_size, width = kernel
    setting = serving_setting("llama-7b", gpu, engine="sglang")
    took = Kernels(machine=setting.machine, engine=setting.engine).experts(
        tokens=tokens,
        pairs=8.0 * tokens,
        num_experts=num_experts,
        num_experts_per_tok=8,
        local_experts=num_experts,
        hidden_size=hidden_size,
        width=width / split,
        matrices=3,
        quantization=np.asarray(quantization, dtype=np.int8),
        dispersion=0.0,
    )
    assert float(took) == pytest.approx(ms / 1000, rel=0.25)


def test_a_burst_is_faster_than_hours_of_training_by_the_clock() -> None:
    machine, kernels = neutral("h100-sxm-80gb", sustained_clock=0.0)
    precision, quantization = codes(ComputePrecision.BF16, Quantization.W16A16)
    latency = machine.gpu.efficiency.gemm["bf16"].latency
    burst = kernels.linear(16384, 16384, 16384, kernels.matrices(quantization)) - latency
    hours = machine.gemm_time(16384, 16384, 16384, precision) - latency
    clock = machine.gpu.efficiency.sustained_compute_fraction
    assert burst / hours == pytest.approx(clock, rel=1e-3)


def test_latency_of_one_kind_of_kernel_leaves_the_other_kinds() -> None:
    setting = serving_setting("llama-7b", "h100-sxm-80gb", engine="tensorrt-llm")
    engine = dataclasses.replace(
        setting.engine, **(NO_FACTORS | {"dense_latency_by_architecture": {"hopper": 3.0}})
    )
    plain = dataclasses.replace(setting.engine, **NO_FACTORS)
    shown = [Kernels(machine=setting.machine, engine=e) for e in (plain, engine)]
    code = np.asarray(Quantization.W16A16, dtype=np.int8)
    dense = [float(k.linear(1, 1, 1, k.matrices(code))) for k in shown]
    assert dense[1] == pytest.approx(3 * dense[0], rel=1e-3)
    assert shown[0].elementwise(1e6) == shown[1].elementwise(1e6)


def test_the_table_of_one_memory_is_read_for_another() -> None:
    """Products of few rows of an A100 with the slower memory take longer by its bandwidth."""
    precision = np.asarray(ComputePrecision.BF16, dtype=np.int8)
    seconds = {
        gpu: float(neutral(gpu)[0].gemm_time(1, 16384, 16384, precision))
        for gpu in ("a100-sxm-80gb", "a100-sxm-40gb")
    }
    ratio = seconds["a100-sxm-40gb"] / seconds["a100-sxm-80gb"]
    assert ratio == pytest.approx(2039 / 1555, rel=0.02)


def format_of(recipe: Fp8Recipe) -> Any:
    fp8 = np.asarray(ComputePrecision.FP8, dtype=np.int8)
    return training_format(fp8, np.asarray(recipe, dtype=np.int8))


def seconds(gpu: str, recipe: Fp8Recipe) -> tuple[float, float, float]:
    """A product, a cast and grouped products of fp8 under a recipe."""
    machine, form = neutral(gpu)[0], format_of(recipe)
    return (
        float(machine.gemm_time(8192, 8192, 8192, form)),
        float(machine.cast_time(8192**2, form)),
        float(machine.grouped_gemm_time(65536, 8, 4096, 1536, 3, form)),
    )


@pytest.mark.parametrize("gpu", ["h100-sxm-80gb", "b200-sxm-180gb"])
def test_factors_per_row_are_no_faster_than_16_bit(gpu: str) -> None:
    machine = neutral(gpu)[0]
    bf16 = np.asarray(ComputePrecision.BF16, dtype=np.int8)
    product, cast, grouped = seconds(gpu, Fp8Recipe.ROWWISE)
    assert product == machine.gemm_time(8192, 8192, 8192, bf16)
    assert grouped == machine.grouped_gemm_time(65536, 8, 4096, 1536, 3, bf16)
    assert cast == 0
    assert seconds(gpu, Fp8Recipe.TENSORWISE)[0] < 0.7 * product


@pytest.mark.parametrize(
    ("groups", "rows", "columns", "depth", "published"),
    [
        *((4, 8192, 4096, 7168, 1297e12), (4, 8192, 7168, 2048, 1099e12)),
        *((8, 4096, 4096, 7168, 1288e12), (8, 4096, 7168, 2048, 1093e12)),
    ],
)
def test_experts_with_factors_of_blocks_train_at_the_rates_of_deepgemm(
    groups, rows, columns, depth, published
) -> None:
    """deepseek-ai/DeepGEMM@a6d97a1 README: contiguous grouped GEMMs on H800, in a burst."""
    machine = neutral("h800-sxm-80gb")[0]
    took = machine.grouped_gemm_time(
        float(groups * rows),
        float(groups),
        depth,
        float(columns),
        1,
        format_of(Fp8Recipe.BLOCKWISE),
    )
    rate = 2 * groups * rows * columns * depth / float(took)
    held = machine.gpu.efficiency.sustained_compute_fraction
    assert rate / held == pytest.approx(published, rel=0.22)


def test_casts_of_blocks_are_part_of_dense_kernels_and_none_of_those_of_experts() -> None:
    """They read 2 bytes and write 1 and an fp32 factor per 128 twice, beside experts."""
    machine = neutral("h100-sxm-80gb")[0]
    form, numbers = format_of(Fp8Recipe.BLOCKWISE), 8192.0**2
    assert machine.cast_time(numbers, form) == 0
    moved = (2 + 2 * 132 / 128) * numbers
    assert float(machine.expert_cast_time(numbers, form)) == float(machine.memory_time(moved))


def test_factors_of_groups_are_written_by_rows_and_by_columns() -> None:
    """Each cast reads 2 bytes and writes 1, or 1 and a 32nd twice."""
    machine = neutral("b200-sxm-180gb")[0]
    latency = machine.gpu.efficiency.memory_bound.latency
    one, two = (
        seconds("b200-sxm-180gb", recipe)[1] - latency
        for recipe in (Fp8Recipe.DELAYED, Fp8Recipe.MXFP8)
    )
    assert two / one == pytest.approx((2 + 2 * 33 / 32) / 3)
    assert seconds("b200-sxm-180gb", Fp8Recipe.BLOCKWISE)[1] == 0


@pytest.mark.parametrize(
    ("framework", "gpu", "recipe"),
    [
        ("nemo", "h100-sxm-80gb", Fp8Recipe.DELAYED),
        ("nemo", "gb200-nvl72", Fp8Recipe.MXFP8),
        ("torchtitan", "h100-sxm-80gb", Fp8Recipe.TENSORWISE),
        ("fsdp", "b200-sxm-180gb", Fp8Recipe.DELAYED),
    ],
)
def test_a_framework_has_a_recipe_for_each_gpu(framework: str, gpu: str, recipe: Fp8Recipe) -> None:
    profile = load_framework(framework).spec
    assert profile.recipe_on(scales_groups=load_gpu(gpu).scales_groups) is recipe


@pytest.mark.parametrize(
    ("tokens", "rows"),
    [
        (64, 64 * (1 - (1 - 1 / 16) ** 64)),  # no larger than the step; some experts have none
        (128, 128),  # 8 rows
        (512, 128),  # 32 rows
        (4096, 256 + 64),  # two tiles are full, the last is half empty on average
    ],
)
def test_an_expert_computes_the_tile_that_fits_all_tokens_of_the_step(
    tokens: int, rows: float
) -> None:
    """Of 128 experts, 8 a token, at the peak; mmq.cu of llama.cpp, see its pull request 24546."""
    setting = serving_setting("mixtral-8x7b", "h100-sxm-80gb", "llama-cpp")
    gpu, cluster = ideal_hardware(setting.machine.gpu, setting.machine.cluster)
    gpu = dataclasses.replace(gpu, memory_bandwidth=9e17)
    machine = dataclasses.replace(setting.machine, gpu=gpu, cluster=cluster)
    engine = ideal_engine(setting.engine)
    execution = dataclasses.replace(engine.execution, expert_tile_rows=128)
    seconds = Kernels(
        machine=machine, engine=dataclasses.replace(engine, execution=execution)
    ).experts(
        tokens=tokens,
        pairs=8 * tokens,
        num_experts=128,
        num_experts_per_tok=8,
        local_experts=128,
        hidden_size=4096,
        width=8192.0,
        matrices=3,
        quantization=np.asarray(Quantization.W16A16),
        dispersion=0.0,
    )
    per_row = 3 * 2 * 4096 * 8192 / gpu.peak_flops[Precision.BF16]
    assert float(seconds) / (128 * per_row) == pytest.approx(rows, rel=0.01)
