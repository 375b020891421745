"""A fleet over a day: what comes beside what is served, and the GPUs that run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.decide.sizing.day import Day
from planner.decide.sizing.scaling import Spans
from planner.show.views.plots.picture import Picture, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANEL = 240
_MINUTES_UNTIL = 3.0
"""Hours up to which minutes go across."""


def draw_day(picture: Picture, title: str, day: Day) -> None:
    """Draw the load, what the clock and an autoscaler make of it, and their GPUs.

    Raises
    ------
    OutputError
        It cannot be written.
    """
    load, spare = day.load, 0.0 if day.with_spare is None else day.with_spare.spare
    asked, served = day.followed(spare)
    starts = np.array([one.start for one in load.periods])
    ends = np.array([*starts[1:], load.hours])
    rates = np.array([one.request_rate for one in load.periods])
    comes = Spans(starts=starts, ends=ends, values=rates)
    running = np.array([float(hour.num_gpus) for hour in day.hours])
    clock = Spans(starts=starts, ends=ends, values=running)
    scale, unit = (60.0, "min") if load.hours <= _MINUTES_UNTIL else (1.0, "h")
    with drawing(picture, height=2 * _PANEL) as canvas:
        canvas.title(title)
        (above,), (below,) = canvas.grid(2, 1, sharex=True)
        colors, theme = canvas.theme.series, canvas.theme
        words = f"an autoscaler with {100 * spare:g} % to spare: what it serves, its GPUs"
        _steps(above, served, scale, colors[1])
        drawn = {
            "requests that come": _steps(above, comes, scale, theme.muted, filled=True),
            "GPUs by the clock": _steps(below, clock, scale, colors[0]),
            words: _steps(below, asked, scale, colors[1]),
            "GPUs of the peak": below.axhline(
                day.peak.num_gpus, color=theme.muted, linestyle=(0, (4, 2))
            ),
        }
        above.set(ylabel="requests/s", ylim=(0, None))
        below.set(ylabel="GPUs", ylim=(0, 1.08 * day.peak.num_gpus), xlabel=f"time [{unit}]")
        below.set_xlim(0, scale * load.hours)
        canvas.legend([*drawn.values()], [*drawn])


def _steps(axes: Axes, spans: Spans, scale: float, color: str, *, filled: bool = False) -> Any:
    """Values that hold until the next."""
    edges = scale * np.array([*spans.starts, spans.ends[-1]])
    values: Sequence[float] = [*spans.values, spans.values[-1]]
    if filled:
        return axes.fill_between(edges, values, step="post", color=color, alpha=0.3, linewidth=0)
    (line,) = axes.step(edges, values, where="post", color=color, linewidth=1.4)
    return line
