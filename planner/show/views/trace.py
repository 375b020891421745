"""A step over time as a picture or as a Chrome trace, which Perfetto and other tools read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from planner.base.files import written_whole
from planner.base.units import GIB
from planner.base.version import __version__
from planner.errors import SearchSpaceError
from planner.estimators.timeline.placed import BUBBLE, MORE, STREAMS, Span, Timeline
from planner.optimize.source import Candidates
from planner.show.theme import DARK, LIGHT
from planner.show.views.details import details_of
from planner.show.views.overview import question_title
from planner.show.views.plots.picture import Picture, draw, read_width
from planner.show.views.told import short_plan
from planner.workloads.plan import Plan

_MICRO = 1e6
_DIGITS = 4
"""Of microseconds and GiB."""
_MOST = 12_000
"""Spans from which those of a pass are one."""


def write_trace(path: Path, timelines: Sequence[Timeline], about: Mapping[str, object]) -> None:
    """Write timelines one after the other in the Trace Event Format [1]_.

    A lane is a process and a stream a thread of it; the memory of a lane is a counter. ``about``
    is told among the metadata.

    Raises
    ------
    OutputError
        It cannot be written.

    References
    ----------
    .. [1] N. Duca and D. Sinclair, "Trace Event Format," Google, 2016.
    """
    with written_whole(path) as stream:
        stream.write('{"displayTimeUnit":"ms","otherData":')
        stream.write(json.dumps({**about, "steps": [_step(one) for one in timelines]}))
        stream.write(',"traceEvents":[\n')
        lines = (json.dumps(event, separators=(",", ":")) for event in _events(timelines))
        for number, line in enumerate(lines):
            stream.write(line if number == 0 else ",\n" + line)
        stream.write("\n]}\n")


def _step(timeline: Timeline) -> dict[str, object]:
    return {
        "title": timeline.title or "step",
        "makespan_s": timeline.makespan,
        "peak_memory_gib": timeline.peak / GIB,
        "hand_over": timeline.hand_over,
    }


def _events(timelines: Sequence[Timeline]) -> Iterator[dict[str, object]]:
    process, begin = 0, 0.0
    for timeline in timelines:
        for lane, name in enumerate(timeline.lanes):
            words = f"{timeline.title}, {name}" if timeline.title else name
            yield from _heads(process + lane, words)
        for span in _whole(timeline.spans) if len(timeline.spans) > _MOST else timeline.spans:
            yield _event(process, begin, span)
        for lane, series in enumerate(timeline.memory):
            yield from _levels(process + lane, begin, series)
        process += len(timeline.lanes)
        begin += timeline.makespan


def _whole(spans: Sequence[Span]) -> Iterator[Span]:
    """Passes with what they exchange and send in one span each: of deep pipelines they are many."""
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
    """The memory of a lane wherever it changes, in GiB."""
    before = None
    for start, amount in series:
        level = round(amount / GIB, _DIGITS)
        if level != before:
            place = {"ph": "C", "pid": process, "ts": _micro(begin + start)}
            yield {"name": "memory", **place, "args": {"GiB": level}}
        before = level


def _heads(process: int, name: str) -> Iterator[dict[str, object]]:
    yield {"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}}
    yield {"name": "process_sort_index", "ph": "M", "pid": process, "args": {"sort_index": process}}
    for thread, stream in enumerate(STREAMS):
        head = {"name": "thread_name", "ph": "M", "pid": process, "tid": thread}
        yield {**head, "args": {"name": stream}}


def _event(process: int, begin: float, span: Span) -> dict[str, object]:
    """A complete event; where parts are summed up in it, with their milliseconds."""
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

    Raises
    ------
    SearchSpaceError
        Nothing tells what its steps do when.
    OutputError
        The file cannot be written.
    """
    found = details_of(plan).timelines(candidates)
    if not found:
        raise SearchSpaceError(
            "--timeline: the whole step reaches a given share of the peak, so there is no "
            "timeline: leave out --flops-efficiency."
        )
    question = question_title(plan)
    words = short_plan(plan, candidates.row)
    if path.suffix.lower() == ".json":
        write_trace(path, found, {"question": question, "plan": words, "planner": __version__})
        return
    theme = DARK if dark else LIGHT
    picture = Picture(path=path, name="timeline", theme=theme, width=read_width(width))
    draw(picture, f"{question}: {words}", found)
