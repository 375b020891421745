"""What a sweep writes: the rows of its searches, as CSV and as Parquet, and the front of all."""

from __future__ import annotations

import csv
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import planner
from planner.errors import OutputError
from planner.optimize.exhaustive import StopSearch
from planner.optimize.pareto import front_of_many
from planner.optimize.result_columns import full_columns
from planner.sweeps.find_plan import make_sweep
from planner.sweeps.plan import SweepPlan
from planner.sweeps.run_sweep import Stopped, in_this_process, on_cores, run_sweep
from planner.sweeps.scenario_batches import joint_kind, parts_of, run_scenarios
from planner.sweeps.sweep_folder import front_across
from planner.workloads.registry import workload_of
from planner.workloads.training import results

TABLE = {
    "gpu": ["a100", "h100", "rtx4090"],
    "work": [
        {
            "name": "pretraining",
            "model": ["opt-6.7b", "llama-65b"],
            "num_gpus": [4, 64],
            "framework": "fsdp",
            "space": "small",
            "sequence_length": [2048, 4096],
        },
        {
            "name": "chat",
            "workload": "serve",
            "model": "llama-7b",
            "engine": "vllm",
            "num_gpus": 4,
            "mode": "aggregated",
        },
    ],
}


@pytest.fixture(scope="module")
def plan() -> SweepPlan:
    return make_sweep(TABLE)


@pytest.fixture(scope="module")
def folder(plan: SweepPlan, tmp_path_factory: Any) -> Path:
    found: Path = tmp_path_factory.mktemp("sweep") / "out"
    run_sweep(plan, found)
    return found


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


@pytest.mark.slow
def test_there_is_a_row_for_every_scenario_in_order(plan: SweepPlan, folder: Path) -> None:
    rows = rows_of(folder / "scenarios.csv")
    assert [int(row["scenario"]) for row in rows] == [*range(plan.num_scenarios)]
    assert {row["model"] for row in rows} == {"LLaMA 7B", "LLaMA 65B", "OPT 6.7B"}
    assert {row["gpu"] for row in rows} == {"a100-sxm-80gb", "h100-sxm-80gb", "rtx4090-24gb"}
    assert {row["feasible"] for row in rows} == {"True", "False"}
    for row in rows:
        assert bool(row["reason"]) == (row["feasible"] == "False")


def test_a_row_is_that_of_the_search(plan: SweepPlan) -> None:
    for number in (10, plan.num_scenarios - 1):
        scenario = plan.scenario(number)
        (outcome,) = run_scenarios([scenario])
        answer = planner.search(workload=scenario.work.workload, **dict(scenario.values))
        assert answer.recommended is not None
        expected = full_columns(answer.recommended.columns(), answer.problem.sources)
        for name, values in expected.items():
            value = np.asarray(values)[:1].tolist()[0]
            if isinstance(value, float) and math.isnan(value):
                value = None
            is_number = isinstance(value, float)
            expect = pytest.approx(value, rel=1e-12) if is_number else value
            assert outcome.row[name] == expect, name
        assert len(outcome.front["num_gpus"]) == len(answer.table["num_gpus"])
        assert outcome.row["configurations_evaluated"] == answer.configurations_evaluated


def test_what_cannot_be_planned_or_does_not_fit_has_its_reason_and_the_rest_goes_on(
    folder: Path,
) -> None:
    rows = rows_of(folder / "scenarios.csv")
    small = {row["sequence_length"]: row for row in rows if row["model"] == "OPT 6.7B"}
    assert "has learned positions for 2,048 tokens" in small["4096"]["reason"]
    large = [r for r in rows if r["model"] == "LLaMA 65B" and r["gpu"].startswith("rtx")]
    assert {row["reason"].split(":")[0] for row in large if row["sequence_length"] == "2048"} == {
        "out of memory"
    }


def test_parquet_has_what_csv_has_with_types(folder: Path) -> None:
    for name in ("scenarios", "fronts", "front"):
        table = pd.read_parquet(folder / f"{name}.parquet")
        rows = rows_of(folder / f"{name}.csv")
        assert [*table.columns] == [*rows[0]]
        assert len(table) == len(rows)
        for column in ("scenario", "num_gpus"):
            assert table[column].dtype == np.int64
            assert [str(value) for value in table[column]] == [row[column] for row in rows]
    scenarios = pd.read_parquet(folder / "scenarios.parquet")
    rows = rows_of(folder / "scenarios.csv")
    for known, row in zip(scenarios["step_time_s"], rows, strict=True):
        assert (repr(known) if known == known else "") == row["step_time_s"]
    assert scenarios["feasible"].dtype == np.bool_


def test_rows_of_other_work_leave_its_columns_empty(folder: Path) -> None:
    rows = rows_of(folder / "scenarios.csv")
    served = [row for row in rows if row["work"] == "chat" and row["feasible"] == "True"]
    trained = [row for row in rows if row["work"] == "pretraining" and row["feasible"] == "True"]
    assert served
    assert trained
    assert all(row["step_time_s"] == "" != row["time_to_first_token_s"] for row in served)
    assert all(row["step_time_s"] != "" == row["time_to_first_token_s"] for row in trained)


def test_the_manifest_has_the_plan_and_the_digest_of_every_file(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    rows = rows_of(folder / "scenarios.csv")
    assert manifest["scenarios"] == len(rows)
    assert manifest["feasible"] == sum(row["feasible"] == "True" for row in rows)
    assert SweepPlan.of_dict(manifest["plan"]).digest == manifest["digest"]
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert len(manifest["files"]) == 6


@pytest.mark.slow
def test_on_two_cores_the_bytes_are_the_same(plan: SweepPlan, folder: Path, tmp_path: Path) -> None:
    run_sweep(plan, tmp_path / "again", run=on_cores(2))
    for path in sorted(folder.glob("*.*")):
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
def test_tables_made_by_two_processes_have_the_same_bytes_and_progress(
    plan: SweepPlan, folder: Path, tmp_path: Path
) -> None:
    done: list[int] = []
    run_sweep(plan, tmp_path / "again", tables_bar=lambda: done.append, table_workers=2)
    assert done == [part.end for part in parts_of(plan.num_scenarios)]
    for path in sorted(folder.glob("*.*")):
        assert (tmp_path / "again" / path.name).read_bytes() == path.read_bytes(), path.name


@pytest.mark.slow
def test_a_sweep_stopped_while_its_tables_are_written_goes_on_there(
    plan: SweepPlan, folder: Path, tmp_path: Path
) -> None:
    def stop(_: int) -> None:
        raise StopSearch

    with pytest.raises(Stopped, match="while the tables were written: run the same command"):
        run_sweep(plan, tmp_path, tables_bar=lambda: stop)
    assert not [*tmp_path.glob("*.csv"), *tmp_path.glob("*.parquet")]
    run_sweep(plan, tmp_path, run=lambda *_: iter(()))  # no scenario is run again
    for path in sorted(folder.glob("*.*")):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), path.name


def test_a_finished_sweep_is_not_run_again(plan: SweepPlan, folder: Path) -> None:
    def never(*_: Any) -> Any:
        raise AssertionError("it was run")

    before = (folder / "scenarios.csv").stat().st_mtime_ns
    run_sweep(plan, folder, run=never)
    assert (folder / "scenarios.csv").stat().st_mtime_ns == before


def test_another_plan_or_other_files_are_not_written_over(
    plan: SweepPlan, folder: Path, tmp_path: Path
) -> None:
    other = make_sweep({"model": "llama-7b", "num_gpus": [8, 16]})
    with pytest.raises(OutputError, match="has the sweep of another plan"):
        run_sweep(other, folder)
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"do not belong to a sweep, such as mine\.txt"):
        run_sweep(plan, tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_begun_anew_another_plan_takes_its_place(tmp_path: Path) -> None:
    for counts in ([8], [16, 32]):
        one = make_sweep({"model": "llama-7b", "num_gpus": counts, "space": "small"})
        run_sweep(one, tmp_path / "out", fresh=True, run=in_this_process)
        rows = rows_of(tmp_path / "out" / "scenarios.csv")
        assert [int(row["num_gpus"]) for row in rows] == counts


def test_the_front_across_scenarios_is_that_of_the_definition(
    plan: SweepPlan, folder: Path
) -> None:
    rows = [
        {**row, "feasible": row["feasible"] == "True"} for row in rows_of(folder / "scenarios.csv")
    ]
    given = [{**row, **{n: float(row[n] or "inf") for n in _weighed(row)}} for row in rows]
    found = {str(number) for number in front_across(given, plan)}
    expected = set()
    for row in given:
        alike = [o for o in given if o["feasible"] and _alike(o) == _alike(row)]
        if row["feasible"] and not any(_beats(other, row) for other in alike):
            expected.add(row["scenario"])
    assert found == expected
    assert found == {row["scenario"] for row in rows_of(folder / "front.csv")}
    assert 1 < len(found) < sum(row["feasible"] for row in given)


def _weighed(row: Any) -> tuple[str, ...]:
    return workload_of(row["workload"]).comparison_columns


def _alike(row: Any) -> tuple[str, ...]:
    return row["work"], row["model"], row["sequence_length"]


def _beats(one: Any, other: Any) -> bool:
    pairs = [(one[name], other[name]) for name in _weighed(one)]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


@pytest.mark.parametrize("objectives", [1, 2, 3, 4, 5])
def test_a_front_of_many_objectives_is_that_of_the_definition(objectives: int) -> None:
    random = np.random.default_rng(objectives)
    values = random.integers(0, 6, size=(300, objectives)).astype(float)
    values[:3, 0] = np.inf
    no_worse = (values[:, None] <= values).all(axis=2)
    beaten = (no_worse & (values[:, None] < values).any(axis=2)).any(axis=0)
    assert sorted(front_of_many(values)) == np.flatnonzero(~beaten).tolist()


def test_parts_cover_every_scenario_once() -> None:
    found = [number for part in parts_of(35) for number in range(part.first, part.end)]
    assert found == [*range(35)]
    assert [part.end - part.first for part in parts_of(35)] == [16, 16, 3]


def test_kinds_of_columns_join() -> None:
    assert joint_kind("count", "number") == joint_kind("number", "count") == "number"
    assert joint_kind("", "flag") == joint_kind("flag", "") == "flag"
    assert joint_kind("flag", "count") == "text"


SHARED = {
    "model": "llama-7b",
    "space": "small",
    "num_gpus": [8, 32],
    "contract": ["on-demand", "spot", "reserved-1y"],
}
TOKENS = {
    **SHARED,
    "num_gpus": 8,
    "total_tokens": ["100B", "1T"],
    "contract": ["on-demand", "spot"],
}
SERVED = {
    "workload": "serve",
    "model": "llama-7b",
    "engine": ["vllm"],
    "gpu": "h100",
    "num_gpus": 4,
    "contract": ["on-demand", "spot"],
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "table",
    [
        SHARED,
        {**SHARED, "gpu": "rtx3090", "model": "llama-65b"},
        {**SHARED, "cost": "200k"},
        {**SHARED, "cost": "1"},
        {**SHARED, "objectives": ["cost", "memory_headroom"]},
        {**TOKENS, "time_to_train": "30d"},
        {**TOKENS, "objectives": ["cost", "memory_headroom"]},
        SERVED,
        {**SERVED, "cost_per_million_tokens": "0.2"},
    ],
    ids=[
        "free", "too large", "budget", "no budget", "by cost", "tokens in time", "tokens by cost",
        "served", "served for less",
    ],
)  # fmt: skip
def test_contracts_that_share_a_search_find_what_each_alone_finds(table: Any) -> None:
    plan = make_sweep(table)
    alone = [outcome for one in plan.scenarios() for outcome in run_scenarios([one])]
    assert [*run_scenarios(plan.scenarios())] == alone


def test_runs_of_different_lengths_share_one_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    predicted: list[Any] = []
    evaluate = results.evaluate
    monkeypatch.setattr(
        results, "evaluate", lambda *a, **b: predicted.append(a) or evaluate(*a, **b)
    )
    table = {**TOKENS, "contract": "on-demand", "framework": "megatron-lm"}
    numbers = []
    for tokens in ("100B", ["100B", "1T", "2T"]):
        predicted.clear()
        plan = make_sweep({**table, "total_tokens": tokens})
        rows = [outcome.row for outcome in run_scenarios(plan.scenarios())]
        numbers.append(len(predicted))
    assert numbers[0] == numbers[1]
    days = [row["time_to_train_days"] for row in rows]
    assert days == pytest.approx([days[0], 10 * days[0], 20 * days[0]], rel=1e-4)
