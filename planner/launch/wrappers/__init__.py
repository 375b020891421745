"""What starts a target's processes: a plain script, a batch scheduler, a cluster of containers."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from planner.errors import LaunchError, did_you_mean
from planner.launch.job import Job
from planner.launch.names import WRAPPERS
from planner.launch.target import Draft, File, Target


def wrapper_of(name: str) -> Callable[[Target, Job, Draft], tuple[File, ...]]:
    """What makes the files that start a draft.

    Raises
    ------
    LaunchError
        There is none of that name.
    """
    if name not in WRAPPERS:
        known = ", ".join(WRAPPERS)
        raise LaunchError(
            f"{name} starts nothing here.{did_you_mean(name, WRAPPERS)} There are: {known}."
        )
    wrapped: Callable[[Target, Job, Draft], tuple[File, ...]] = import_module(
        f"{__name__}.{name}"
    ).wrapped
    return wrapped
