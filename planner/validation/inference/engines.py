"""The engine of a run: its profile with what the run says of its scheduler and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.specs.engine import EngineProfile
from planner.specs.quantization import FORMATS
from planner.validation.columns import SCHEDULED
from planner.validation.inference.deployments import Deployment
from planner.validation.models import NotPredicted, first_line
from planner.validation.runs import Run


def scheduled(engine: EngineProfile, run: Run) -> EngineProfile:
    """The engine with what a run says of its scheduler."""
    names = ("poll_interval", "batch_wait", *SCHEDULED)
    given: dict[str, Any] = {name: int(run.number(name) or 0) for name in names if run.text(name)}
    if not given:
        return engine
    try:
        return replace(engine, scheduler=replace(engine.scheduler, **given))
    except ValueError as error:
        raise NotPredicted(f"impossible scheduler: {first_line(error)}") from error


def eager(engine: EngineProfile, run: Run) -> EngineProfile:
    """The engine as it launches steps without captured graphs."""
    execution = engine.execution
    if not run.flag("enforce_eager"):
        return engine
    launched = max(execution.decode_launch_time, execution.prefill_launch_time)
    return replace(engine, execution=replace(execution, decode_launch_time=launched))


def weight_scale(run: Run, replica: Deployment) -> float:
    """Bytes of the weights over those of the format, where a run gives the bits."""
    bits = run.number("bits_per_weight")
    if not bits:
        return 1.0
    return min(max(bits / 8 / FORMATS[replica.quantization].weight, 0.1), 4.0)


def slower(engine: EngineProfile, scale: float) -> EngineProfile:
    """The engine reading weights that are larger than those of the format by ``scale``."""
    if scale == 1.0:
        return engine
    fraction = min(engine.execution.weight_bandwidth_fraction / scale, 2.0)
    return replace(engine, execution=replace(engine.execution, weight_bandwidth_fraction=fraction))
