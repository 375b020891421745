"""Runs that meet the conditions of --where: the same predictions, fewer rows."""

import pandas as pd
import pytest
from sample_runs import row

import planner
from planner.errors import SearchSpaceError
from planner.validation.run_tables import read_runs
from planner.validation.spec_library import Library
from planner.validation.validated_runs import DERIVED, select_runs

DENSE = {"num_experts": "", "num_experts_per_tok": "", "moe_intermediate_size": ""}
MIXTURE = {"num_experts": "8", "num_experts_per_tok": "2", "moe_intermediate_size": "4096"}


@pytest.fixture
def tables(write_runs):
    path = write_runs(
        row(id="dense", measured_step_time_s="1", **DENSE),
        row(
            id="experts",
            measured_step_time_s="",
            gpu="mi300x-192gb",
            **{**MIXTURE, "sequence_length": "32768"},
        ),
        row(id="home", measured_step_time_s="", gpu="rtx4090-24gb", **DENSE),
        row(id="unknown", measured_step_time_s="", gpu="abacus", **DENSE),
    )
    return [read_runs(path)]


@pytest.mark.parametrize(
    ("where", "names"),
    [
        (["model_kind == 'moe'"], ["experts"]),
        (["gpu_vendor == 'amd' and model_kind == 'moe'"], ["experts"]),
        (["consumer_gpu"], ["home"]),
        (["context_tokens >= 32768"], ["experts"]),
        (["gpu_vendor == 'nvidia'", "not consumer_gpu"], ["dense"]),
        (["sequence_length < 32768 and not gpu in ['abacus', 'rtx4090-24gb']"], ["dense"]),
        (["measured_step_time_s > 0"], ["dense"]),
        (["gpu_vendor == ''"], ["unknown"]),
        ([], ["dense", "experts", "home", "unknown"]),
    ],
)
def test_runs_that_meet_every_condition(tables, where, names):
    (selected,) = select_runs(tables, where, Library())
    assert [run.text("id") for run in selected.rows] == names


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("gpu_vendr == 'amd'", "no column 'gpu_vendr'. Did you mean gpu_vendor"),
        ("gpu_vendor = 'amd'", "is not an expression of pandas"),
        ("num_gpus", "it is not a condition"),
        ("__import__('os')", "may only have columns"),
        ("num_gpus > 'many'", "cannot be evaluated"),
    ],
)
def test_a_wrong_condition_names_the_columns(tables, where, message):
    with pytest.raises(SearchSpaceError) as error:
        select_runs(tables, [where], Library())
    assert message in str(error.value)
    assert "Columns: model_kind, gpu_vendor, consumer_gpu, context_tokens, first_run, " in str(
        error.value
    )


def test_conditions_that_no_run_meets(tables):
    with pytest.raises(SearchSpaceError, match="No run meets --where 'num_gpus > 1e9'"):
        select_runs(tables, ["num_gpus > 1e9"], Library())


@pytest.mark.slow
def test_selected_published_runs_have_the_predictions_of_all(capsys):
    where = "publisher == 'torchtitan' and num_gpus == 8"
    answer = planner.validate_runs(where=where)
    frame = answer.to_frame()
    assert len(frame) == len(answer.runs) > 0
    assert {*frame.num_gpus} == {"8"}
    assert pd.to_numeric(frame.predicted_tokens_per_s_per_gpu).gt(0).all()
    alone = planner.validate_runs(where=["publisher == 'torchtitan'"]).to_frame()
    alone = alone[alone.num_gpus == "8"]
    assert [*frame.predicted_tokens_per_s_per_gpu] == [*alone.predicted_tokens_per_s_per_gpu]
    assert "Step time by source" in answer.summary()


def test_pretraining_is_no_first_run(tables):
    with pytest.raises(SearchSpaceError, match="No run meets --where 'first_run'"):
        select_runs(tables, ["first_run"], Library())


@pytest.mark.slow
def test_first_runs_are_those_that_tuning_makes_faster():
    answer = planner.validate_runs(where="first_run and publisher == 'dstackai/benchmarks'")
    assert answer.runs
    assert all(run.prediction.case.as_tuned is not None for run in answer.runs)


def test_the_help_names_every_derived_column():
    import inspect

    assert all(name in inspect.getdoc(planner.validate_runs) for name in DERIVED)
