"""NCCL's all-reduce beside tables that no parameter was fitted to."""

from __future__ import annotations

import numpy as np
import pytest

from planner.estimators.machine import CommunicationGroup, Machine
from planner.specs.catalogue import default_cluster, load_gpu

MIB = 2.0**20
# Microseconds, out of place, of MiB on so many of a node of eight A100s:
# VIA-Research/vTrain@f8dda84, trace/a100/AR_GPU*_1M_1024M_LUT (nccl-tests).
MEASURED = {
    2: {16: 131.9, 32: 230.0, 64: 404.7, 128: 763.6, 256: 1455.8},
    4: {16: 179.6, 32: 284.2, 64: 543.8, 128: 998.6, 256: 1929.0},
    8: {16: 232.4, 32: 358.1, 64: 579.9, 128: 1162.0, 256: 2162.3},
}


@pytest.mark.parametrize("ranks", MEASURED)
def test_all_reduce_of_another_a100_node(ranks: int) -> None:
    gpu = load_gpu("a100-sxm-80gb")
    machine = Machine(gpu=gpu, cluster=default_cluster(gpu))
    sizes = np.array(list(MEASURED[ranks])) * MIB
    group = CommunicationGroup(size=ranks, stride=1)
    ratios = machine.collective("all_reduce", sizes, group) * 1e6 / list(MEASURED[ranks].values())
    assert np.all(np.abs(ratios - 1) < 0.16), ratios
    assert float(np.median(ratios)) == pytest.approx(1, abs=0.04)
