"""What a plan of a sweep asks, read from tables and files: every combination, and every fault."""

from __future__ import annotations

import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from planner.errors import SearchSpaceError, SpecError
from planner.specs.catalogue import names
from planner.sweeps.find_plan import make_sweep, read_plan
from planner.sweeps.plan import MAX_SCENARIOS, SweepPlan

TABLE = {
    "model": ["llama-7b", "llama-13b"],
    "num_gpus": [8, 16, 32],
    "total_tokens": "100B",
    "time_to_train": ["10d", "20d"],
}
TWO_WORKS = {
    "model": "llama-7b",
    "gpu": ["a100", "h100"],
    "work": [
        {"name": "train", "num_gpus": [8, 16], "settings": {"tp": [1, 2]}},
        {"name": "chat", "workload": "serve", "request_rate": [1, 2, 4], "engine": "vllm"},
    ],
}


def test_the_scenarios_are_every_combination_once_the_last_axis_first() -> None:
    plan = make_sweep(TABLE)
    expected = [
        {"model": m, "num_gpus": n, "total_tokens": "100B", "time_to_train": t}
        for m, n, t in product(("llama-7b", "llama-13b"), (8, 16, 32), ("10d", "20d"))
    ]
    assert [dict(one.values) for one in plan.scenarios()] == expected
    assert [one.number for one in plan.scenarios()] == [*range(12)] == [*range(plan.num_scenarios)]
    assert [dict(one.values) for one in plan.scenarios(range(5, 7))] == expected[5:7]
    assert plan.varied == ("model", "num_gpus", "time_to_train")


def test_each_kind_of_work_has_its_own_answers_and_the_common_ones() -> None:
    plan = make_sweep(TWO_WORKS)
    assert [work.num_scenarios for work in plan.works] == [4, 6]
    first, last = plan.scenario(3), plan.scenario(9)
    assert dict(first.values) == {"model": "llama-7b", "gpu": "h100", "num_gpus": 16}
    expected = {"model": "llama-7b", "gpu": "h100", "request_rate": 4, "engine": "vllm"}
    assert dict(last.values) == expected
    assert first.request(None).settings == {"tensor_parallel": [1, 2]}
    assert last.request(None).request_rate == 4.0
    assert last.request(None).workload == "serve"
    assert plan.varied == ("work", "gpu", "num_gpus", "request_rate")


def test_an_answer_of_a_work_replaces_the_common_one() -> None:
    own = {"work": [{"model": "llama-13b"}], "model": "llama-7b", "num_gpus": 8}
    (scenario,) = make_sweep(own).scenarios()
    assert scenario.values["model"] == "llama-13b"


def test_limits_reach_the_request_in_si_units() -> None:
    request = make_sweep(TABLE).scenario(1).request(None)
    assert request.constraints == {"time_to_train": 20 * 86400}
    assert request.total_tokens == 1e11


@pytest.mark.parametrize("table", [TABLE, TWO_WORKS], ids=["one work", "two works"])
def test_a_plan_reads_back_from_its_file_and_its_tables(table: Any, tmp_path: Path) -> None:
    plan = make_sweep(table)
    file = tmp_path / "again.toml"
    file.write_text(plan.to_toml())
    again = read_plan(str(file))
    assert again.digest == plan.digest == SweepPlan.of_dict(plan.to_dict()).digest
    assert [*again.scenarios()] == [*plan.scenarios()]
    assert make_sweep({**table, "model": "llama-30b"}).digest != plan.digest


def test_names_of_one_spec_are_one_value() -> None:
    table = {**TABLE, "gpu": ["h100", "h100-sxm-80gb", "a100"], "num_gpus": "8, 16,8"}
    plan = make_sweep(table)
    assert plan.works[0].axes["gpu"] == ("h100", "a100")
    assert plan.works[0].axes["num_gpus"] == (8, 16)


def test_all_stands_for_every_spec_and_every_power_of_two() -> None:
    axes = make_sweep({"model": "llama-7b", "gpu": "all", "num_gpus": "all"}).works[0].axes
    assert [*axes["gpu"]] == names("gpus")
    assert axes["num_gpus"][:3] == (1, 2, 4)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown model": ({"model": ["llama-7b", "lama-13b"]}, "Did you mean llama-13b"),
    "unknown GPU": ({"gpu": "h1000"}, "Unknown GPU 'h1000'"),
    "unknown question": ({"colour": "red"}, "Unknown question or limit 'colour'"),
    "a parameter": ({"tensor_parallel": 4}, "tensor_parallel is a parameter: .* settings"),
    "of another workload": ({"engine": "vllm"}, "engine is for workload inference or serve"),
    "unknown workload": ({"workload": "sevre"}, "Did you mean serve"),
    "no unit": ({"time_to_train": "30"}, "time_to_train 30: needs a unit"),
    "no count": ({"num_gpus": [8, "x"]}, "not 'x'"),
    "both places": ({"gpu": "a100", "cluster": "dgx-h100"}, "give gpu or cluster"),
    "settings": ({"settings": 3}, "settings is a table"),
    "unknown setting": ({"settings": {"colour": 3}}, "Unknown parameter 'colour'"),
    "unknown objective": ({"objectives": ["cots"]}, "Unknown objective 'cots'"),
    "unknown region": ({"region": ["SE", "Atlantis"]}, "Unknown region 'Atlantis'"),
    "unknown provider": ({"provider": "lamda"}, "has the provider 'lamda'"),
    "unknown reliability": ({"reliability": "idael"}, "Unknown reliability 'idael'"),
    "price of an unknown GPU": ({"price": "h1oo=3"}, "Unknown GPU 'h1oo'"),
    "negative limit": ({"cost": -5}, "at least 0"),
    "nothing can be planned": (
        {"model": "gpt2", "sequence_length": 9000},
        "has learned positions for 1,024 tokens",
    ),
    "works": ({"work": 3}, "work is a table"),
    "no model": ({"model": None}, "model"),
    "same name": (
        {"work": [{"name": "a"}, {"name": "a"}]},
        "Several kinds of work have the name 'a'",
    ),
    "of no work": ({"work": [{"name": "a", "engine": "vllm"}]}, "a: engine is for workload"),
}


@pytest.mark.parametrize(("change", "words"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_told(change: dict[str, Any], words: str) -> None:
    table = {name: value for name, value in {**TABLE, **change}.items() if value is not None}
    with pytest.raises(SearchSpaceError, match=words):
        make_sweep(table)


def test_all_faults_are_told_at_once_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_text('model = ["a1", "a2"]\ngpu = "a3"\nnum_gpus = -1\ncolour = 1\n')
    with pytest.raises(SearchSpaceError) as found:
        read_plan(str(file))
    lines = str(found.value).splitlines()
    assert len(lines) == 5
    assert all(line.startswith(f"{file}: ") for line in lines)


def test_a_plan_of_billions_is_refused_at_once() -> None:
    table = {**TABLE, **dict.fromkeys(("model", "gpu", "framework", "num_gpus"), "all")}
    with pytest.raises(SearchSpaceError, match=r"scenarios are more than 1,000,000"):
        make_sweep(table)
    assert MAX_SCENARIOS == 1_000_000


def test_limits_that_no_count_keeps_are_refused() -> None:
    table = {"workload": "serve", "model": "llama-7b", "num_gpus": [16, 32], "max_gpus": 8}
    with pytest.raises(SearchSpaceError, match="every number of GPUs is above max_gpus"):
        make_sweep(table)


def test_what_is_no_file_of_a_plan_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Unknown sweep 'lama-65b'\. Did you mean llama-65b"):
        read_plan("lama-65b")
    with pytest.raises(SpecError, match="there is no such file"):
        read_plan(str(tmp_path / "none.toml"))


@pytest.mark.parametrize("name", names("sweeps"))
def test_shipped_plans_are_read_and_say_what_they_are(name: str) -> None:
    plan = read_plan(name)
    assert plan.num_scenarios > 1
    assert plan.name
    assert plan.description
    assert tomllib.loads(plan.to_toml())
