"""H20 is a cut-down Hopper whose power is ample: its kernels reach more of its low peak."""

import pytest

from planner.specs.catalogue import Catalogue

PEAK = 148e12  # FLOP/s in 16 bit


@pytest.mark.parametrize(("size", "published"), [(4096, 133.41), (8192, 138.60), (10240, 142.25)])
def test_products_reach_what_was_measured(size: int, published: float) -> None:
    """zzc0721/torch-performance-test-data issue 77, TFLOP/s of square products in bf16."""
    gpu = Catalogue().load_gpu("h20").spec
    e = gpu.efficiency.gemm["bf16"]
    computing = 2 * size**3 / (PEAK * e.compute_fraction)
    reading = 3 * 2 * size**2 / (gpu.memory_bandwidth * e.bandwidth_fraction)
    q = e.sharpness
    time = (computing**q + reading**q) ** (1 / q) + e.latency
    assert 2 * size**3 / time == pytest.approx(published * 1e12, rel=0.04)


@pytest.mark.parametrize(("kernel", "published"), [("fa2", 83.7), ("fa3", 126.2), ("cudnn", 129.1)])
def test_attention_reaches_what_was_measured(kernel: str, published: float) -> None:
    """Dao-AILab/flash-attention issue 1310, TFLOP/s forward at 2,048 tokens and heads of 128."""
    e = Catalogue().load_gpu("h20").spec.efficiency
    share = e.attention["head_dim_128"].compute_fraction * e.attention_kernels[kernel].forward
    assert share * PEAK == pytest.approx(published * 1e12, rel=0.02)


def test_its_clock_does_not_fall_in_hours_of_training() -> None:
    efficiency = {name: Catalogue().load_gpu(name).spec.efficiency for name in ("h20", "h100-sxm")}
    assert efficiency["h20"].sustained_compute_fraction == 1
    assert efficiency["h100-sxm"].sustained_compute_fraction < 0.9
