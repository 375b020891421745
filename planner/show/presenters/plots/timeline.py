"""A step over time as a picture or as a trace: the passes and the memory of each stage."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.atomic_write import write_atomically
from planner.base.formatting import format_duration, format_gib
from planner.base.units import GIB, ceil_div
from planner.base.version import __version__
from planner.errors import SearchSpaceError
from planner.estimators.timeline.pipeline_schedule import (
    BUBBLE,
    IDLE,
    MORE,
    STREAMS,
    Span,
    Timeline,
)
from planner.optimize.source import Candidates
from planner.question.names import CONTEXT_PARALLEL, EXPERT_PARALLEL, TENSOR_PARALLEL
from planner.show.presenters.format_results import short_plan
from planner.show.presenters.infeasible import question_title
from planner.show.presenters.plots.picture import Canvas, Picture, draw, drawing, read_width
from planner.show.presenters.row_tables import Manifest
from planner.show.presenters.workload_details import details_of
from planner.show.theme import DARK, LIGHT, Theme, blend, part_label, readable_on
from planner.workloads.make_plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_ROW, _LEAST_ROW, _MOST_ROWS_HEIGHT = 34, 7, 620
_MEMORY_HEIGHT, _HEAD, _LINE = 190, 76, 19
_SKIPPED = 0.06
"""Share of the width for the skipped middle."""
_RASTERIZED = 3000
"""Number of spans from which they are rasterized in an SVG file."""
_FINEST = 10
"""Mean width of a span in pixels below which spans have no edges."""
_MOST_LINES = 7
"""Maximum number of stages with a memory curve."""
_FAMILY = {
    "forward": ("compute", 0.0),
    "backward": ("compute", 0.45),
    "weights": ("compute", 0.7),
    "optimizer": ("compute", 0.25),
    "exchange": ("communication", 0.0),
    "transfer": ("moving", 0.0),
    "data_parallel": ("communication", 0.35),
    "pipeline": ("moving", 0.0),
    TENSOR_PARALLEL: ("communication", 0.0),
    CONTEXT_PARALLEL: ("communication", 0.6),
    EXPERT_PARALLEL: ("communication", 0.35),
    **dict.fromkeys(("generate", "reward"), ("moving", 0.0)),
    **dict.fromkeys(("old_logprob", "values"), ("compute", 0.25)),
    "reference": ("compute", 0.45),
    "update": ("compute", 0.0),
    "sync": ("communication", 0.0),
    "switch": ("communication", 0.35),
    "overhead": ("waiting", 0.0),
    "slow_nodes": ("waiting", 0.35),
    "untuned": ("waiting", 0.6),
    "front_end_wait": ("waiting", 0.0),
    "launch_wait": ("waiting", 0.35),
    "transfer_wait": ("waiting", 0.6),
}
_OF_MODULES = (0, 2, 3, 4, 5, 6)


class _Scale:
    """Maps seconds to x positions; skipped time is compressed."""

    def __init__(self, timeline: Timeline) -> None:
        """Map the time of a step to positions on the axis, with skipped time shortened."""
        skipped = [gap for gap in timeline.skipped if gap[1] > gap[0]]
        shown_time = timeline.makespan - sum(end - start for start, end in skipped)
        gap_width = _SKIPPED * shown_time
        self.points, self.places = [0.0], [0.0]
        for start, end in skipped:
            self._add_point(start, start - self.points[-1])
            self._add_point(end, min(gap_width, end - start))
        self._add_point(timeline.makespan, timeline.makespan - self.points[-1])

    def _add_point(self, time: float, width: float) -> None:
        self.points.append(time)
        self.places.append(self.places[-1] + width)

    def __call__(self, times: Any) -> FloatArray:
        """The x positions of times [s]."""
        return np.asarray(np.interp(times, self.points, self.places))

    @property
    def end(self) -> float:
        """The last x position."""
        return self.places[-1]


def draw_timelines(picture: Picture, title: str, timelines: Sequence[Timeline]) -> None:
    """Draw steps over time below each other into a file.

    Raises OutputError if the file cannot be written.
    """
    heights: list[float] = []
    for timeline in timelines:
        row = max(min(_ROW, _MOST_ROWS_HEIGHT / len(timeline.lanes)), _LEAST_ROW)
        heights += [row * len(timeline.lanes) + _HEAD]
        lines = ceil_div(min(len(timeline.lanes), _MOST_LINES) + 1, _memory_columns(picture))
        heights += [_MEMORY_HEIGHT + _LINE * lines] * _has_memory(timeline)
    with drawing(picture, height=sum(heights)) as canvas:
        canvas.title(title)
        grid = iter(canvas.grid(len(heights), 1, height_ratios=heights))
        colors = _colors(timelines, canvas.theme)
        marks: dict[str, object] = {}
        for timeline in timelines:
            (axes,) = next(grid)
            scale = _Scale(timeline)
            marks |= _draw_lanes(canvas, axes, timeline, scale, colors)
            if _has_memory(timeline):
                (below,) = next(grid)
                _draw_memory(canvas, below, timeline, scale)
        canvas.legend([*marks.values()], [*marks])


def _has_memory(timeline: Timeline) -> bool:
    """Whether memory changes over the step; constant memory is not drawn."""
    return any(len(series) > 1 for series in timeline.memory)


def _colors(timelines: Sequence[Timeline], theme: Theme) -> dict[str, str]:
    """Return the colour of each part by name; modules of a model get the series colours."""
    parts = dict.fromkeys(span.part for timeline in timelines for span in timeline.spans)
    colors = {MORE: theme.grid, BUBBLE: theme.background, IDLE: theme.background}
    modules = [part for part in parts if part not in _FAMILY and part not in colors]
    for part in parts:
        if part in _FAMILY:
            family, shade = _FAMILY[part]
            colors[part] = blend(theme.families[family], theme.background, shade)
    for number, part in enumerate(modules):
        color = theme.series[_OF_MODULES[number % len(_OF_MODULES)]]
        colors[part] = blend(color, theme.background, 0.45 * (number // len(_OF_MODULES) % 2))
    return colors


def _draw_lanes(
    canvas: Canvas, axes: Axes, timeline: Timeline, scale: _Scale, colors: Mapping[str, str]
) -> dict[str, Any]:
    """Draw each lane as a row of spans; return legend handles by label."""
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    rows, marks = len(timeline.lanes), {}
    is_fine = len(timeline.spans) > _RASTERIZED
    has_edges = len(timeline.spans) / rows < canvas.picture.width / _FINEST
    for part in dict.fromkeys(span.part for span in timeline.spans):
        spans = [span for span in timeline.spans if span.part == part]
        edge = canvas.theme.background if has_edges and part != BUBBLE else "none"
        edge = canvas.theme.grid if part == IDLE else edge
        boxes = PolyCollection(
            [_box(span, scale) for span in spans],
            facecolors=colors[part],
            edgecolors=edge,
            linewidths=0.5 if has_edges else 0.0,
            hatch="////" if part == IDLE else None,
            rasterized=is_fine,
            label=part,
        )
        axes.add_collection(boxes)
        if part not in (BUBBLE, MORE):
            marks[part_label(part)] = (
                Patch(facecolor=colors[part], edgecolor=edge, hatch="////", linewidth=0.5)
                if part == IDLE
                else axes.scatter([], [], marker="s", s=60, color=colors[part])
            )
    _write_names(canvas, axes, timeline, scale, colors)
    label_step = max(1, ceil_div(rows, 16))
    shown = [lane for lane in range(rows) if lane % label_step == 0]
    axes.set_yticks(shown, [timeline.lanes[lane] for lane in shown])
    axes.set(xlim=(0, scale.end), ylim=(rows - 0.5, -0.5))
    axes.grid(visible=False)
    axes.set_facecolor(canvas.theme.panel)
    _ticks(canvas, axes, timeline, scale)
    text = f"{timeline.title or 'step'}: {format_duration(timeline.makespan)}"
    if timeline.skipped:
        text += "; grey: repetitions, skipped"
    axes.set_title(canvas.wrap(text[:1].upper() + text[1:]), loc="left")
    return marks


def _box(span: Span, scale: _Scale) -> list[tuple[float, float]]:
    left, right = scale([span.start, span.end])
    top, bottom = span.lane - 0.42, span.lane + 0.42
    thin = bottom - 0.84 * span.left
    return [(left, top), (right, thin), (right, bottom), (left, bottom)]


def _write_names(
    canvas: Canvas, axes: Axes, timeline: Timeline, scale: _Scale, colors: Mapping[str, str]
) -> None:
    """Write names inside the spans that are wide enough."""
    per_letter = scale.end / (0.86 * canvas.letters())
    pixels = _ROW if len(timeline.lanes) * _ROW <= _MOST_ROWS_HEIGHT else 0
    if not pixels:
        return
    for span in timeline.spans:
        left, right = scale([span.start, span.end])
        name = span.name.partition(",")[0]
        if span.part in (BUBBLE, MORE, IDLE):
            continue
        if right - left > per_letter * (0.85 * len(name) + 0.6):
            # In a tapering span, at its thick end.
            across, down = (0.5, 0.0) if span.left == 1 else (0.25, 0.1)
            axes.text(
                left + across * (right - left),
                span.lane + down,
                name,
                ha="center",
                va="center_baseline",
                fontsize=0.85 * canvas.size,
                color=readable_on(colors[span.part]),
                clip_on=True,
            )


def _ticks(canvas: Canvas, axes: Axes, timeline: Timeline, scale: _Scale) -> None:
    """Set ticks at round times, none within skipped time."""
    from matplotlib.ticker import MaxNLocator

    unit, seconds = ("s", 1.0) if timeline.makespan >= 2 else ("ms", 1e-3)
    ticks: list[float] = []
    shown = [0.0, *(edge for gap in timeline.skipped for edge in gap), timeline.makespan]
    max_ticks = max(int(canvas.letters() / 12), 2)
    for start, end in zip(shown[::2], shown[1::2], strict=True):
        share = float(np.diff(scale([start, end]))[0]) / scale.end
        tick_values = MaxNLocator(max(int(share * max_ticks), 1)).tick_values(
            start / seconds, end / seconds
        )
        ticks += [float(tick) for tick in tick_values if start <= tick * seconds <= end]
    positions = scale([tick * seconds for tick in ticks])
    shown_ticks: list[int] = []
    for index in np.argsort(positions):
        if (
            not shown_ticks
            or positions[index] - positions[shown_ticks[-1]] >= scale.end / max_ticks
        ):
            shown_ticks.append(int(index))
    axes.set_xticks(positions[shown_ticks], [f"{ticks[index]:,.10g}" for index in shown_ticks])
    axes.set_xlabel(unit, loc="right", labelpad=1)


def _memory_columns(picture: Picture) -> int:
    """Columns of the legend of a panel of memory."""
    return max(picture.width // 320, 1)


def _draw_memory(canvas: Canvas, axes: Axes, timeline: Timeline, scale: _Scale) -> None:
    """Draw the memory over time of some pipeline stages, including the fullest one."""
    theme, marks = canvas.theme, dict[str, Any]()
    peaks = [max(amount for _, amount in series) for series in timeline.memory]
    fullest = int(np.argmax(peaks))
    for number, lane in enumerate(_spread_stages(len(peaks), fullest)):
        times, amounts = zip(*timeline.memory[lane], strict=True)
        positions = scale([*times, timeline.makespan])
        (line,) = axes.step(
            positions,
            [amount / GIB for amount in (*amounts, amounts[-1])],
            where="post",
            color=theme.series[number % len(theme.series)],
            linewidth=2.0 if lane == fullest else 1.2,
        )
        label = f"{timeline.lanes[lane]}, at most {format_gib(peaks[lane])}"
        marks[label] = line
    if timeline.capacity:
        marks["usable"] = axes.axhline(
            timeline.capacity / GIB, color=theme.bad, linewidth=1.4, linestyle=(0, (4, 2))
        )
    axes.set(xlim=(0, scale.end), ylim=(0, None), ylabel="memory [GiB]")
    _ticks(canvas, axes, timeline, scale)
    axes.legend(
        [*marks.values()],
        [*marks],
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=canvas.below(axes, 3.2),
        ncols=_memory_columns(canvas.picture),
        borderaxespad=0.0,
    )


def _spread_stages(number: int, fullest: int) -> list[int]:
    """Return evenly spread pipeline stages, including the first, last and fullest one."""
    if number <= _MOST_LINES:
        return list(range(number))
    spread = {round(stage) for stage in np.linspace(0, number - 1, _MOST_LINES // 2)}
    return sorted(spread | {fullest})


_MICRO = 1e6
_DIGITS = 4
"""Digits of microseconds and GiB."""
_MOST = 12_000
"""Number of spans from which the spans of a pass are merged."""


def write_trace(path: Path, timelines: Sequence[Timeline], metadata: Manifest) -> None:
    """Write timelines one after the other in the Trace Event Format [1]_.

    A lane is a process and a stream a thread of it; the memory of a lane is a counter. ``metadata``
    is added to the metadata of the file.
    Raises OutputError if the file cannot be written.

    References
    ----------
    .. [1] N. Duca and D. Sinclair, "Trace Event Format," Google, 2016.
    """
    with write_atomically(path) as stream:
        stream.write('{"displayTimeUnit":"ms","otherData":')
        stream.write(json.dumps({**metadata, "steps": [_step(timeline) for timeline in timelines]}))
        stream.write(',"traceEvents":[\n')
        lines = (json.dumps(event, separators=(",", ":")) for event in _events(timelines))
        for number, line in enumerate(lines):
            stream.write(line if number == 0 else ",\n" + line)
        stream.write("\n]}\n")


def _step(timeline: Timeline) -> dict[str, object]:
    """Return the metadata of a step: title, duration in s and peak memory in GiB."""
    return {
        "title": timeline.title or "step",
        "makespan_s": timeline.makespan,
        "peak_memory_gib": timeline.peak / GIB,
        "hand_over": timeline.hand_over,
    }


def _events(timelines: Sequence[Timeline]) -> Iterator[dict[str, object]]:
    """Yield the trace events of all timelines: names, spans, and memory of each lane."""
    process, begin = 0, 0.0
    for timeline in timelines:
        for lane, name in enumerate(timeline.lanes):
            lane_name = f"{timeline.title}, {name}" if timeline.title else name
            yield from _heads(process + lane, lane_name)
        for span in (
            _merge_passes(timeline.spans) if len(timeline.spans) > _MOST else timeline.spans
        ):
            yield _event(process, begin, span)
        for lane, series in enumerate(timeline.memory):
            yield from _levels(process + lane, begin, series)
        process += len(timeline.lanes)
        begin += timeline.makespan


def _merge_passes(spans: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans in which the exchanges and transfers of a pass are one span."""
    last: Span | None = None
    for span in spans:
        same = last is not None and (last.lane, last.name) == (span.lane, span.name)
        if last is not None and same and span.part not in (BUBBLE, MORE):
            within = {**(last.within or {last.part: last.duration}), span.part: span.duration}
            last = replace(last, duration=span.end - last.start, within=within)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last


def _levels(
    process: int, begin: float, series: Sequence[tuple[float, float]]
) -> Iterator[dict[str, object]]:
    """Yield trace events with the memory of a lane [GiB] at each time it changes."""
    previous = None
    for start, amount in series:
        level = round(amount / GIB, _DIGITS)
        if level != previous:
            counter = {"ph": "C", "pid": process, "ts": _micro(begin + start)}
            yield {"name": "memory", **counter, "args": {"GiB": level}}
        previous = level


def _heads(process: int, name: str) -> Iterator[dict[str, object]]:
    """Yield the trace events that name a process and each of its streams."""
    yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
    yield {"name": "process_sort_index", "ph": "M", "pid": process, "args": {"sort_index": process}}
    for thread, stream in enumerate(STREAMS):
        head = {"name": "thread_name", "ph": "M", "pid": process, "tid": thread}
        yield {**head, "args": {"name": stream}}


def _event(process: int, begin: float, span: Span) -> dict[str, object]:
    """Return the trace event of a span; a merged span lists its parts in ms."""
    event: dict[str, object] = {
        "name": span.name,
        "cat": span.part,
        "ph": "X",
        "pid": process + span.lane,
        "tid": STREAMS.index(span.stream),
        "ts": _micro(begin + span.start),
        "dur": _micro(span.duration),
    }
    if span.within:
        event["args"] = {f"{part}_ms": round(1e3 * s, 6) for part, s in span.within.items()}
    return event


def _micro(seconds: float) -> float:
    return round(seconds * _MICRO, _DIGITS)


def write_timeline(
    path: Path, plan: Plan, candidates: Candidates, *, dark: bool = False, width: str | None = None
) -> None:
    """Write the steps of one configuration over time.

    Raises SearchSpaceError if the configuration has no timeline.
    Raises OutputError if the file cannot be written.
    """
    timelines = details_of(plan).timelines(candidates)
    if not timelines:
        raise SearchSpaceError(
            "--timeline: the whole step reaches a specified share of the peak, so there is no "
            "timeline: leave out --flops-efficiency."
        )
    question = question_title(plan)
    plan_text = short_plan(plan, candidates.row)
    if path.suffix.lower() == ".json":
        write_trace(
            path, timelines, {"question": question, "plan": plan_text, "planner": __version__}
        )
        return
    theme = DARK if dark else LIGHT
    picture = Picture(path=path, name="timeline", theme=theme, width=read_width(width))
    draw(picture, f"When does each part of a step run? {question}: {plan_text}", timelines)
