"""Pictures of rooflines, predicted runs, parts of time and memory, days and reuse."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.arrays import BoolArray, FloatArray, first
from planner.base.formatting import format_significant
from planner.base.records import record
from planner.base.units import GIB, TERA, ceil_div
from planner.confidence.intervals import LEVEL
from planner.decide.explain.step_breakdown import ExplainedStep, explain_steps
from planner.decide.sizing.autoscaling import ValueSpans
from planner.decide.sizing.daily_schedule import DailySchedule
from planner.errors import SearchSpaceError
from planner.optimize.result_columns import intervals
from planner.optimize.source import Candidates
from planner.show.presenters.format_results import memory_parts, short_plan
from planner.show.presenters.infeasible import question_title
from planner.show.presenters.plots.picture import Canvas, Picture, decades, drawing
from planner.show.presenters.workload_details import details_of
from planner.show.theme import (
    FAMILIES,
    MEMORY_ORDER,
    TIME_ORDER,
    Theme,
    axis_label,
    blend,
    in_order,
    part_colors,
    part_label,
    readable_on,
)
from planner.validation.accuracy import ComparedRun
from planner.workloads.make_plan import Plan
from planner.workloads.serving.results import Deployments
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 7
_MARKS = "osD^"
_SMALLEST, _LARGEST = 24.0, 320.0
"""Areas of points in square points: the longer a kernel takes, the larger."""


@record(kw_only=True)
class Kernel:
    """A kernel of a step: FLOPs, bytes and seconds of one run, and its total seconds in a step.

    ``flops`` is 0 for kernels that only move data. ``peak`` [FLOP/s] and ``bandwidth`` [byte/s] are
    those of the hardware.
    """

    step: str
    name: str
    flops: float
    num_bytes: float
    seconds: float
    in_step: float
    peak: float
    bandwidth: float

    @property
    def intensity(self) -> float:
        """FLOPs per byte."""
        return self.flops / self.num_bytes

    @property
    def rate(self) -> float:
        """Achieved FLOP/s."""
        return self.flops / self.seconds

    @property
    def of_roof(self) -> float:
        """The achieved share of the roofline at its intensity."""
        return self.rate / min(self.peak, self.intensity * self.bandwidth)


def draw_roofline(picture: Picture, plan: Plan, candidates: Candidates) -> None:
    """Draw the kernels of one configuration into a file.

    Raises SearchSpaceError if a flat efficiency is specified.
    Raises OutputError if the file cannot be written.
    """
    steps = explain_steps(plan, Evaluation(candidates=candidates))
    kernels = list(kernels_of(steps))
    computing = [kernel for kernel in kernels if kernel.flops > 0]
    if not computing:
        raise SearchSpaceError(
            "--picture roofline: the whole step reaches a specified share of the peak, so there "
            "are no kernels to draw: leave out --flops-efficiency."
        )
    height = min(max(0.5 * picture.width, 320), 640)
    with drawing(picture, height=height) as canvas:
        ((axes,),) = canvas.grid(1, 1)
        row = candidates.row
        canvas.title(
            f"How close are kernels to the peak? {question_title(plan)}: {short_plan(plan, row)}"
        )
        _draw_roof(canvas, axes, computing)
        note = _format_moving_share(kernels, steps)
        canvas.legend(*_draw_kernels(canvas, axes, computing, steps), note=note)
        axes.set(xlabel="FLOPs per byte of GPU memory", ylabel="TFLOP/s")


def kernels_of(steps: Sequence[ExplainedStep]) -> Iterator[Kernel]:
    """Yield the kernels of engine or training steps that move data.

    Exchanges and waits are left out, as they have no roofline.
    """
    for step in steps:
        for part in step.parts:
            for done in part.part.done:
                figures = done.work.figures
                if "memory_bandwidth" not in figures or not done.figure("num_bytes"):
                    continue
                flops = done.figure("flops") if "flops" in figures else 0.0
                yield Kernel(
                    step=step.name,
                    name=part.title,
                    flops=flops,
                    num_bytes=done.figure("num_bytes"),
                    seconds=done.once,
                    in_step=done.times * done.once,
                    peak=done.figure("peak_flops") if flops else np.inf,
                    bandwidth=done.figure("memory_bandwidth"),
                )


def _draw_roof(canvas: Canvas, axes: Axes, kernels: Sequence[Kernel]) -> None:
    """Draw the bandwidth as a slope, and each peak as a line with its number."""
    theme, bandwidth = canvas.theme, kernels[0].bandwidth
    x = np.array([kernel.intensity for kernel in kernels])
    y = np.array([kernel.rate for kernel in kernels]) / TERA
    peaks = sorted({kernel.peak for kernel in kernels})
    left = min(x.min() / 3, peaks[0] / bandwidth / 3)
    right = max(x.max() * 8, peaks[-1] / bandwidth * 8)  # leaves space for the labels
    low, high = y.min() / 3, peaks[-1] / TERA * 2.5
    slope = np.array([left, peaks[-1] / bandwidth])
    axes.plot(slope, slope * bandwidth / TERA, color=theme.muted, linewidth=1.6)
    for peak in peaks:
        axes.plot([peak / bandwidth, right], [peak / TERA] * 2, color=theme.muted, linewidth=1.6)
        peak_label = f"{peak / TERA:,.0f} TFLOP/s"
        axes.annotate(
            peak_label, (right, peak / TERA), (-4, 3), textcoords="offset points", ha="right"
        )
    decades(axes.xaxis, right / left)
    decades(axes.yaxis, high / low)
    axes.set(xlim=(left, right), ylim=(low, high))
    across = max(low * TERA / bandwidth, left) * 1.25
    axes.annotate(
        f"{bandwidth / TERA:.3g} TB/s",
        (across, across * bandwidth / TERA),
        (3, -12),
        textcoords="offset points",
    )


def _draw_kernels(
    canvas: Canvas, axes: Axes, kernels: Sequence[Kernel], steps: Sequence[ExplainedStep]
) -> tuple[list[Any], list[str]]:
    """Draw a point for each kernel; return legend handles and labels of the longest ones."""
    theme = canvas.theme
    seconds = {step.name: step.seconds for step in steps}
    marks = dict(zip(seconds, _MARKS, strict=False))
    sums: dict[tuple[str, str], float] = {}
    for kernel in kernels:
        key = (kernel.step, kernel.name)
        sums[key] = sums.get(key, 0.0) + kernel.in_step / seconds[kernel.step]
    largest = sorted(sums, key=lambda key: -sums[key])[:_MOST_NAMED]
    colors = {key: theme.series[index % len(theme.series)] for index, key in enumerate(largest)}
    longest = max(kernel.in_step / seconds[kernel.step] for kernel in kernels)
    for kernel in kernels:
        share = kernel.in_step / seconds[kernel.step] / longest
        axes.scatter(
            kernel.intensity,
            kernel.rate / TERA,
            s=_SMALLEST + share * (_LARGEST - _SMALLEST),
            marker=marks[kernel.step],
            color=colors.get((kernel.step, kernel.name), theme.muted),
            edgecolors=theme.background,
            linewidths=0.8,
            alpha=0.9,
            zorder=3,
        )
    handles, labels = [], []
    for key in largest:
        step, name = key
        matching = [kernel for kernel in kernels if (kernel.step, kernel.name) == key]
        reached = np.average([k.of_roof for k in matching], weights=[k.in_step for k in matching])
        handles.append(axes.scatter([], [], s=60, marker=marks[step], color=colors[key]))
        prefix = f"{step}: " if len(seconds) > 1 else ""
        share = 100 * sums[key]
        labels.append(
            f"{prefix}{name}, {share:.0f} % of the step, {100 * reached:.0f} % of its roof"
        )
    if len(sums) > len(largest):
        handles.append(axes.scatter([], [], s=40, color=theme.muted))
        labels.append(f"{len(sums) - len(largest)} others")
    return handles, labels


def _format_moving_share(kernels: Sequence[Kernel], steps: Sequence[ExplainedStep]) -> str:
    """Return a note on the share of each step that only moves data, exchanges or waits."""
    texts = []
    for step in steps:
        moving = [k for k in kernels if k.step == step.name and not k.flops]
        shown = sum(k.in_step for k in kernels if k.step == step.name and k.flops)
        share = sum(k.in_step for k in moving) / step.seconds
        rest = max(1 - share - shown / step.seconds, 0.0)
        texts.append(
            f"{step.name}: {100 * share:.0f} % only moves data, {100 * rest:.0f} % exchanges and "
            "waits"
        )
    return f"Not shown: {'; '.join(texts)}. Large points take longer."


_MOST_WHISKERS = 60
_BAND_BINS = 12
_RASTERIZED = 500
"""Number of points from which they are rasterized in an SVG file."""


@record(kw_only=True)
class MeasuredPairs:
    """Measured and predicted values of a quantity, and the ends of the predictions' intervals."""

    quantity: str
    measured: FloatArray
    predicted: FloatArray
    low: FloatArray
    high: FloatArray

    @property
    def inside(self) -> BoolArray:
        """Whether each measurement lies in its interval."""
        return np.asarray((self.low <= self.measured) & (self.measured <= self.high))

    @property
    def errors(self) -> FloatArray:
        """\\|predicted / measured - 1\\|."""
        return np.abs(self.predicted / self.measured - 1)


def compared_quantities(tables: Sequence[Sequence[ComparedRun]]) -> list[MeasuredPairs]:
    """Return each quantity that is both measured and predicted, with all its runs.

    Noisy rows and impossible layouts are left out.

    A row counts with its first measured of equivalent quantities.
    """
    quantities: dict[str, list[tuple[float, float, float, float]]] = {}
    for rows in tables:
        for row in rows:
            for quantity, values in _of_row(row):
                quantities.setdefault(quantity, []).append(values)
    return [
        MeasuredPairs(
            quantity=quantity,
            **dict(zip(("measured", "predicted", "low", "high"), np.array(v).T, strict=True)),
        )
        for quantity, v in quantities.items()
    ]


def _of_row(row: ComparedRun) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Yield each compared quantity of a run: measured, predicted, and its interval ends."""
    for compared in row.kind.compared:
        quantity = row.first_measured(compared.names)
        predicted = row.ranges.get(quantity or "")
        if quantity is None or predicted is None or not row.counts(compared):
            continue
        measured = row.measured[quantity]
        if measured > 0 and predicted.value > 0:
            yield quantity, (measured, predicted.value, predicted.low, predicted.high)


def draw_predicted(picture: Picture, title: str, tables: Sequence[Sequence[ComparedRun]]) -> None:
    """Draw predictions of measured runs into a file.

    Raises OutputError if the file cannot be written.
    """
    panels = compared_quantities(tables)
    num_columns = min(len(panels), max(picture.width // 330, 1))
    rows = ceil_div(len(panels), num_columns)
    with drawing(picture, height=rows * min(picture.width / num_columns + 30, 490)) as canvas:
        canvas.title(title)
        canvas.source = "the runs, each with its source in the table"
        grid = [axes for row in canvas.grid(rows, num_columns) for axes in row]
        for axes, panel in zip(grid, panels, strict=False):
            _draw_panel(canvas, axes, panel)
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        theme = canvas.theme
        marks = [(theme.series[0], "inside its interval"), (theme.bad, "outside")]
        handles = [grid[0].plot([], [], "o", markersize=5, color=color)[0] for color, _ in marks]
        band = grid[0].fill_between([], [], [], color=theme.series[0], alpha=0.22, linewidth=0)
        band_label = f"interval that {LEVEL:.0%} of runs lie in (of many runs its median)"
        canvas.legend([*handles, band], [*(label for _, label in marks), band_label])


def _draw_panel(canvas: Canvas, axes: Axes, panel: MeasuredPairs) -> None:
    """Draw predicted against measured values of a quantity, with intervals and diagonal."""
    theme, number = canvas.theme, len(panel.measured)
    all_values = np.concatenate([panel.measured, panel.predicted])
    low, high = all_values.min() / 1.25, all_values.max() * 1.25
    for axis in (axes.xaxis, axes.yaxis):
        decades(axis, high / low)
    axes.set(xlim=(low, high), ylim=(low, high))
    axes.plot([low, high], [low, high], color=theme.muted, linewidth=1.0)
    has_interval = np.isfinite(panel.low) & np.isfinite(panel.high) & (panel.low > 0)
    if number <= _MOST_WHISKERS:
        ends = np.abs(np.stack([panel.low, panel.high]) - panel.predicted)[:, has_interval]
        positions = panel.measured[has_interval], panel.predicted[has_interval]
        axes.errorbar(*positions, yerr=ends, fmt="none", ecolor=theme.muted, elinewidth=0.9)
    elif np.any(has_interval):
        axes.fill_between(
            *_band(panel, has_interval), color=theme.series[0], alpha=0.22, linewidth=0
        )
    inside = panel.inside
    size = 22.0 if number <= _MOST_WHISKERS else 5.0
    for mask, color in ((inside, theme.series[0]), (~inside, theme.bad)):
        axes.scatter(
            panel.measured[mask],
            panel.predicted[mask],
            s=size,
            color=color,
            alpha=1.0 if number <= _MOST_WHISKERS else 0.45,
            linewidths=0,
            rasterized=number > _RASTERIZED,
        )
    name = axis_label(panel.quantity)
    share = 100 * float(np.mean(inside[has_interval])) if np.any(has_interval) else float("nan")
    median = 100 * float(np.median(panel.errors))
    text = f"{number:,} runs, {share:.0f} % inside,\nmedian error {median:.1f} %"
    axes.set_title(f"{name}\n{text}", loc="left")
    axes.set(xlabel="measured", ylabel="predicted")
    axes.set_aspect("equal", adjustable="box")


def _band(
    panel: MeasuredPairs, has_interval: BoolArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the median interval of neighbouring predictions along the diagonal, as x and ends.

    A run with the measurement x is inside where the prediction is between x / high and x / low.
    """
    predicted = panel.predicted[has_interval]
    order = np.argsort(predicted)
    parts = np.array_split(order, min(_BAND_BINS, len(order)))
    low, high = panel.low[has_interval] / predicted, panel.high[has_interval] / predicted
    middle = np.array([np.median(predicted[part]) for part in parts])
    below = np.array([1 / np.median(high[part]) for part in parts])
    above = np.array([1 / np.median(low[part]) for part in parts])
    x = np.array([predicted.min(), *middle, predicted.max()])
    padded = [np.array([ends[0], *ends, ends[-1]]) for ends in (below, above)]
    return x, x * padded[0], x * padded[1]


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
        below.locator_params(axis="y", integer=True)
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
        amount_text = format_significant(amount)
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
    text = f"{bar.title}: {format_significant(bar.total)} {bar.unit}"
    if all(map(np.isfinite, bar.ends)):
        low, high = bar.ends
        axes.plot(bar.ends, (-0.45, -0.45), color=canvas.theme.recommended, linewidth=2.2)
        text += f", 90 % interval {format_significant(low)} to {format_significant(high)}"
    if np.isfinite(bar.bound):
        axes.axvline(bar.bound, color=canvas.theme.bad, linewidth=1.6, linestyle=(0, (4, 2)))
        text += f"; {format_significant(bar.bound)} {bar.unit} usable"
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
