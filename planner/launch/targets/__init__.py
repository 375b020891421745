"""The tools that plans are started with, one module for each."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from planner.errors import LaunchError, did_you_mean
from planner.launch.names import TARGETS
from planner.launch.target import Target


@cache
def targets() -> dict[str, Target]:
    """All targets by name."""
    modules = (name.replace("-", "_") for name in TARGETS)
    found = (import_module(f"{__name__}.{module}").TARGET for module in modules)
    return {target.name: target for target in found}


def target_of(name: str) -> Target:
    """A target by its name or an alias.

    Raises
    ------
    LaunchError
        There is none of that name.
    """
    word = name.strip().lower().replace("_", "-").replace(" ", "-")
    for target in targets().values():
        if word == target.name or word in target.aliases:
            return target
    known = list(targets())
    raise LaunchError(
        f"{name} is no target of launch files.{did_you_mean(word, known)} There are: "
        f"{', '.join(known)}."
    )
