"""The share of prompts that is found over the size of a GPU's cache, and that of its host."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.arrays import first
from planner.base.units import GIB
from planner.errors import SearchSpaceError
from planner.optimize.source import Candidates
from planner.show.views.overview import question_title
from planner.show.views.plots.picture import Picture, decades, drawing
from planner.workloads.deployments import Deployments
from planner.workloads.plan import Plan

_PLACES = "GPU", "host", "drives"
_POINTS, _BESIDE = 200, 16.0


def draw_reuse(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw what the first plan finds with caches of any size, and at its own, into a file.

    Raises
    ------
    SearchSpaceError
        Nothing says what its requests share.
    OutputError
        It cannot be written.
    """
    if not isinstance(candidates, Deployments) or candidates.setting.workload.reuse is None:
        raise SearchSpaceError(
            "--picture reuse is for requests that share prompts: give --turns, or a --trace that "
            "has hash_ids."
        )
    found = candidates.at_load
    sizes = [first(size) for size in found.cache_sizes]
    named = enumerate(zip(_PLACES, sizes, strict=True))
    own = {place: size for n, (place, size) in named if size not in sizes[:n]}
    every = np.geomspace(max(sizes[0], GIB) / _BESIDE, _BESIDE * sizes[-1], _POINTS)
    caches = found.caches
    knowing = replace(caches, reuse=replace(caches.reuse, scatter=()))
    curves = {"a router that knows the caches": knowing}
    if caches.reuse.scatter and first(caches.number) > 1:
        curves = {"requests to any replica": caches, **curves}
    with drawing(picture, height=min(max(0.5 * picture.width, 320), 620)) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        canvas.title(question_title(plan))
        lines = []
        for each, color in zip(curves.values(), canvas.theme.series, strict=False):
            shares = 100 * np.array([first(each.hit_rate(size)) for size in every])
            lines += axes.plot(every / GIB, shares, color=color)
        mine = next(iter(curves.values()))
        marks = [
            axes.plot(size / GIB, 100 * first(mine.hit_rate(size)), mark, color=canvas.theme.text)[
                0
            ]
            for (place, size), mark in zip(own.items(), "osD", strict=False)
        ]
        names = [f"this plan, {place}" for place in own]
        canvas.legend([*lines, *marks], [*curves, *names])
        decades(axes.xaxis, every[-1] / every[0])
        axes.set_xlabel("cache beside each GPU [GiB]")
        axes.set_ylabel("prompts found [%]")
        axes.set_ylim(0, 100)
