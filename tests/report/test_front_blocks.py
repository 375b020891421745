"""The front as blocks: every plan has a cell, at any width, plain where it is piped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planner
from planner.show.presenters.pareto_front import FrontPoints, Points, block_lines, points_blocks
from planner.show.presenters.search import search_report
from planner.show.terminal import terminal_text


def _points(column: str, values: list[float]) -> Points:
    return Points(column=column, values=np.array(values), ends=np.full((2, len(values)), np.nan))


def _front(x: list[float], y: list[float], ties: list[bool], own: tuple[float, float]) -> Any:
    first, second = "step_time_s", "peak_memory_gib"
    return FrontPoints(
        first=_points(first, x),
        second=_points(second, y),
        ties=ties,
        recommended=(_points(first, [own[0]]), _points(second, [own[1]])),
        texts=("", "", ""),
    )


def test_marks_stand_where_the_values_are() -> None:
    found = _front([1.0, 2.0, 3.0], [50.0, 40.0, 30.0], [False, True, False], (2.0, 50.0))
    assert block_lines(found, 22) == [
        "50.0 GiB |o    <",
        "         |",
        "         |",
        "         |     ~",
        "         |",
        "30.0 GiB |          o",
        "         +-----------",
        "          1.00 s 3.00 s",
    ]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_lines_fit(width: int) -> None:
    found = planner.search(model="llama-7b", gpu="h100", num_gpus=16, space="small")
    lines = terminal_text(points_blocks(search_report(found.plan, found)), width).splitlines()
    assert len(lines) <= 16
    assert all(line.isascii() for line in lines)
    assert max(map(len, lines)) <= max(width, 26)
    assert sum(line.count("<") for line in lines) == 2  # the plan, and what it means


def test_a_front_of_one_plan_has_no_blocks() -> None:
    found = planner.search(
        model="llama-7b", gpu="h100", num_gpus=16, space="small", objectives="throughput"
    )
    assert terminal_text(points_blocks(search_report(found.plan, found)), 80) == ""


def test_values_that_are_all_the_same_are_shown() -> None:
    lines = block_lines(_front([1.0, 1.0], [5.0, 5.0], [False, True], (1.0, 5.0)), 60)
    assert sum(line.count("<") for line in lines) == 1


def test_a_cell_shows_a_tie_before_another_plan() -> None:
    found = _front([1.0, 1.0, 3.0], [50.0, 50.0, 30.0], [True, False, False], (3.0, 50.0))
    assert block_lines(found, 22)[0] == "50.0 GiB |~         <"
