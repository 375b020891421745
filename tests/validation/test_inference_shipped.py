"""The published runs of inference: what is predicted of them stays as good as it is."""

import math
from functools import cache

import pytest
from residuals import cells, held_when_left_out, layout_factors, residuals, widening
from shipped_intervals import assert_layouts_shipped, assert_shipped, assert_widening_shipped

from planner.base.enums import (
    LinkKind,
)
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.machine import Machine
from planner.specs.catalogue import default_cluster
from planner.specs.serving_workload import ServingWorkload
from planner.validation.accuracy import (
    FIRST_TOKEN_TIME,
    INFERENCE_KIND,
    REQUESTS,
    SERVING_MEMORY,
    TOKEN_TIME,
    errors,
    memory_verdicts,
)
from planner.validation.run_tables import SHIPPED_INFERENCE
from planner.validation.spec_library import Library
from planner.workloads.prediction_confidence import serving_confidence

SERVING, STATIC = "serving", "inference"

# Recorded medians with a margin: a change that makes one larger has to say so here.
LARGEST_MEDIANS = {
    (SERVING, TOKEN_TIME, "TensorRT-LLM"): 0.12,
    (SERVING, TOKEN_TIME, "SGLang"): 0.15,
    (SERVING, TOKEN_TIME, "vLLM"): 0.12,
    (SERVING, TOKEN_TIME, "all"): 0.12,
    (SERVING, FIRST_TOKEN_TIME, "TensorRT-LLM"): 0.33,
    (SERVING, FIRST_TOKEN_TIME, "SGLang"): 0.31,
    (SERVING, FIRST_TOKEN_TIME, "vLLM"): 0.25,
    (STATIC, REQUESTS, "FasterTransformer"): 0.06,
    (STATIC, REQUESTS, "TensorRT-LLM C++"): 0.12,
    (STATIC, REQUESTS, "TensorRT-LLM C++ XQA"): 0.18,
    (STATIC, REQUESTS, "TensorRT-LLM C++ MMHA"): 0.14,
    (STATIC, REQUESTS, "TensorRT-LLM run.py"): 0.10,
    (STATIC, REQUESTS, "TensorRT-LLM"): 0.14,
    (STATIC, REQUESTS, "vLLM V0"): 0.10,
    (STATIC, REQUESTS, "vLLM V0 ports"): 0.10,
    (STATIC, REQUESTS, "vLLM V0 paged"): 0.12,
    (STATIC, REQUESTS, "vLLM V0 XPU"): 0.28,
    (STATIC, REQUESTS, "vLLM"): 0.10,
    (STATIC, REQUESTS, "Optimum Habana"): 0.10,
    (STATIC, REQUESTS, "Neuron"): 0.10,
    (STATIC, REQUESTS, "llama.cpp"): 0.10,
    (STATIC, REQUESTS, "llama.cpp Metal"): 0.14,
    (STATIC, REQUESTS, "gpt-fast"): 0.10,
    (STATIC, REQUESTS, "AutoAWQ"): 0.08,
    (STATIC, REQUESTS, "ExLlama"): 0.10,
    (STATIC, REQUESTS, "Transformers"): 0.14,
    (STATIC, REQUESTS, "all"): 0.12,
    (STATIC, SERVING_MEMORY, "all"): 0.07,
}


@pytest.fixture(scope="module")
def tables(shipped_tables):
    names = (path.stem for path in SHIPPED_INFERENCE)
    return dict(zip(names, shipped_tables[1:], strict=False))


@pytest.fixture(scope="module")
def by_engine(tables):
    """The errors of a table by engine."""
    return cache(
        lambda table, compared: {e.name: e for e in errors(tables[table], compared, "engine")}
    )


@pytest.mark.parametrize(("table", "compared", "engine"), LARGEST_MEDIANS)
def test_errors_do_not_grow(by_engine, table, compared, engine):
    assert by_engine(table, compared)[engine].median <= LARGEST_MEDIANS[table, compared, engine]


def test_all_serving_runs_and_nearly_all_others_are_predicted(tables):
    assert not [row for row in tables[SERVING] if row.prediction.reason]
    refused = [row for row in tables[STATIC] if row.prediction.reason]
    assert len(refused) < 0.01 * len(tables[STATIC])
    for row in (*tables[SERVING], *tables[STATIC]):
        assert bool(row.prediction.reason) != bool(row.ranges)


def test_predictions_are_numbers_of_a_sane_size(tables):
    for row in (*tables[SERVING], *tables[STATIC]):
        for name, value in row.prediction.values.items():
            assert 1e-6 < value < 1e7, (row.run.text("id"), name)


@pytest.mark.parametrize("compared", [TOKEN_TIME, FIRST_TOKEN_TIME, REQUESTS])
def test_intervals_hold_most_runs(tables, compared):
    rows = [*tables[SERVING], *tables[STATIC]]
    found = {e.name: e for e in errors(rows, compared, "mode")}
    assert 0.83 <= found["all"].within <= 0.97


@pytest.mark.slow
def test_intervals_hold_runs_they_were_not_made_of(tables):
    rows = [*tables[SERVING], *tables[STATIC]]
    found = residuals(rows)
    assert_layouts_shipped("inference_intervals.csv", layout_factors(rows))
    quantities = {one.interval for one in INFERENCE_KIND.compared if not one.of_memory}
    for quantity in quantities:
        held = held_when_left_out(found, quantity)
        assert 0.87 <= sum(one.inside for one in held) / len(held) <= 0.97
    made = [cell for cell in cells(found) if cell.quantity in quantities]
    assert_shipped("inference_intervals.csv", made)
    assert_widening_shipped("inference_widening.csv", widening(found))
    assert {cell.quantity for cell in made if not any(cell.keys)} == quantities
    assert all(0 < cell.low < cell.high < math.inf for cell in made)


def test_verdicts_on_memory(tables):
    verdicts = memory_verdicts(tables[STATIC])
    assert verdicts.predicted_fit <= 0.05 * verdicts.ran_out
    assert verdicts.predicted_out_of_memory <= 0.01 * verdicts.ran


def test_every_shipped_run_has_a_citation_and_a_measurement(tables):
    for rows in tables.values():
        names = [row.run.text("id") for row in rows]
        assert len(names) == len(set(names)) > 3000
        for row in rows:
            assert row.run.text("source")
            assert row.measured
            assert row.run.flag("calibration") is not None


def test_whole_models_or_sources_are_kept_for_judging(tables):
    for table in tables.values():
        rows = [row.run for row in table]
        used = {(run.text("source").partition(";")[0], run.text("framework"), run.text("model"))
                for run in rows if run.flag("calibration")}  # fmt: skip
        models = {run.text("model") for run in rows if run.flag("calibration")}
        judged = {run.text("model") for run in rows if not run.flag("calibration")}
        assert used
        assert judged - models


def test_a_plan_for_serving_has_its_confidence():
    library = Library()
    gpu, model = library.gpu("h100-sxm-80gb"), library.model("llama-3.1-70b")
    assert gpu.scale_up.kind is LinkKind.NVLINK
    setting = ServingInputs(
        machine=Machine(gpu=gpu, cluster=default_cluster(gpu)),
        model=model,
        engine=library.engine("vllm"),
        workload=ServingWorkload(input_tokens=1000, output_tokens=100),
    )
    found = serving_confidence(setting, "online")
    assert found.basis in ("measured", "transferred")
    quantities = {"time_per_output_token", "time_to_first_token", "throughput", "peak_memory"}
    assert set(found.factors) == quantities
    assert all(0 < low < 1 < high < 20 for low, high in found.factors.values())
