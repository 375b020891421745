"""Timelines end when the estimate says, lane by lane and part by part; so does their memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import planner
from planner.estimators.timeline.pipeline_schedule import BUBBLE, MORE, Timeline
from planner.estimators.timeline.step_timelines import ONCE, training_timeline
from planner.estimators.training.training_estimate import evaluate
from planner.show.presenters.workload_details import details_of

LLAMA = {"model": "llama-65b", "global_batch_size": 256}
LAYOUTS: dict[str, dict[str, Any]] = {
    "one GPU after another": {"num_gpus": 128, "tensor_parallel": 8, "pipeline_parallel": 16},
    "no pipeline": {"num_gpus": 64, "tensor_parallel": 8},
    "uneven": {"num_gpus": 96, "tensor_parallel": 8, "pipeline_parallel": 6},
    "interleaved": {
        "num_gpus": 64, "tensor_parallel": 4, "pipeline_parallel": 8, "virtual_pipeline": 5,
    },
    "two micro-batches": {
        "num_gpus": 2048, "tensor_parallel": 4, "pipeline_parallel": 4, "virtual_pipeline": 4,
    },
    "zero bubble": {
        "num_gpus": 64, "tensor_parallel": 8, "pipeline_parallel": 8,
        "pipeline_schedule": "zero_bubble",
    },
    "dualpipe": {
        "num_gpus": 128, "tensor_parallel": 4, "pipeline_parallel": 8,
        "pipeline_schedule": "dualpipe",
    },
}  # fmt: skip


OTHERS: dict[str, dict[str, Any]] = {
    "loaded whole": {
        "model": "llama-2-7b", "gpu": "a100", "num_gpus": 4, "framework": "litgpt",
        "global_batch_size": 4, "settings": {"zero_stage": 3},
    },
    "updated at the end": {
        "model": "llama-2-13b", "gpu": "h100", "num_gpus": 8, "framework": "torchtitan",
        "global_batch_size": 16, "settings": {"zero_stage": 3},
    },
    "adapters": {
        "model": "llama-2-7b", "gpu": "rtx4090", "num_gpus": 1, "adapter": "qlora",
        "global_batch_size": 16, "sequence_length": 1024,
    },
    "experts": {
        "model": "mixtral-8x7b", "gpu": "h100", "num_gpus": 64, "global_batch_size": 256,
        "settings": {"expert_parallel": 8, "pipeline_parallel": 4, "recompute": "full"},
    },
    "further predictions": {
        "model": "deepseek-v3", "gpu": "h800", "num_gpus": 256, "global_batch_size": 512,
        "settings": {"expert_parallel": 16, "pipeline_parallel": 16},
    },
}  # fmt: skip


def _estimate(layout: dict[str, Any]) -> Any:
    settings = {name: value for name, value in layout.items() if name != "num_gpus"}
    found = planner.estimate(**LLAMA, num_gpus=layout["num_gpus"], settings=settings)
    return found.estimate


@pytest.fixture(
    scope="module", params=[*LAYOUTS.values(), *OTHERS.values()], ids=[*LAYOUTS, *OTHERS]
)
def drawn(request: pytest.FixtureRequest) -> tuple[Any, Timeline]:
    asked = request.param
    estimate = planner.estimate(**asked).estimate if "model" in asked else _estimate(asked)
    return estimate, training_timeline(estimate)


def _one(values: Any) -> float:
    return float(np.ravel(values)[0])


def test_the_makespan_is_the_step_time(drawn: tuple[Any, Timeline]) -> None:
    estimate, timeline = drawn
    assert timeline.makespan == _one(estimate.step_time)
    ends = [max(s.end for s in timeline.of_lane(lane)) for lane in range(len(timeline.lanes))]
    assert ends == pytest.approx([timeline.makespan] * len(ends), rel=1e-12)


def test_the_seconds_of_every_stage_add_up_and_never_overlap(drawn: tuple[Any, Timeline]) -> None:
    _, timeline = drawn
    for lane in range(len(timeline.lanes)):
        assert sum(timeline.seconds(lane).values()) == pytest.approx(timeline.makespan, rel=1e-12)
        now = 0.0
        for span in timeline.of_lane(lane):
            assert span.duration > 0
            assert span.start == pytest.approx(now, abs=1e-9 * timeline.makespan)
            now = span.end


def test_parts_are_those_of_the_estimate(drawn: tuple[Any, Timeline]) -> None:
    """On the slowest stage; of both directions of DualPipe a stage has the mean of two."""
    estimate, timeline = drawn
    parts = {name: _one(value) for name, value in estimate.time.parts().items()}
    lanes = [timeline.seconds(lane) for lane in range(len(timeline.lanes))]
    for name in ONCE:
        for lane in lanes:
            assert lane.get(name, 0.0) == pytest.approx(parts[name], rel=1e-9)
    if estimate.configurations.from_both_ends.any():
        return
    slowest = min(lanes, key=lambda lane: lane.get(BUBBLE, 0.0))
    assert slowest.get(BUBBLE, 0.0) == pytest.approx(
        parts["pipeline_bubble"], abs=1e-9 * timeline.makespan
    )
    assert slowest.get("transfer", 0.0) == pytest.approx(parts["pipeline_transfer"], rel=1e-9)
    exchanged = ("tensor_parallel", "context_parallel", "expert_parallel", "weight_gather")
    assert slowest.get("exchange", 0.0) == pytest.approx(
        sum(parts[name] for name in (*exchanged, "offload")), rel=1e-9
    )
    passes = ("forward", "backward", "weights")
    assert sum(slowest.get(name, 0.0) for name in passes) == pytest.approx(
        sum(parts[name] for name in ("forward", "backward", "recompute", "launch_wait")), rel=1e-9
    )


def test_the_fullest_moment_is_the_predicted_peak(drawn: tuple[Any, Timeline]) -> None:
    estimate, timeline = drawn
    most = max(amount for series in timeline.memory for _, amount in series)
    assert most == timeline.peak
    assert most == pytest.approx(_one(estimate.peak_memory), rel=1e-12)
    every = evaluate(estimate.inputs, estimate.configurations, every_stage=True)
    for series, total in zip(timeline.memory, every.memory.totals, strict=True):
        assert max(amount for _, amount in series) == pytest.approx(_one(total), rel=1e-12)
        assert [start for start, _ in series] == sorted(start for start, _ in series)


def test_all_stages_predict_the_same(drawn: tuple[Any, Timeline]) -> None:
    estimate, timeline = drawn
    every = evaluate(estimate.inputs, estimate.configurations, every_stage=True)
    assert _one(every.step_time) == _one(estimate.step_time)
    assert _one(every.peak_memory) == _one(estimate.peak_memory)
    assert len(every.memory.totals) == len(timeline.lanes)


def test_a_pass_is_handed_over_when_it_ends_where_stages_are_equal() -> None:
    layout = {"num_gpus": 64, "tensor_parallel": 8, "pipeline_parallel": 4}
    estimate = _estimate(layout)
    assert training_timeline(estimate).hand_over == pytest.approx(1.0, abs=0.02)


def test_of_deep_pipelines_the_middle_is_left_out() -> None:
    found = planner.estimate(
        model="llama-65b", num_gpus=2048, global_batch_size=4096,
        settings={"tensor_parallel": 4, "pipeline_parallel": 64},
    )  # fmt: skip
    timeline = training_timeline(found.estimate)
    assert len(timeline.lanes) == 64
    more = [span for span in timeline.spans if span.part == MORE]
    assert len(more) == 64
    assert {span.name for span in more} == {"445 micro-batches more"}
    assert len(timeline.spans) < 40_000
    names = {span.name for span in timeline.spans}
    assert {"F1", "B1", "F512", "B512"} <= names
    assert "F300" not in names
    ((start, end),) = timeline.skipped
    for lane in range(64):
        inside = [
            s for s in timeline.of_lane(lane) if s.start < end - 1e-9 and s.end > start + 1e-9
        ]
        assert [span.part for span in inside] == [MORE]


@pytest.mark.parametrize(
    "asked",
    [
        {"workload": "serve", "model": "llama-3.1-70b", "gpu": "h200", "num_gpus": 8,
         "settings": {"tensor_parallel": 4, "concurrency": 64}},
        {"workload": "inference", "model": "llama-3.1-8b", "gpu": "h100", "num_gpus": 1,
         "input_tokens": 512, "output_tokens": 128, "settings": {"concurrency": 16}},
        {"workload": "serve", "model": "deepseek-v3", "gpu": "h200", "num_gpus": 8,
         "settings": {"tensor_parallel": 8, "concurrency": 64}},
    ],
    ids=["serve", "inference", "experts"],
)  # fmt: skip
def test_a_step_of_serving_is_its_operators_one_after_the_other(asked: dict[str, Any]) -> None:
    found = planner.estimate(**asked)
    details = details_of(found.plan)
    times = details.times(found.candidates)
    timelines = details.timelines(found.candidates)
    assert len(timelines) == len(times)
    for timeline, (name, parts) in zip(timelines, times.items(), strict=True):
        assert timeline.title == f"{name} step"
        assert timeline.makespan == pytest.approx(sum(parts.values()), rel=1e-12)
        seconds = timeline.seconds(0)
        for part, value in parts.items():
            assert seconds.get(part, 0.0) == pytest.approx(value, rel=1e-9, abs=1e-15)
        assert timeline.peak == pytest.approx(found.to_frame().peak_memory_gib[0] * 2**30)
        names = [span.name for span in timeline.of_lane(0)]
        assert any("layers more" in name for name in names)
        assert names[0].startswith("embedding")
