"""Every measure of a sweep for every kind of work, in whatever way it is asked for."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made import plan_of
from rich.console import Console

from planner.errors import SearchSpaceError
from planner.optimize.result_columns import bad_case_value
from planner.question.terms import terms_of
from planner.show.terminal import print_blocks
from planner.sweeps.columns import (
    MEASURES,
    VALUE,
    measure_values,
    measured,
    measured_ends,
    only_column,
)
from planner.sweeps.find_plan import make_sweep
from planner.sweeps.query import SweepQuery, query_blocks
from planner.sweeps.run_sweep import run_sweep
from planner.sweeps.summary import CHOSEN_BY
from planner.sweeps.sweep_folder import Sweep, front_across
from planner.workloads.registry import workload_names

PLACES: dict[str, Any] = {"model": "llama-7b", "gpu": ["a100", "h100"], "num_gpus": [8, 16]}
POWER = {"region": "virginia"}
WORKS = {
    "train": {"total_tokens": "10B", "space": "single", "framework": "fsdp", **POWER},
    "serve": {"input_tokens": 500, "output_tokens": 100, "space": "serve_single", **POWER},
    "inference": {"input_tokens": 500, "output_tokens": 100, "space": "serve_single", **POWER},
}
MIXED = "all together"
OF_ALL = [name for name in MEASURES if name != "interactivity"]
WORDS = sorted({*MEASURES, VALUE, *(t for w in WORKS for t in terms_of(w, "objective"))})
# Each option that takes a measure or a column, and each that takes a column.
WAYS: dict[str, dict[str, Any]] = {
    "summary": {"value": "{}"},
    "pivot": {"value": "{}", "pivot": "gpu,num_gpus"},
    "pivot of another": {"value": "{}", "pivot": "num_gpus,gpu", "top": 1},
    "against": {"value": "{}", "against": True},
}
COLUMN_WAYS: dict[str, dict[str, Any]] = {
    "pivot by it": {"pivot": "gpu,{}"},
    "sort": {"sort": "-{}"},
    "columns": {"columns": "work,{}"},
    "where": {"where": ["{} > 0"]},
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A sweep of each workload, and one of all."""
    base = tmp_path_factory.mktemp("sweeps")
    works = [{"name": name, "workload": name, **asked} for name, asked in WORKS.items()]
    for name, mine in ((MIXED, works), *((work["name"], [work]) for work in works)):
        run_sweep(make_sweep({**PLACES, "work": mine}), base / name)
    return {name: base / name for name in (MIXED, *WORKS)}


def told(folder: Path, way: str, word: str, **more: Any) -> str:
    """What is printed where a measure is asked for in that way."""
    asked = {
        name: [one.format(word) for one in value] if isinstance(value, list)
        else value.format(word) if isinstance(value, str) else value
        for name, value in {**WAYS, **COLUMN_WAYS}[way].items()
    }  # fmt: skip
    if "against" in asked:
        asked["against"] = folder
    out = io.StringIO()
    print_blocks(
        Console(file=out, width=100), query_blocks(SweepQuery(folder=folder, **asked, **more))
    )
    return out.getvalue()


def test_all_workloads_are_looked_at() -> None:
    assert {*WORKS, "rl"} == {*workload_names()}


def test_reinforcement_learning_has_its_time_cost_and_value(tmp_path: Path) -> None:
    asked = {"workload": "rl", "output_tokens": 100, "output_cap": 500, "space": "rl_single"}
    run_sweep(make_sweep({**PLACES, **asked, "num_gpus": [8]}), tmp_path / "rl")
    for way in ("summary", "pivot"):
        for word in ("time", "cost", VALUE, "step_time_s", "samples_per_s"):
            assert " is known here" not in told(tmp_path / "rl", way, word), (way, word)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", [*WORKS, MIXED])
@pytest.mark.parametrize("way", WAYS)
def test_what_every_work_has_is_told_in_every_way(
    folders: dict[str, Path], name: str, way: str
) -> None:
    for word in (*OF_ALL, VALUE):
        out = told(folders[name], way, word)
        assert out, word
        assert " is known here" not in out, word


@pytest.mark.few(2)
@pytest.mark.parametrize("way", [*WAYS, *COLUMN_WAYS])
def test_any_objective_is_told_or_refused_in_a_sentence(folders: dict[str, Path], way: str) -> None:
    refused = []
    for word in (*WORDS, "cost_usd", "request_latency_s"):
        try:
            told(folders[MIXED], way, word)
        except SearchSpaceError as error:
            refused.append(str(error))
    assert all(line.endswith((".", "?")) for line in refused)
    assert not any("'cost_usd'" in line or "'request_latency_s'" in line for line in refused)


def test_what_a_work_lacks_is_told_beside_what_others_have(
    folders: dict[str, Path], planner: Any
) -> None:
    out = told(folders[MIXED], "pivot", "interactivity")
    assert out.count("No interactivity is known: it is for workload serve.") == 2
    assert out.count("Tok/s/user by GPU") == 1
    alone = planner("sweep", "show", folders["train"], "--pivot", "gpu,num_gpus", "--value",
                    "time_to_first_token_s")  # fmt: skip
    assert (alone.exit_code, alone.out) == (3, "")
    assert "It is for workload serve." in alone.err


@pytest.mark.parametrize("name", WORKS)
def test_every_work_has_its_cheapest_fastest_and_best_value(
    folders: dict[str, Path], name: str
) -> None:
    (group,) = Sweep(folders[name]).summary().groups
    assert {*group.best} == {*CHOSEN_BY}
    rows = [row for row in Sweep(folders[name]).rows() if row["feasible"]]
    cost, time = {
        "train": ("cost_usd", "calendar_time_days"),
        "serve": ("cost_per_million_tokens_usd", "request_latency_s"),
        "inference": ("cost_per_million_tokens_usd", "request_latency_s"),
    }[name]

    def bad(row: Mapping[str, Any], *columns: str) -> float:
        """What 9 of 10 runs like it stay below."""
        return math.prod(bad_case_value(column, row, 1) for column in columns)

    for measure, columns in {"time": (time,), "cost": (cost,), "value": (cost, time)}.items():
        least = min(bad(row, *columns) for row in rows)
        assert bad(group.best[measure], *columns) == pytest.approx(least)


@pytest.mark.parametrize("word", [*OF_ALL, VALUE])
def test_a_written_pivot_has_the_numbers_of_the_rows_and_says_of_what(
    folders: dict[str, Path], tmp_path: Path, word: str
) -> None:
    file = tmp_path / "pivot.csv"
    told(folders[MIXED], "pivot", word, csv=file)
    rows = {(r["work"], r["gpu"], r["num_gpus"]): r for r in Sweep(folders[MIXED]).rows()}
    lines = [*csv.DictReader(file.read_text().splitlines())]
    assert len(lines) == len(rows) / 2
    for line in lines:
        for number in (8, 16):
            row = rows[line["work"], line["gpu"], number]
            own = measured(VALUE, row) if line["of"] == VALUE else row[line["of"]]
            assert float(line[f"num_gpus={number}"]) == own


def test_more_of_a_rate_is_better(folders: dict[str, Path]) -> None:
    for word in ("throughput", "tokens_per_s", "tflops_per_gpu"):
        lines = told(folders["train"], "pivot", word).splitlines()
        cells = {line.split()[0]: line.split()[1:] for line in lines if "sxm" in line}
        assert [cell[0] == "*" for cell in cells["h100-sxm-80gb"]] == [True, True], word
        assert not any("*" in cell for cell in cells["a100-sxm-80gb"]), word


def test_times_of_unlike_work_are_weighed_in_one_unit() -> None:
    run, request = {"time_to_train_days": 0.5, "cost_usd": 3.0}, {"request_latency_s": 43_200.0}
    assert measure_values("time", run) == measure_values("time", request) == 0.5
    assert measured("time", request) == 43_200.0
    assert measure_values(VALUE, run) == 1.5
    assert math.isnan(measure_values(VALUE, request))
    columns = ["time_to_train_days", "calendar_time_days", "request_latency_s"]
    assert only_column("time", columns) == "time"
    assert only_column("time", columns[:2]) == "calendar_time_days"
    assert only_column("time", columns[2:]) == "request_latency_s"


def test_one_column_of_a_measure_is_counted_once() -> None:
    for measure, columns in MEASURES.items():
        assert [only_column(measure, [column]) for column in columns] == [*columns]


def test_an_unknown_value_loses_against_every_known_one() -> None:
    # Days, USD, kWh of 8 GPUs each; nobody knows what the others of those days cost.
    asked = [(10, 100, 5), (10, None, 5), (9, None, 5), (11, None, 5), (9, None, 6), (12, 90, None)]
    rows = [
        {"scenario": number, "work": "train", "workload": "train", "feasible": True, "num_gpus": 8,
         "calendar_time_days": days, "cost_usd": cost, "energy_kwh": energy}
        for number, (days, cost, energy) in enumerate(asked)
    ]  # fmt: skip
    # 0 beats 1 and 3 by what it is known to cost, and 2 is faster; 2 beats 4, of as unknown a cost.
    # 5 costs least, whatever its energy.
    assert front_across(rows, plan_of()) == {0, 2, 5}
    cheap_alone = [rows[1], {**rows[1], "scenario": 6, "cost_usd": 1e9}]
    assert front_across(cheap_alone, plan_of()) == {6}


def test_a_latency_errs_as_its_parts_do_together() -> None:
    # 1 s until the first token, 10 tokens at 0.2 s: 0.5 to 2 and 10 x 0.1 to 0.3.
    row = {"request_latency_s": 3.0, "time_to_first_token_s": 1.0, "time_per_output_token_s": 0.2,
           "time_to_first_token_low_s": 0.5, "time_to_first_token_high_s": 2.0,
           "time_per_output_token_low_s": 0.1, "time_per_output_token_high_s": 0.3}  # fmt: skip
    assert measured_ends("time", row) == pytest.approx((1.5, 5.0))
    assert measured_ends("time", {**row, "time_per_output_token_low_s": None}) is None
