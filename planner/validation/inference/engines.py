"""The engine of a run: its profile with what the run says of its scheduler and weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.specs.engine import EngineProfile
from planner.specs.quantization import FORMATS
from planner.validation.columns import SCHEDULED
from planner.validation.inference.deployments import Deployment
from planner.validation.models import NotPredicted
from planner.validation.runs import Run
from planner.workloads.engine_options import eager, limited


def scheduled(engine: EngineProfile, run: Run) -> EngineProfile:
    """The engine with what a run says of its scheduler and of its graphs."""
    names = ("poll_interval", "batch_wait", *SCHEDULED)
    given: dict[str, Any] = {name: int(run.number(name) or 0) for name in names if run.text(name)}
    if run.flag("enforce_eager"):
        engine = eager(engine)
    try:
        if "max_num_seqs" in given:
            engine = limited(engine, given["max_num_seqs"])
        return replace(engine, scheduler=replace(engine.scheduler, **given)) if given else engine
    except ValueError as error:
        raise NotPredicted(f"impossible scheduler: {error}") from error


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
