"""The page on procurement is of the plan that ships, and has every model and scenario."""

from __future__ import annotations

import csv

import make_procurement as script

from planner.specs.catalogue import load_model
from planner.sweeps.find_plan import read_plan


def test_the_page_is_of_the_shipped_plan() -> None:
    plan, text = read_plan(script.NAME), script.FILE.read_text(encoding="utf-8")
    assert plan.digest[:16] in text
    axes = plan.works[0].axes
    assert len(axes["model"]) >= 5
    assert len(axes["gpu"]) >= 12
    assert len(axes["num_gpus"]) >= 6
    assert len(axes["contract"]) >= 3
    for name in (load_model(name).name for name in axes["model"]):
        assert f"\n### {name}\n" in text
        assert f"\n| {name} | cheapest | " in text
        assert f"](../{script.picture_of(name)})" in text
        assert (script.DOCS / script.picture_of(name)).is_file()


def test_every_scenario_is_in_the_csv_file() -> None:
    plan = read_plan(script.NAME)
    with (script.DOCS / script.SCENARIOS).open(encoding="utf-8", newline="") as stream:
        rows = [*csv.DictReader(stream)]
    axes = plan.works[0].axes
    assert len(rows) == plan.num_scenarios
    assert {row["gpu"] for row in rows} == {*axes["gpu"]}
    assert all(bool(row["cost_usd"] or row["reason"] or row["calendar_time_days"]) for row in rows)
