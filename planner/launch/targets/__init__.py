"""Launch targets: a module for each tool that starts plans, or for several similar tools."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from planner.errors import LaunchError, did_you_mean
from planner.launch import READ_ONLY_TOOLS, TARGETS
from planner.launch.read.removed import refuse_removed_name
from planner.launch.target import LaunchTarget

_SHARED_MODULES = {**dict.fromkeys(("transformers", "deepspeed", "accelerate"), "hf_trainer")}
"""Modules shared by several tools."""


@cache
def targets() -> dict[str, LaunchTarget]:
    """Return the tools that launch files can be written for, by name."""
    all_targets = {name: _load_target(name) for name in TARGETS}
    # Some programs have read-only updates, but their whole steps can be written.
    steps = {name: all_targets[name].step for name in TARGETS if name in READ_ONLY_TOOLS}
    return {name: steps.get(name) or all_targets[name] for name in TARGETS}


@cache
def readers() -> dict[str, LaunchTarget]:
    """All programs by name whose files can be read: targets and read-only tools."""
    return {**targets(), **{name: _load_target(name) for name in READ_ONLY_TOOLS}}


def _load_target(name: str) -> LaunchTarget:
    module = import_module(f"{__name__}.{_SHARED_MODULES.get(name, name).replace('-', '_')}")
    module_targets: tuple[LaunchTarget, ...] = getattr(module, "TARGETS", None) or (module.TARGET,)
    return next(target for target in module_targets if target.name == name)


def target_of(name: str) -> LaunchTarget:
    """Return the launch target with this name or alias.

    Raises LaunchError if the name is unknown or was removed.
    """
    key = name.strip().lower().replace("_", "-").replace(" ", "-")
    for target in targets().values():
        if key == target.name or key in target.aliases:
            return target
    names = list(targets())
    refuse_removed_name(key, name, f"Choose one of: {', '.join(names)}.")
    raise LaunchError(
        f"{name} is not a launch target.{did_you_mean(key, names)} There are: {', '.join(names)}."
    )
