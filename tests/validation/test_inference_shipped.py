"""The published runs of inference: what is predicted of them stays as good as it is."""

import math

import pytest
from shipped_intervals import assert_shipped

from planner.enums import LinkKind
from planner.estimators.inference.setting import ServingSetting
from planner.estimators.machine import Machine
from planner.specs.catalogue import default_cluster
from planner.specs.serving import ServingWorkload
from planner.validation.confidence import serving_confidence
from planner.validation.inference.compare import (
    MEMORY,
    THROUGHPUT,
    inference_errors,
    inference_verdicts,
    joined_inference,
)
from planner.validation.inference.intervals import QUANTITIES
from planner.validation.inference.predict import predict_inference
from planner.validation.inference.residuals import inference_residuals
from planner.validation.library import Library
from planner.validation.residuals import cells, held_when_left_out
from planner.validation.runs import SHIPPED_INFERENCE, read_runs

TOKEN, FIRST = ("time_per_output_token_s",), ("time_to_first_token_s",)
SERVING, STATIC = "serving", "inference"

# Recorded medians with a margin: a change that makes one larger has to say so here.
LARGEST_MEDIANS = {
    (SERVING, TOKEN, "TensorRT-LLM"): 0.12,
    (SERVING, TOKEN, "SGLang"): 0.15,
    (SERVING, TOKEN, "vLLM"): 0.12,
    (SERVING, TOKEN, "all"): 0.12,
    (SERVING, FIRST, "TensorRT-LLM"): 0.33,
    (SERVING, FIRST, "SGLang"): 0.31,
    (SERVING, FIRST, "vLLM"): 0.25,
    (STATIC, THROUGHPUT, "FasterTransformer"): 0.06,
    (STATIC, THROUGHPUT, "TensorRT-LLM C++"): 0.12,
    (STATIC, THROUGHPUT, "TensorRT-LLM C++ XQA"): 0.18,
    (STATIC, THROUGHPUT, "TensorRT-LLM C++ MMHA"): 0.14,
    (STATIC, THROUGHPUT, "TensorRT-LLM run.py"): 0.10,
    (STATIC, THROUGHPUT, "TensorRT-LLM"): 0.14,
    (STATIC, THROUGHPUT, "vLLM V0"): 0.10,
    (STATIC, THROUGHPUT, "vLLM V0 ports"): 0.10,
    (STATIC, THROUGHPUT, "vLLM V0 paged"): 0.12,
    (STATIC, THROUGHPUT, "vLLM V0 XPU"): 0.28,
    (STATIC, THROUGHPUT, "vLLM"): 0.10,
    (STATIC, THROUGHPUT, "Optimum Habana"): 0.10,
    (STATIC, THROUGHPUT, "Neuron"): 0.10,
    (STATIC, THROUGHPUT, "llama.cpp"): 0.10,
    (STATIC, THROUGHPUT, "llama.cpp Metal"): 0.14,
    (STATIC, THROUGHPUT, "gpt-fast"): 0.10,
    (STATIC, THROUGHPUT, "AutoAWQ"): 0.08,
    (STATIC, THROUGHPUT, "ExLlama"): 0.10,
    (STATIC, THROUGHPUT, "Transformers"): 0.14,
    (STATIC, THROUGHPUT, "all"): 0.12,
    (STATIC, (MEMORY,), "all"): 0.07,
}


@pytest.fixture(scope="module")
def tables():
    found = {}
    for path in SHIPPED_INFERENCE:
        runs = read_runs(path)
        found[path.stem] = joined_inference(runs, predict_inference(runs))
    return found


@pytest.mark.parametrize(("table", "quantities", "engine"), LARGEST_MEDIANS)
def test_errors_do_not_grow(tables, table, quantities, engine):
    found = {e.name: e for e in inference_errors(tables[table], quantities, "engine")}
    assert found[engine].median <= LARGEST_MEDIANS[table, quantities, engine]


def test_all_serving_runs_and_nearly_all_others_are_predicted(tables):
    assert not any(row.prediction.reason for row in tables[SERVING])
    refused = [row for row in tables[STATIC] if row.prediction.reason]
    assert len(refused) < 0.01 * len(tables[STATIC])
    for row in (*tables[SERVING], *tables[STATIC]):
        assert bool(row.prediction.reason) != bool(row.ranges)


def test_predictions_are_numbers_of_a_sane_size(tables):
    for row in (*tables[SERVING], *tables[STATIC]):
        for name, value in row.prediction.values.items():
            assert 1e-6 < value < 1e7, (row.run.text("id"), name)


@pytest.mark.parametrize("quantities", [TOKEN, FIRST, THROUGHPUT])
def test_intervals_hold_most_runs(tables, quantities):
    rows = [*tables[SERVING], *tables[STATIC]]
    found = {e.name: e for e in inference_errors(rows, quantities, "mode")}
    assert 0.83 <= found["all"].within <= 0.97


def test_intervals_hold_runs_they_were_not_made_of(tables):
    found = inference_residuals([*tables[SERVING], *tables[STATIC]])
    for quantity in QUANTITIES:
        held = held_when_left_out(found, quantity).values()
        assert sum(inside for _, inside in held) >= 0.77 * sum(runs for runs, _ in held)
    made = cells(found)
    assert_shipped("inference_intervals.csv", made)
    assert {cell.quantity for cell in made if not any(cell.keys)} == set(QUANTITIES)
    assert all(0 < cell.low < cell.high < math.inf for cell in made)


def test_verdicts_on_memory(tables):
    verdicts = inference_verdicts(tables[STATIC])
    assert verdicts.said_to_fit <= 0.05 * verdicts.ran_out
    assert verdicts.said_to_run_out <= 0.01 * verdicts.ran


def test_every_shipped_run_has_a_citation_and_a_measurement():
    for path in SHIPPED_INFERENCE:
        runs = read_runs(path)
        names = [run.text("id") for run in runs.rows]
        assert len(names) == len(set(names)) > 3000
        for run in runs.rows:
            assert run.text("source")
            assert any(run.number(f"measured_{name}") is not None for name in runs.quantities)
            assert run.flag("calibration") is not None


def test_whole_models_or_sources_are_kept_for_judging():
    for path in SHIPPED_INFERENCE:
        rows = read_runs(path).rows
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
    setting = ServingSetting(
        machine=Machine(gpu=gpu, cluster=default_cluster(gpu)),
        model=model,
        engine=library.engine("vllm"),
        workload=ServingWorkload(input_tokens=1000, output_tokens=100),
    )
    found = serving_confidence(setting)
    assert found.basis in ("measured", "transferred")
    for low, high in (found.time_per_output_token, found.time_to_first_token, found.throughput):
        assert 0 < low < 1 < high < 10
