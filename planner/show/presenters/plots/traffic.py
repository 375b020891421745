"""Pictures of traffic: a fleet over a day, and prefix-cache hit rates over cache size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.arrays import first
from planner.base.units import GIB
from planner.decide.sizing.autoscaling import ValueSpans
from planner.decide.sizing.daily_schedule import DailySchedule
from planner.errors import SearchSpaceError
from planner.optimize.source import Candidates
from planner.show.presenters.plots.picture import Picture, decades, drawing
from planner.show.presenters.question_summary import question_title
from planner.workloads.make_plan import Plan
from planner.workloads.serving.results import Deployments

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL = 240
_MINUTES_UNTIL = 3.0
"""Hours up to which the time axis is in minutes."""
_PLACES = "GPU", "host", "drives"
_POINTS, _AXIS_MARGIN_FACTOR = 200, 16.0


def draw_day(picture: Picture, title: str, day: DailySchedule) -> None:
    """Draw the load of a day, and the GPUs of a schedule and of an autoscaler.

    Raises OutputError if the file cannot be written.
    """
    load, spare = day.load, 0.0 if day.with_spare is None else day.with_spare.spare
    requested, served = day.autoscaler_counts(spare)
    starts = np.array([period.start for period in load.periods])
    ends = np.array([*starts[1:], load.hours])
    rates = np.array([period.request_rate for period in load.periods])
    arrivals = ValueSpans(starts=starts, ends=ends, values=rates)
    running = np.array([float(hour.num_gpus) for hour in day.hours])
    clock = ValueSpans(starts=starts, ends=ends, values=running)
    scale, unit = (60.0, "min") if load.hours <= _MINUTES_UNTIL else (1.0, "h")
    with drawing(picture, height=2 * _PANEL) as canvas:
        canvas.title(title)
        (above,), (below,) = canvas.grid(2, 1, sharex=True)
        colors, theme = canvas.theme.series, canvas.theme
        autoscaler_label = (
            f"an autoscaler with {100 * spare:g} % to spare: what it serves, its GPUs"
        )
        _steps(above, served, scale, colors[1])
        drawn = {
            "requests that come": _steps(above, arrivals, scale, theme.muted, filled=True),
            "GPUs by the clock": _steps(below, clock, scale, colors[0]),
            autoscaler_label: _steps(below, requested, scale, colors[1]),
            "GPUs of the peak": below.axhline(
                day.peak.num_gpus, color=theme.muted, linestyle=(0, (4, 2))
            ),
        }
        above.set(ylabel="requests/s", ylim=(0, None))
        below.set(ylabel="GPUs", ylim=(0, 1.08 * day.peak.num_gpus), xlabel=f"time [{unit}]")
        below.set_xlim(0, scale * load.hours)
        canvas.legend([*drawn.values()], [*drawn])


def _steps(axes: Axes, spans: ValueSpans, scale: float, color: str, *, filled: bool = False) -> Any:
    """Draw values as steps."""
    edges = scale * np.array([*spans.starts, spans.ends[-1]])
    values: Sequence[float] = [*spans.values, spans.values[-1]]
    if filled:
        return axes.fill_between(edges, values, step="post", color=color, alpha=0.3, linewidth=0)
    (line,) = axes.step(edges, values, where="post", color=color, linewidth=1.4)
    return line


def draw_reuse(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw the prefix-cache hit rate of the first plan over cache sizes into a file.

    Raises SearchSpaceError if the requests share no prompts.
    Raises OutputError if the file cannot be written.
    """
    if not isinstance(candidates, Deployments) or candidates.inputs.workload.reuse is None:
        raise SearchSpaceError(
            "--picture reuse is for requests that share prompts: give --turns, or a --trace that "
            "has hash_ids."
        )
    at_load = candidates.at_load
    sizes = [first(size) for size in at_load.cache_sizes]
    numbered = enumerate(zip(_PLACES, sizes, strict=True))
    sizes_by_place = {
        cache_level: size for n, (cache_level, size) in numbered if size not in sizes[:n]
    }
    curve_sizes = np.geomspace(
        max(sizes[0], GIB) / _AXIS_MARGIN_FACTOR, _AXIS_MARGIN_FACTOR * sizes[-1], _POINTS
    )
    caches = at_load.caches
    cache_aware = replace(caches, reuse=replace(caches.reuse, scatter=()))
    curves = {"a router that knows the caches": cache_aware}
    if caches.reuse.scatter and first(caches.number) > 1:
        curves = {"requests to any replica": caches, **curves}
    with drawing(picture, height=min(max(0.5 * picture.width, 320), 620)) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        canvas.title(f"How much do caches find? {question_title(plan)}")
        lines = []
        for curve, color in zip(curves.values(), canvas.theme.series, strict=False):
            shares = 100 * np.array([first(curve.hit_rate(size)) for size in curve_sizes])
            lines += axes.plot(curve_sizes / GIB, shares, color=color)
        first_curve = next(iter(curves.values()))
        marks = [
            axes.plot(
                size / GIB, 100 * first(first_curve.hit_rate(size)), mark, color=canvas.theme.text
            )[0]
            for (cache_level, size), mark in zip(sizes_by_place.items(), "osD", strict=False)
        ]
        names = [f"this plan, {cache_level}" for cache_level in sizes_by_place]
        canvas.legend([*lines, *marks], [*curves, *names])
        decades(axes.xaxis, curve_sizes[-1] / curve_sizes[0])
        axes.set_xlabel("cache per GPU [GiB]")
        axes.set_ylabel("prompts found [%]")
        axes.set_ylim(0, 100)
