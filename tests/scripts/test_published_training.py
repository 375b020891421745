"""What the name of the source of a published training run says in words of columns."""

import pytest
from published.training import training_cells

from planner.validation.run_tables import Run
from planner.validation.spec_library import Library


@pytest.fixture(scope="module")
def cells():
    library = Library()

    def of(source, **changes):
        row = {"source": source, "gpu": "h100-sxm-80gb", "year": "2025", "workload": "pretrain"}
        return training_cells(Run(line=2, cells={**row, **changes}), library)

    return of


@pytest.mark.parametrize(
    ("source", "version"),
    [
        ("Megatron-Bridge performance summary 26.04", "26.04"),
        ("MLPerf Training v5.1 results", "MLPerf Training v5.1"),
        ("llm-foundry benchmarking README", None),
    ],
)
def test_a_source_names_a_release(cells, source, version):
    assert cells(source).get("framework_version") == version
    assert "framework_version" not in cells(source, framework_version="25.01")


@pytest.mark.parametrize(
    ("changes", "precision"),
    [
        ({}, "fp8"),
        ({"precision": "bf16"}, None),
        ({"year": "2023"}, None),
        ({"gpu": "a100-sxm-80gb"}, None),
        ({"source": "a table"}, None),
    ],
)
def test_mlperf_computes_in_8_bits(cells, changes, precision):
    found = cells(**{"source": "MLPerf Training v5.0 results", **changes})
    assert found.get("likely_precision") == precision


@pytest.mark.parametrize(
    ("source", "workload", "context_parallel", "expected"),
    [
        ("MLPerf Training v5.1 results", "lora", "1", True),
        ("MLPerf Training v5.1 results", "lora", "2", False),
        ("MLPerf Training v5.0 results", "lora", "", False),
        ("MLPerf Training v4.1 results", "lora", "2", True),
        ("MLPerf Training v4.1 results", "pretrain", "1", False),
        ("NeMo 24.07 performance summary", "lora", "1", False),
    ],
)
def test_activation_inputs_in_8_bits_are_a_setting_of_mlperf(
    cells, source, workload, context_parallel, expected
):
    found = cells(source, workload=workload, context_parallel=context_parallel)
    assert ("fp8_activation_inputs" in found) == expected
