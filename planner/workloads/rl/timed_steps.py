"""The parts of a reinforcement learning step with their times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from planner.base.arrays import first
from planner.estimators.inference.continuous_batching import decode_batch
from planner.estimators.inference.engine_step import step_time
from planner.estimators.rl.rl_step import TRAINER_PHASES
from planner.optimize.source import Candidates
from planner.workloads.rl.results import RlRuns
from planner.workloads.serving.timed_steps import timed_inference
from planner.workloads.timed_steps import ALL_MODULES, TimedPart, TimedStep
from planner.workloads.training.timed_steps import timed_training


def rl_steps(candidates: Candidates) -> Mapping[str, TimedStep]:
    """The timed RL step by phase, and the optimizer and decode steps in it; else empty."""
    if not isinstance(candidates, RlRuns):
        return {}
    step, total = candidates.step, first(candidates.step_time)
    kinds = {"generate": "decode", **dict.fromkeys(TRAINER_PHASES, "training")}
    parts = [
        TimedPart.of(name, ALL_MODULES, {name: seconds}, (), part=name, like=kinds.get(name, ""))
        for name, seconds in step.shown_times().items()
    ]
    serving, engine = step.inputs.serving, step.rollout.configurations
    decode = step_time(serving, engine, decode_batch(serving, engine.concurrency), decoding=True)
    return {
        "step": TimedStep(seconds=total, parts=tuple(parts)),
        "training": timed_training(step.trainer.time, "training"),
        "decode": replace(timed_inference(decode), software=serving.engine.name),
    }
