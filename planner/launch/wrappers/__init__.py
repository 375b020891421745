"""Wrappers start a target's processes: shell scripts, SLURM, Kubernetes, KServe."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from planner.errors import LaunchError, did_you_mean
from planner.launch import WRAPPERS
from planner.launch.read.removed import refuse_removed_name
from planner.launch.target import LaunchDraft, LaunchJob, LaunchOutputFile, LaunchTarget


def wrapper_of(
    name: str,
) -> Callable[[LaunchTarget, LaunchJob, LaunchDraft], tuple[LaunchOutputFile, ...]]:
    """Return the function of a wrapper that makes the files of a launch draft.

    Raises LaunchError if the name is unknown, or was removed.
    """
    if name not in WRAPPERS:
        names = ", ".join(WRAPPERS)
        refuse_removed_name(name, name, f"Choose one of: {names}.")
        raise LaunchError(
            f"{name} is not a known wrapper.{did_you_mean(name, WRAPPERS)} There are: {names}."
        )
    module, function = (
        ("kubernetes", "make_kserve_files") if name == "kserve" else (name, "make_files")
    )
    wrap: Callable[[LaunchTarget, LaunchJob, LaunchDraft], tuple[LaunchOutputFile, ...]] = getattr(
        import_module(f"{__name__}.write_{module}"), function
    )
    return wrap
