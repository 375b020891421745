"""How often a request's GPUs fail."""

from __future__ import annotations

from planner.question.request import Request
from planner.specs.reliability import DEFAULT, IDEAL, ReliabilitySpec
from planner.workloads.notes import Notes


def reliability_of(request: Request, notes: Notes) -> ReliabilitySpec:
    """The figures of a request; nothing fails under the roofline bound, nor where nobody trains.

    Raises
    ------
    SpecError
        They are unknown or faulty.
    """
    if request.workload != "train" or (request.ideal and request.reliability is None):
        return IDEAL
    if request.reliability is None:
        notes.defaults["reliability"] = f"{DEFAULT} (default)"
    loaded = notes.catalogue.load_reliability(request.reliability or DEFAULT)
    notes.spec("reliability", loaded.spec.name, loaded.digest, loaded.provenance)
    return loaded.spec
