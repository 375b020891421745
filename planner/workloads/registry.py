"""The workloads that can be planned, by name."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from planner.errors import SearchSpaceError, did_you_mean

if TYPE_CHECKING:
    from planner.workloads.workload import Workload

# Modules are imported on first use: a search of training imports no module of serving.
_SHIPPED = {
    "train": ("planner.workloads.training.workload", "TRAIN"),
    "inference": ("planner.workloads.serving.workload", "INFERENCE"),
    "serve": ("planner.workloads.serving.workload", "SERVE"),
    "rl": ("planner.workloads.rl.workload", "RL"),
}
_PURPOSES = {
    "train": "pre-training and fine-tuning",
    "inference": "static batches",
    "serve": "requests",
    "rl": "GRPO, PPO",
}
_REGISTERED: dict[str, Workload] = {}


def register(workload: Workload) -> None:
    """Register a workload under its name."""
    _REGISTERED[workload.name] = workload


def workload_names() -> tuple[str, ...]:
    """All names, in the order of help texts."""
    return (*_SHIPPED, *(name for name in _REGISTERED if name not in _SHIPPED))


def as_workload_name(name: str) -> str:
    """The name of a workload, checked.

    Raises SearchSpaceError if the name is unknown.
    """
    names = workload_names()
    if name not in names:
        purposes = {name: f" ({purpose})" for name, purpose in _PURPOSES.items()}
        choices = ", ".join(f"{choice}{purposes.get(choice, '')}" for choice in names)
        raise SearchSpaceError(
            f"Unknown workload {name!r}.{did_you_mean(name, names)} Known: {choices}."
        )
    return name


def workload_of(name: str) -> Workload:
    """The workload with this name.

    Raises SearchSpaceError if the name is unknown.
    """
    if as_workload_name(name) not in _REGISTERED:
        module, attribute = _SHIPPED[name]
        _REGISTERED[name] = getattr(import_module(module), attribute)
    return _REGISTERED[name]
