"""A layer over several nodes rests on the runs that there are of such."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import planner
from planner.specs.catalogue import load_gpu
from planner.workloads.prediction_confidence import _MEASURED_OVER_NODES

RUNS = Path(planner.__file__).parent / "validation" / "measurements"


@pytest.mark.parametrize("workload", ["serve", "inference"])
@pytest.mark.parametrize(("tensor_parallel", "basis"), [(8, "measured"), (16, "transferred")])
def test_a_basis_is_measured_only_where_such_runs_were(workload, tensor_parallel, basis) -> None:
    found = planner.estimate(
        workload=workload, model="llama-3.1-405b", gpu="h100", num_gpus=16, engine="tensorrt-llm",
        precision="fp8", settings={"tensor_parallel": tensor_parallel, "concurrency": 32},
    )  # fmt: skip
    assert found.source.confidence(16).basis == basis


def test_the_profiles_with_such_runs_are_those_of_the_calibration_runs() -> None:
    fitted: set[str] = set()
    for name in ("serving", "inference"):
        with (RUNS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            for run in csv.DictReader(file):
                wide = float(run["tensor_parallel"] or 1)
                # Cards of a node are no fabric, and a node has eight of them.
                if run["calibration"] == "1" and wide > 8:
                    domain = load_gpu(run["gpu"]).scale_up.domain_size
                    fitted |= {run["framework"]} if wide > max(domain, 8) else set()
    assert fitted == set(_MEASURED_OVER_NODES)
