"""Chrome traces: valid, in flat time, with the sums of the timeline."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.estimators.timeline.pipeline_schedule import STREAMS
from planner.show.presenters.plots.timeline import write_trace
from planner.show.presenters.workload_details import details_of


def _written(path: Path, **asked: Any) -> tuple[Any, dict[str, Any]]:
    found = planner.estimate(**asked)
    timelines = details_of(found.plan).timelines(found.candidates)
    write_trace(path, timelines, {"question": 'a "question"'})
    return timelines, json.loads(path.read_text(encoding="utf-8"))


TRAIN = {
    "model": "llama-65b",
    "num_gpus": 256,
    "global_batch_size": 512,
    "settings": {"tensor_parallel": 4, "pipeline_parallel": 8},
}


def _check(timelines: Any, trace: dict[str, Any]) -> None:
    events = trace["traceEvents"]
    assert {event["ph"] for event in events} <= {"M", "X", "C"}
    lanes = [lane for timeline in timelines for lane in timeline.lanes]
    names = [e["args"]["name"] for e in events if e["name"] == "process_name"]
    assert [name.rpartition(", ")[2] for name in names] == lanes
    busy: dict[int, float] = defaultdict(float)
    by_row: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["tid"] < len(STREAMS)
            busy[event["pid"]] += event["dur"]
            by_row[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    steps = [step["makespan_s"] for step in trace["otherData"]["steps"]]
    whole = [s for s, timeline in zip(steps, timelines, strict=True) for _ in timeline.lanes]
    assert [busy[process] / 1e6 for process in range(len(lanes))] == pytest.approx(whole, rel=1e-5)
    for spans in by_row.values():
        last = 0.0
        for start, end in sorted(spans):
            assert start >= last - 2e-3
            last = end


def test_a_trace_of_training_has_every_stage_stream_and_second(tmp_path: Path) -> None:
    timelines, trace = _written(tmp_path / "step.json", **TRAIN)
    _check(timelines, trace)
    (timeline,) = timelines
    levels = [e["args"]["GiB"] for e in trace["traceEvents"] if e["ph"] == "C"]
    assert max(levels) == pytest.approx(timeline.peak / 2**30, abs=1e-4)
    assert trace["otherData"]["question"] == 'a "question"'
    categories = {e["cat"] for e in trace["traceEvents"] if e["ph"] == "X"}
    assert {"forward", "backward", "exchange", "transfer", "pipeline_bubble"} <= categories


def test_steps_of_inference_stand_one_after_the_other(tmp_path: Path) -> None:
    timelines, trace = _written(
        tmp_path / "steps.json", workload="inference", model="llama-3.1-8b", gpu="h100",
        num_gpus=1, input_tokens=512, output_tokens=128, settings={"concurrency": 16},
    )  # fmt: skip
    _check(timelines, trace)
    assert [step["title"] for step in trace["otherData"]["steps"]] == [
        "prefill step",
        "decode step",
    ]
    second = [e["ts"] for e in trace["traceEvents"] if e["ph"] == "X" and e["pid"] == 1]
    assert min(second) == pytest.approx(timelines[0].makespan * 1e6, abs=1e-3)


@pytest.mark.slow
def test_of_deep_pipelines_the_file_is_small(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    asked = {**TRAIN, "num_gpus": 2048, "global_batch_size": 4096}
    asked["settings"] = {"tensor_parallel": 4, "pipeline_parallel": 64}
    timelines, trace = _written(path, **asked)
    _check(timelines, trace)
    assert path.stat().st_size < 4e6
    passes = [e for e in trace["traceEvents"] if e.get("cat") == "forward"]
    within = passes[0]["args"]
    assert sum(within.values()) == pytest.approx(passes[0]["dur"] / 1e3, rel=1e-4)
