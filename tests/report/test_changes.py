"""A change is told where the digits that are shown tell it."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from planner.decide.explain.plan_comparison import PartDifference
from planner.decide.near import Change
from planner.show.presenters.explanation import against_lines
from planner.show.presenters.launch_file import change_text

OWN = {"time_to_first_token_s": 0.2, "time_per_output_token_s": 0.00867}


def said(**row: float) -> str:
    change = Change(
        changed={"tensor_parallel": (1, 2)}, row={**OWN, **row}, gain=0.5, fit_probability=0.95
    )
    return change_text("serve", change, OWN)


def test_what_is_shown_alike_is_no_change() -> None:
    assert "TPOT" not in said(time_per_output_token_s=0.008671)
    assert "TTFT" not in said(time_per_output_token_s=0.008671)


def test_what_is_shown_otherwise_is_one() -> None:
    assert "TPOT 8.69 ms instead of 8.67 ms" in said(time_per_output_token_s=0.00869)


@pytest.mark.parametrize(("other", "is_told"), [(0.008671, False), (0.00869, True)])
def test_another_plan_gains_what_is_seen(other: float, is_told: bool) -> None:
    name, nothing = "time_per_output_token_s", (math.nan, math.nan)
    term = PartDifference(name=name, first=0.00867, other=other, ends=(nothing, nothing))
    reason = SimpleNamespace(reason="", row={"peak_memory_gib": 1.0})
    found: Any = SimpleNamespace(
        settings={}, first=reason, other=reason, results=[term], times={}, memory=[], is_tie=False
    )
    assert ("instead of" in " ".join(against_lines(found))) == is_told
