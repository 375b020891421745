"""From a search space and the user's settings to the mesh of all candidates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from planner.configurations.enumerate import Mesh
from planner.configurations.training import NAMES
from planner.errors import SearchSpaceError
from planner.optimize.choices import checked, listed, refuse_unknown
from planner.specs.framework import FrameworkProfile
from planner.specs.model import ModelSpec
from planner.specs.search_space import SearchSpace
from planner.specs.workload import TrainingWorkload
from planner.terms import plain_values


def mesh(
    space: SearchSpace,
    settings: Mapping[str, Any],
    *,
    num_gpus: Iterable[int],
    model: ModelSpec,
    framework: FrameworkProfile,
    workload: TrainingWorkload,
) -> Mesh:
    """All combinations of the space's values, narrowed by ``settings``.

    ``settings`` maps a parameter to a value or several; it replaces what the space says. Where
    neither says a ZeRO stage, ranks that share their states with nobody shard nothing.

    Raises
    ------
    SearchSpaceError
        A parameter or a value is unknown, or there is no value left.
    """
    refuse_unknown(space, settings, NAMES, derived=("data_parallel",))
    counts = sorted(set(num_gpus))
    said: dict[str, Any] = {**space.parameters, **settings}
    choices: dict[str, Any] = {**defaults(framework, workload), **said}
    table = {
        name: checked(name, _values(choice, counts, model, workload))
        for name, choice in choices.items()
    }
    table["num_gpus"] = checked("num_gpus", counts)
    alone = min(table["tensor_parallel"]) * min(table["pipeline_parallel"]) >= counts[-1]
    if alone and "zero_stage" not in said and 0 in framework.zero_stages:
        table["zero_stage"] = checked("zero_stage", [0])
    return Mesh(values={name: table[name] for name in NAMES})


def defaults(framework: FrameworkProfile, workload: TrainingWorkload) -> dict[str, Any]:
    """The value of each parameter that neither the space nor the user mentions."""
    return {
        **plain_values("train"),
        "global_batch_size": workload.global_batch_size,
        "zero_stage": framework.default_zero_stage,
    }


def parse_settings(assignments: Iterable[str]) -> dict[str, list[str]]:
    """``name=value[,value]`` texts as parameter -> values.

    Raises
    ------
    SearchSpaceError
        A text has no ``=``, no value, or repeats a parameter.
    """
    settings: dict[str, list[str]] = {}
    for text in assignments:
        name, equals, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        items = [value.strip() for value in listed.split(",")]
        if not equals or not name or not all(items):
            raise SearchSpaceError(f"--set {text!r} is not name=value or name=value,value.")
        if name in settings:
            raise SearchSpaceError(f"--set gives {name} twice; list its values with commas.")
        settings[name] = items
    return settings


def _values(
    choice: Any, counts: list[int], model: ModelSpec, workload: TrainingWorkload
) -> list[Any]:
    bases = {
        "num_hidden_layers": model.num_hidden_layers,
        "num_experts": max(model.num_experts, 1),
        "global_batch_size": workload.global_batch_size,
    }
    return [value for count in counts for value in listed(choice, {**bases, "num_gpus": count})]
