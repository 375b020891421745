"""What a request tells an engine, in its profile."""

from __future__ import annotations

from dataclasses import replace

from planner.request import Request
from planner.specs.engine import EngineProfile


def with_options(engine: EngineProfile, request: Request) -> EngineProfile:
    """The engine told how many sequences to run at once, and to capture no graphs of decoding."""
    if request.max_num_seqs is not None:
        engine = limited(engine, request.max_num_seqs)
    return eager(engine) if request.enforce_eager else engine


def limited(engine: EngineProfile, max_num_seqs: int) -> EngineProfile:
    """The engine with a number of sequences of its own, which it also samples at its start."""
    memory = engine.memory
    if memory.profiled_seqs:
        memory = replace(memory, profiled_seqs=max_num_seqs, profiled_seqs_small=0)
    scheduler = replace(engine.scheduler, max_num_seqs=max_num_seqs)
    return replace(engine, scheduler=scheduler, memory=memory)


def eager(engine: EngineProfile) -> EngineProfile:
    """The engine that launches decode steps as those of prompts."""
    e = engine.execution
    launched = max(e.decode_launch_time, e.prefill_launch_time)
    return replace(engine, execution=replace(e, decode_launch_time=launched))
