"""The page on procurement is of the plan that ships, and has a table of every model."""

from __future__ import annotations

import make_procurement as script

from planner.specs.catalogue import load_model
from planner.sweeps.read import read_plan


def test_the_page_is_of_the_shipped_plan() -> None:
    plan, text = read_plan(script.NAME), script.FILE.read_text(encoding="utf-8")
    assert plan.digest[:16] in text
    axes = plan.works[0].axes
    assert len(axes["model"]) >= 5
    assert len(axes["gpu"]) >= 12
    assert len(axes["num_gpus"]) >= 6
    assert len(axes["contract"]) >= 3
    for name in axes["model"]:
        assert f"\n### {load_model(name).name}\n" in text
    for gpu in axes["gpu"]:
        assert text.count(f"\n{gpu} on-demand ") == len(axes["model"])
