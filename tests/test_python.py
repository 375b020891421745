"""What is asked in Python: read as on the command line, refused alike, and completed."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from rows import each

import planner
from planner.errors import InfeasibleError, SearchSpaceError, SpecError
from planner.question.terms import terms_of
from planner.workloads.build_request import make_request

TRAIN = {"model": "llama-7b", "num_gpus": 8}
SERVE = {"workload": "serve", "model": "llama-7b", "num_gpus": 1, "gpu": "h100"}
SMALL = {**TRAIN, "space": "small"}

REFUSED = {
    "question of serving": ({**TRAIN, "engine": "vllm"}, "engine is for workload inference or"),
    "question of training": ({**SERVE, "dropout": True}, "dropout is for workload train"),
    "limit of serving": ({**TRAIN, "constraints": {"ttft": "1s"}}, "time_to_first_token is for"),
    "drafts": ({**SERVE, "draft_cost": 0.1}, "draft_cost needs draft_tokens"),
    "few tokens": ({**TRAIN, "total_tokens": 100}, "total_tokens 100: that is 100 tokens"),
    "objective": ({**TRAIN, "objectives": "speed"}, "Unknown objective 'speed'"),
    "time without a unit": ({**TRAIN, "constraints": {"step_time": "5"}}, "as in 5s"),
    "separator": ({**TRAIN, "num_gpus": "2,048"}, "write 2048"),
    "separated length": ({**TRAIN, "sequence_length": "2,048"}, "Write 2048"),
    "twice": ({**TRAIN, "settings": {"tp": 2, "tensor_parallel": 4}}, "tensor_parallel is set tw"),
    "precision twice": (
        {**TRAIN, "precision": "fp8", "settings": {"precision": "bf16"}}, "precision is set twice",
    ),
    "quantization twice": (
        {**SERVE, "precision": "fp8", "settings": {"quantization": "fp8"}}, "quantization is set",
    ),
    "batch twice": (
        {**TRAIN, "global_batch_size": (8, 16), "settings": {"gbs": 8}}, "size is set twice",
    ),
    "unknown": ({**TRAIN, "gpuz": "h100"}, "Unknown argument 'gpuz'. Did you mean gpu"),
    "an option": ({**TRAIN, "gpus": 8}, "Unknown argument 'gpus'. Did you mean num_gpus?"),
    "a parameter": ({**TRAIN, "tp": 8}, "give settings={'tensor_parallel': ...}"),
    "a limit": ({**TRAIN, "step_time": 8}, "give constraints={'step_time': ...}"),
    "workload": ({**TRAIN, "workload": "srve"}, "Unknown workload 'srve'. Did you mean serve"),
    "no mapping": ({**TRAIN, "settings": [("tp", 8)]}, "settings is a mapping"),
    "nothing": ({**TRAIN, "gpu": []}, "no value for gpu"),
    "part of a name": ({**TRAIN, "settings": {"parallel": 8}}, "tensor_parallel or expert"),
    "short name": ({**TRAIN, "settings": {"tpp": 8}}, "Unknown parameter 'tpp'. Did you mean tp"),
}  # fmt: skip
HOW = {
    "trials": ({"trials": 9}, "trials needs driver optuna"),
    "storage": ({"storage": "s.db"}, "planner 0.1.0 was the last version with it"),
    "driver": ({"driver": "optna"}, "driver is one of .* Did you mean optuna"),
    "sink": ({"driver": "optuna", "sink": print}, "sink needs driver exhaustive"),
    "progress": ({"progress": 3}, "progress is a function, not 3"),
}


@each("case", REFUSED)
@each("function", [planner.search, planner.estimate])
def test_what_the_command_line_refuses_is_refused(function, case):
    request, words = REFUSED[case]
    with pytest.raises(SearchSpaceError) as error:
        function(**request)
    assert words in str(error.value)


@pytest.mark.parametrize("case", HOW)
def test_ways_to_search_that_do_nothing_are_refused(case):
    how, words = HOW[case]
    with pytest.raises(SearchSpaceError, match=words):
        planner.search(**SMALL, **how)


def test_a_burst_is_for_streams():
    with pytest.raises(SearchSpaceError, match="burst is for workload serve"):
        planner.estimate(**TRAIN, burst=8)


def test_no_model():
    with pytest.raises(SpecError, match="Give a model"):
        planner.search(num_gpus=8)


@each(
    ("given", "plain"),
    [
        ({"num_gpus": np.int64(8)}, {"num_gpus": 8}),
        ({"num_gpus": np.array([8, 16])}, {"num_gpus": (8, 16)}),
        ({"num_gpus": "2k, 4Ki"}, {"num_gpus": (2000, 4096)}),
        ({"num_gpus": range(8, 17, 8)}, {"num_gpus": (8, 16)}),
        ({"model": Path("m.toml")}, {"model": "m.toml"}),
        ({"gpu": "h100, b200"}, {"gpu": ("h100", "b200")}),
        ({"gpu": {"h100", "b200"}}, {"gpu": ("b200", "h100")}),
        ({"gpu": Path("a,b.toml")}, {"gpu": "a,b.toml"}),
        ({"sequence_length": "8k"}, {"sequence_length": 8000}),
        ({"sequence_length": "8Ki"}, {"sequence_length": 8192}),
        ({"sequence_length": 2048.0}, {"sequence_length": 2048}),
        ({"total_tokens": "1.4T"}, {"total_tokens": 1.4e12}),
        ({"total_tokens": 2 * 10**9}, {"total_tokens": 2e9}),
        ({"dropout": "no"}, {"dropout": False}),
        ({"flops_efficiency": "40%"}, {"flops_efficiency": 0.4}),
        ({"flops_efficiency": "150 TFLOP/s"}, {"flops_efficiency": "150 TFLOP/s"}),
        ({"price": "2.5"}, {"price": 2.5}),
        ({"price": "2.5 USD/h"}, {"price": 2.5}),
        ({"global_batch_size": "1k"}, {"global_batch_size": 1000}),
        ({"global_batch_size": [64, 128]}, {"settings": {"global_batch_size": (64, 128)}}),
        ({"settings": {"tp": "8"}}, {"settings": {"tensor_parallel": 8}}),
        ({"settings": {"mbs": range(1, 3)}}, {"settings": {"micro_batch_size": [1, 2]}}),
        ({"settings": {"recompute": "FULL,none"}}, {"settings": {"recompute": ["full", "none"]}}),
        ({"objectives": "throughput,cost"}, {"objectives": ("throughput", "cost")}),
        ({"constraints": {"step_time": "6s"}}, {"constraints": {"step_time": 6.0}}),
        ({"constraints": {"step-time": 6}}, {"constraints": {"step_time": 6.0}}),
        (
            {"constraints": {"memory_headroom": "8GiB", "mfu": "40%", "cost": "2M"}},
            {
                "constraints": {
                    "memory_headroom": 8 * 2.0**30,
                    "model_flops_utilization": 0.4,
                    "cost": 2e6,
                }
            },
        ),
    ],
)
def test_values_are_read(given, plain):
    read = make_request({**TRAIN, **given})
    for name, value in plain.items():
        assert getattr(read, name) == value
        assert type(getattr(read, name)) is type(value)


def test_rates_may_have_their_unit():
    assert make_request({**SERVE, "request_rate": "21/s"}).request_rate == 21.0


def test_settings_of_prefill_workers_have_short_names():
    settings = {"prefill_tp": 2, "prefill-dp": 4}
    read = make_request({**SERVE, "settings": settings})
    assert read.settings == {"prefill_tensor_parallel": 2, "prefill_attention_data_parallel": 4}


def test_a_precision_names_a_parameter_of_each_workload():
    asked = {"precision": "fp8, bf16"}
    assert make_request({**TRAIN, **asked}).precision == ("fp8", "bf16")
    found = planner.search(**SMALL, precision="fp8,bf16", gpu="h100")
    assert {row["precision"] for row in found.problem.cells} == {"fp8", "bf16"}


def test_all_numbers_of_gpus():
    assert make_request({**TRAIN, "num_gpus": " all "}).num_gpus == "all"
    assert make_request({**TRAIN, "num_gpus": ["all"]}).num_gpus == "all"


def test_several_batch_sizes_are_searched():
    found = planner.search(**SMALL, global_batch_size=[64, 128], objectives="throughput")
    plain = planner.search(**SMALL, settings={"gbs": (64, 128)}, objectives="throughput")
    assert found.configurations_evaluated == plain.configurations_evaluated
    assert set(found.problem.sources[0].mesh.values("global_batch_size")) == {64, 128}


def test_texts_and_numbers_are_one_question():
    texts = planner.search(**SMALL, sequence_length="1k", constraints={"step_time": "60s"})
    numbers = planner.search(**SMALL, sequence_length=1000, constraints={"step_time": 60})
    assert texts.table == numbers.table
    with pytest.raises(InfeasibleError):
        planner.estimate(**SERVE, request_rate="2k")


@pytest.mark.parametrize("function", [planner.search, planner.estimate])
def test_every_field_completes(function):
    parameters = inspect.signature(function).parameters
    assert all(one.kind is one.KEYWORD_ONLY for one in parameters.values())
    for field in dataclasses.fields(planner.Request):
        assert parameters[field.name].annotation == field.type
    assert parameters["workload"].default == "train"
    assert parameters["settings"].default == {}
    assert parameters["model"].default is inspect.Parameter.empty
    assert "Raises" in function.__doc__
    own = {"driver", "trials"} if function is planner.search else {"burst"}
    assert own < parameters.keys()


def test_the_package_shows_its_public_names():
    functions = [
        "check",
        "compare",
        "estimate",
        "explain",
        "max_batch",
        "max_batches",
        "max_length",
        "operators",
        "predictor",
        "read_launch",
        "search",
        "size",
        "size_pools",
        "size_services",
        "sweep",
        "validate_log",
        "validate_runs",
        "write_launch",
    ]
    assert dir(planner) == ["Request", "__version__", *functions]
    code = "import sys, planner; dir(planner); print(*[m for m in sys.modules if 'planner' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert {*ran.stdout.split()} == {"planner", "planner.base", "planner.base.version"}


def test_every_short_name_is_of_one_term():
    for workload in ("train", "inference", "serve"):
        known = terms_of(workload, "parameter", "derived", "pool").values()
        shorts = [term.short for term in known if term.short]
        assert len(shorts) == len(set(shorts))


def test_the_words_of_optuna_are_its_own():
    from planner.optimize import optuna_search
    from planner.workloads import build_request

    assert build_request.SAMPLERS == optuna_search.SAMPLERS
    asked = build_request.read_driver({"driver": "optuna"})
    plain = inspect.signature(optuna_search.run_trials).parameters
    assert {name: plain[name].default for name in asked if name != "driver"} == {
        name: value for name, value in asked.items() if name != "driver"
    }


def test_a_launch_file_is_a_question() -> None:
    sample = Path(planner.__file__).parents[1] / "docs" / "samples" / "pretrain.sh"
    question = planner.read_launch(sample, gpu="h100")
    now = planner.estimate(base=question)
    best = planner.search(base=question, framework="megatron-lm")
    assert now.table()["recompute"] == ["full"]
    assert best.to_frame()["step_time_s"].min() < now.table()["step_time_s"][0]
    changed = planner.estimate(base=question, settings={"recompute": "none", "tp": 8, "pp": 4})
    assert changed.table()["pipeline_parallel"] == [4]


def test_a_question_is_searched_as_the_same_words_are() -> None:
    """Its settings, whatever way they are written; only the layout of a plan is left open."""
    asked: dict[str, object] = {
        "model": "llama-7b", "gpu": "a100", "num_gpus": "8", "space": "small",
        "sequence_length": "4k", "settings": {"tp": "2", "recompute": "full"},
    }  # fmt: skip
    words = planner.search(**asked)
    question = planner.search(base=planner.Request(**asked))
    assert question.configurations_evaluated == words.configurations_evaluated
    assert question.to_frame().equals(words.to_frame())
    assert set(question.to_frame()["tensor_parallel"]) == {2}
    one = planner.estimate(base=planner.Request(**asked))
    assert one.table() == planner.estimate(**asked).table()
