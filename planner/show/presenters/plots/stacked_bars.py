"""Stacked bars of the parts of time and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from planner.base import formatting
from planner.base.records import record
from planner.base.units import GIB, ceil_div
from planner.optimize.result_columns import intervals
from planner.optimize.source import Candidates
from planner.show.presenters.format_results import memory_parts, short_plan
from planner.show.presenters.plots.picture import Canvas, Picture, drawing
from planner.show.presenters.question_summary import question_title
from planner.show.presenters.workload_details import details_of
from planner.show.theme import (
    FAMILIES,
    MEMORY_ORDER,
    TIME_ORDER,
    Theme,
    blend,
    in_order,
    part_colors,
    part_label,
    readable_on,
)
from planner.workloads.make_plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BAR_HEIGHT = 64
_LINE = 19
_COLUMN = 250
"""Pixels of a column of a legend."""
_LEAST_NAMED = 0.001
_OF_MODULES = (0, 2, 3, 4, 5, 6)  # without the colour of exchanges
_MOST_LABELLED = 0.05
"""Share of a bar below which a part's number is in the legend only."""


@record(kw_only=True)
class Bar:
    """Parts that add up to a total, in a unit, with its interval ``ends`` and its ``bound``.

    ``bound`` is the usable memory. Without them ``ends`` are NaN and ``bound`` is infinite.
    """

    title: str
    unit: str
    parts: Mapping[str, float]
    ends: tuple[float, float] = (np.nan, np.nan)
    bound: float = np.inf

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return float(sum(self.parts.values()))


def draw_parts(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw the parts of time and memory of one configuration into a file.

    Raises OutputError if the file cannot be written.
    """
    bars = part_bars(plan, candidates)
    columns = min(max(picture.width // _COLUMN, 2), 4)
    lines = [ceil_div(len(bar.parts), columns) + 2 + picture.is_narrow for bar in bars]
    heights = [_BAR_HEIGHT + _LINE * number + 24 for number in lines]
    row = candidates.row
    with drawing(picture, height=sum(heights) + 20) as canvas:
        canvas.title(
            f"Where do time and memory go? {question_title(plan)}: {short_plan(plan, row)}"
        )
        grid = canvas.grid(len(bars), 1, height_ratios=heights)
        for bar, (axes,) in zip(bars, grid, strict=True):
            _draw_bar(canvas, axes, bar, columns)


def part_bars(plan: Plan, candidates: Candidates) -> list[Bar]:
    """Return a bar for each kind of step [ms or s] and one for memory [GiB], without zeros."""
    row = candidates.row
    column_intervals = intervals(row, candidates.source.confidence_of(row))
    bars = []
    for name, times in details_of(plan).times(candidates).items():
        scale, unit = (1.0, "s") if sum(times.values()) >= 1 else (1e3, "ms")
        low, high = (
            column_intervals.get("step_time_s", (np.nan, np.nan))
            if name == "step"
            else (np.nan,) * 2
        )
        time_parts = in_order((part for part in times if part in TIME_ORDER), TIME_ORDER)
        ordered = (*(part for part in times if part not in TIME_ORDER), *time_parts)
        shown = {part: scale * times[part] for part in ordered if times[part]}
        title = "Time of a step" if name == "step" else f"Time of a {name} step"
        bars.append(Bar(title=title, unit=unit, parts=shown, ends=(scale * low, scale * high)))
    capacity = candidates.source.inputs.machine.gpu.allocatable_memory / GIB
    by_phase = details_of(plan).memory(candidates) or {"": memory_parts(row)}
    for phase, memory in by_phase.items():
        shown = {part: memory[part] for part in in_order(memory, MEMORY_ORDER) if memory[part]}
        title = f"Memory of the fullest GPU{f', {phase}' if phase else ''}"
        nothing = (np.nan, np.nan)
        interval = nothing if phase else column_intervals.get("peak_memory_gib", nothing)
        bars.append(Bar(title=title, unit="GiB", parts=shown, ends=interval, bound=capacity))
    return bars


def _draw_bar(canvas: Canvas, axes: Axes, bar: Bar, columns: int) -> None:
    """Draw a stacked bar with its numbers, interval, bound and legend."""
    theme, colors = canvas.theme, _colors(bar.parts, canvas.theme)
    start, shown = 0.0, max(bar.total, *(end for end in (*bar.ends, 0.0) if np.isfinite(end)))
    if np.isfinite(bar.bound):
        shown = max(shown, bar.bound)
    handles, labels = [], []
    for part, amount in bar.parts.items():
        color = colors[part]
        (drawn,) = axes.barh(
            0,
            amount,
            left=start,
            color=color,
            height=0.62,
            edgecolor=theme.background,
            linewidth=1.0,
        )
        amount_text = formatting.format_significant(amount)
        if amount > _LEAST_NAMED * bar.total:
            handles.append(drawn)
            labels.append(f"{part_label(part)} {amount_text} ({100 * amount / bar.total:.0f} %)")
        if amount / shown > max(_MOST_LABELLED, (len(amount_text) + 1) / canvas.letters()):
            middle = start + amount / 2
            axes.text(middle, 0, amount_text, ha="center", va="center", color=readable_on(color))
        start += amount
    axes.set_title(canvas.wrap(_draw_bounds(canvas, axes, bar)), loc="left")
    axes.set(ylim=(-0.6, 0.42), xlim=(0, 1.02 * shown), yticks=[])
    axes.set_xlabel(bar.unit, loc="right", labelpad=1)
    axes.spines["left"].set_visible(False)
    axes.grid(visible=False, axis="y")
    axes.legend(
        handles,
        labels,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=canvas.below(axes, 3.2),
        ncols=columns,
        handlelength=1.2,
        columnspacing=1.2,
        borderaxespad=0.0,
    )


def _draw_bounds(canvas: Canvas, axes: Axes, bar: Bar) -> str:
    """Draw the 90 % interval and the bound, such as usable memory; return the bar's title."""
    text = f"{bar.title}: {formatting.format_significant(bar.total)} {bar.unit}"
    if all(map(np.isfinite, bar.ends)):
        low, high = bar.ends
        axes.plot(bar.ends, (-0.45, -0.45), color=canvas.theme.recommended, linewidth=2.2)
        text += (
            f", 90 % interval {formatting.format_significant(low)} to "
            f"{formatting.format_significant(high)}"
        )
    if np.isfinite(bar.bound):
        axes.axvline(bar.bound, color=canvas.theme.bad, linewidth=1.6, linestyle=(0, (4, 2)))
        text += f"; {formatting.format_significant(bar.bound)} {bar.unit} usable"
    return text


def _colors(parts: Iterable[str], theme: Theme) -> dict[str, str]:
    """Return the colour of each part by name; modules of a model get the series colours."""
    family_parts = {part for family in FAMILIES.values() for part in family}
    modules = [part for part in parts if part not in family_parts]
    return part_colors((part for part in parts if part in family_parts), theme) | {
        part: blend(
            theme.series[_OF_MODULES[number % len(_OF_MODULES)]],
            theme.background,
            0.5 * (number // len(_OF_MODULES)),
        )
        for number, part in enumerate(modules)
    }
