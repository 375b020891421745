"""What the ideal makes of specs and profiles."""

from __future__ import annotations

import pytest

from planner.base.enums import (
    Precision,
)
from planner.estimators.ideal_hardware import ideal_framework, ideal_hardware
from planner.estimators.machine import CommunicationGroup, Machine
from planner.specs.catalogue import default_cluster, load_gpu
from planner.specs.software_profile import load_framework

GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "b200-sxm-180gb", "mi300x-192gb")


def machine(name: str) -> Machine:
    gpu = load_gpu(name)
    ideal, cluster = ideal_hardware(gpu, default_cluster(gpu))
    return Machine(gpu=ideal, cluster=cluster, ideal=True)


@pytest.mark.parametrize("name", GPUS)
def test_products_and_copies_take_their_work_over_the_peak(name: str) -> None:
    ideal = machine(name)
    time = ideal.gemm_time(8192, 8192, 8192, ideal.sixteen_bit)
    assert time == pytest.approx(2 * 8192**3 / ideal.gpu.peak_flops[Precision.BF16])
    assert ideal.memory_time(3e9) == pytest.approx(3e9 / ideal.gpu.memory_bandwidth)


@pytest.mark.parametrize("name", GPUS)
def test_messages_take_their_bytes_over_the_link(name: str) -> None:
    ideal = machine(name)
    link = ideal.cluster.scale_up.bandwidth
    everyone = ideal.collective("all_gather", 8e6, CommunicationGroup(size=8, stride=1))
    assert everyone == pytest.approx(7e6 / link)
    assert ideal.send_time(1e6, 1) == pytest.approx(1e6 / link)
    assert ideal.send_time(0.0, 64) == 0


def test_what_was_given_stays_as_it_was() -> None:
    gpu, framework = load_gpu("h100-sxm-80gb"), load_framework("megatron-lm").spec
    before = repr((gpu, framework))
    ideal_hardware(gpu, default_cluster(gpu))
    ideal_framework(framework)
    assert repr((gpu, framework)) == before
