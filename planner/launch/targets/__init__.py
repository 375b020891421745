"""The tools that plans are started with: a module for each, or for several that are alike."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from planner.errors import LaunchError, did_you_mean
from planner.launch import READ_ALONE, TARGETS
from planner.launch.target import Target

_TRAINERS = ("transformers", "deepspeed", "accelerate")


@cache
def targets() -> dict[str, Target]:
    """All targets by name, those that are read alone last."""
    names = (*TARGETS, *READ_ALONE)
    own = [name.replace("-", "_") for name in names if name not in _TRAINERS]
    found = {target.name: target for target in import_module(f"{__name__}.trainers").TARGETS}
    for module in own:
        target: Target = import_module(f"{__name__}.{module}").TARGET
        found[target.name] = target
    return {name: found[name] for name in names}


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
