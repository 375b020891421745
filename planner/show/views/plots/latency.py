"""How the times of requests spread: the share of them that a time is enough for."""

from __future__ import annotations

import numpy as np

from planner.errors import SearchSpaceError
from planner.optimize.source import Candidates
from planner.show.theme import axis_label
from planner.show.views.overview import question_title
from planner.show.views.plots.canvas import decades, drawing
from planner.show.views.plots.picture import Picture
from planner.show.views.serving_details import LATENCIES, latency_distribution
from planner.show.views.told import label
from planner.workloads.deployments import Deployments
from planner.workloads.plan import Plan

_MARKED = (50, 90, 99)
"""Percentiles that have a point."""


def draw_latencies(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw the distribution of each time of a request into a file.

    Raises
    ------
    SearchSpaceError
        The workload has no stream of requests, or a queue without an end.
    OutputError
        It cannot be written.
    """
    if not isinstance(candidates, Deployments):
        raise SearchSpaceError("--picture latency is of requests: --workload serve has them.")
    found = latency_distribution(candidates)
    curves = {
        name: np.array(found[f"{name}_s"], dtype=np.float64)
        for name in LATENCIES
        if None not in found[f"{name}_s"]
    }
    if not curves:
        raise SearchSpaceError("--picture latency: the queue of requests has no end.")
    percent = np.array(found["percent"])
    marked = np.isin(percent, _MARKED)
    with drawing(picture, height=min(max(0.5 * picture.width, 320), 620)) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        canvas.title(question_title(plan))
        lines = []
        for seconds, color in zip(curves.values(), canvas.theme.series, strict=False):
            lines += axes.plot(seconds, percent, color=color)
            axes.plot(seconds[marked], percent[marked], "o", markersize=5, color=color)
        canvas.legend(lines, [label(f"{name}_s") for name in curves])
        every = np.concatenate([*curves.values()])
        decades(axes.xaxis, every.max() / every.min())
        axes.set_xlabel(axis_label("time_s"))
        axes.set_ylabel("requests within it [%]")
        axes.set_ylim(0, 100)
