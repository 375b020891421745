"""The start of a server in older releases of its engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from planner.base.records import record
from planner.configurations.configuration_tables import ServingConfigurations
from planner.estimators.inference.batch_share import ServingInputs
from planner.estimators.inference.serving_memory import (
    has_memory_to_start,
    longest_that_fits,
    serving_memory,
)
from planner.question.request import Request
from planner.specs.engine import EngineProfile
from planner.specs.software_profile import engine_on, release_parts, runs_on
from planner.specs.spec_paths import SpecKind
from planner.workloads.serving.question import with_options

# Changes of an engine's memory looked back at: older ones do not know the models of today.
_CHANGES = 2


@record(kw_only=True)
class OlderStart:
    """Releases of an engine, from ``since`` to before ``until``, with which a server does not
    start; its cache has room for a request of ``longest`` tokens."""

    since: str
    until: str
    longest: int


def older_misfit(
    inputs: ServingInputs, configuration: ServingConfigurations, request: Request
) -> OlderStart | None:
    """Return the newest older releases with which a server that starts today would not.

    None if the request states a release, the engine is an old one, or all start.
    """
    tool, _, number = inputs.engine.since.partition(" ")
    if request.engine_version or not inputs.engine.current or not number:
        return None
    for profile in _older(inputs, tool, number)[:_CHANGES]:
        since = profile.since.partition(" ")[2]
        engine = with_options(engine_on(profile, inputs.machine.gpu, since), request)
        older = replace(inputs, engine=engine)
        memory = serving_memory(older, configuration)
        if not np.all(has_memory_to_start(older, memory, configuration)):
            longest = longest_that_fits(older, memory, configuration)
            return OlderStart(since=since, until=number, longest=longest)
        number = since
    return None


def _older(inputs: ServingInputs, tool: str, number: str) -> list[EngineProfile]:
    """Profiles of releases before ``number`` for the vendor of the GPU, the newest first."""
    catalogue = inputs.machine.catalogue
    profiles = [
        profile
        for name in catalogue.names(SpecKind.ENGINES)
        if (profile := catalogue.load_engine(name).spec).since.startswith(f"{tool} ")
        and runs_on(profile, inputs.machine.gpu)
        and _parts(profile) < release_parts(number)
    ]
    return sorted(profiles, key=_parts, reverse=True)


def _parts(profile: EngineProfile) -> tuple[int, ...]:
    return release_parts(profile.since.partition(" ")[2])
