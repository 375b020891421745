"""What is wrong with the answers of a plan, before any work starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.base.text import count
from planner.errors import PlannerError
from planner.optimize.constraints import constraints
from planner.plan.given import NEEDS, Said
from planner.plan.plan import make_plan
from planner.question.request import ALL
from planner.question.terms import terms_about
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind
from planner.sweeps.plan import MOST_SCENARIOS, Scenario, SweepPlan, Work
from planner.workloads.notes import Notes
from planner.workloads.place import read_place

SPECS = {name: SpecKind(f"{name.removeprefix('prefill_')}s") for name in terms_about("spec")}
"""Questions that name spec files, and what kind of."""

# Stands for the others where one answer is looked at alone.
_ANY_MODEL = "llama-7b"


def faults_of(plan: SweepPlan, said: Said = str) -> Iterator[str]:
    """Every answer is looked at alone; where none is wrong, whether some go together."""
    number = plan.num_scenarios
    if number > MOST_SCENARIOS:
        yield (
            f"{count(number)} scenarios are more than {count(MOST_SCENARIOS)}: leave out some "
            "values, or make several plans."
        )
        return
    catalogue = Catalogue(plan.specs)
    found = [
        fault
        for work in plan.works
        for name, values in work.axes.items()
        for value in values
        for fault in _faults(work, name, value, catalogue, said)
    ]
    found += [fault for work in plan.works for fault in _contradictions(work, said)]
    yield from found or (fault for work in plan.works for fault in _everywhere(work, plan, said))


def _faults(
    work: Work, name: str, value: object, catalogue: Catalogue, said: Said
) -> Iterator[str]:
    """What is wrong with an answer whatever the others are."""
    if name in NEEDS:
        return
    given = {"model": _ANY_MODEL, "num_gpus": 1, name: value}
    alone = Scenario(number=0, work=replace(work, settings={}, objectives=()), values=given)
    try:
        request = alone.request(catalogue.folder, said)
        if request.constraints:
            constraints(work.workload, request.constraints)
        if name == "model":
            catalogue.load_model(str(value))
        elif name in SPECS and value != ALL:
            catalogue.find(SPECS[name], str(value))
        else:  # hardware and terms, which no model decides
            read_place(request, None, (), Notes(catalogue), is_only=False)
    except PlannerError as error:
        yield str(error)


def _everywhere(work: Work, plan: SweepPlan, said: Said) -> Iterator[str]:
    """Why no scenario at all can be planned; nothing where one of the first can."""
    reasons = []
    for scenario in _one_at_a_time(work):
        try:
            make_plan(scenario.request(plan.specs, said))
        except PlannerError as error:
            reasons.append(str(error))
        else:
            return
    yield from dict.fromkeys(reasons)


def _one_at_a_time(work: Work) -> Iterator[Scenario]:
    """Every value of every axis once, beside the first ones of the others."""
    first = {name: values[0] for name, values in work.axes.items()}
    yield Scenario(number=0, work=work, values=first)
    for name, values in work.axes.items():
        for value in values[1:]:
            yield Scenario(number=0, work=work, values={**first, name: value})


def _contradictions(work: Work, said: Said) -> Iterator[str]:
    """Answers that cannot go together, whatever the others are."""
    axes = work.axes
    if "gpu" in axes and "cluster" in axes:
        yield f"{work.name}: give {said('gpu')} or {said('cluster')}, which has GPUs of its own."
    if "price" in axes and len(axes.get("contract", ())) > 1:
        yield (
            f"{work.name}: at a {said('price')} of its own every contract costs the same: leave "
            "out one."
        )
    counts, most = axes.get("num_gpus", ()), axes.get("max_gpus", ())
    if counts and most and min(map(int, map(str, counts))) > max(map(int, map(str, most))):
        yield f"{work.name}: every number of GPUs is above {said('max_gpus')}."
