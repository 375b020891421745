"""What is wrong with the answers of a plan, before any work starts."""

from __future__ import annotations

from collections.abc import Iterator

from planner.errors import PlannerError
from planner.given import Said
from planner.request import ALL
from planner.specs.catalogue import Catalogue
from planner.specs.paths import SpecKind
from planner.sweeps.plan import MOST_SCENARIOS, Scenario, SweepPlan, Work
from planner.text import count
from planner.workloads.registry import workload_of

SPECS = {
    "model": SpecKind.MODELS,
    "gpu": SpecKind.GPUS,
    "prefill_gpu": SpecKind.GPUS,
    "cluster": SpecKind.CLUSTERS,
    "framework": SpecKind.FRAMEWORKS,
    "engine": SpecKind.ENGINES,
    "space": SpecKind.SPACES,
}
"""Questions that name spec files, and what kind of."""


def faults_of(plan: SweepPlan, said: Said = str) -> Iterator[str]:
    """Every value of every axis is looked at once, beside the first ones of the others."""
    number = plan.num_scenarios
    if number > MOST_SCENARIOS:
        yield (
            f"{count(number)} scenarios are more than {count(MOST_SCENARIOS)}: leave out some "
            "values, or make several plans."
        )
        return
    for work in plan.works:
        for scenario in _one_at_a_time(work):
            yield from _faults(scenario, plan, said)
        yield from _contradictions(work, said)


def _one_at_a_time(work: Work) -> Iterator[Scenario]:
    first = {name: values[0] for name, values in work.axes.items()}
    yield Scenario(number=0, work=work, values=first)
    for name, values in work.axes.items():
        for value in values[1:]:
            yield Scenario(number=0, work=work, values={**first, name: value})


def _faults(scenario: Scenario, plan: SweepPlan, said: Said) -> Iterator[str]:
    """What its answers are not, and specs that are missing or faulty."""
    try:
        request = scenario.request(plan.specs, said)
    except PlannerError as error:
        yield str(error)
        return
    catalogue, workload = Catalogue(plan.specs), workload_of(request.workload)
    for name in (*SPECS, *workload.other_gpus):
        word = getattr(request, name, None)
        if word in (None, ALL):
            continue
        try:
            if name == "model":
                catalogue.load_model(str(word))
            else:
                catalogue.find(SPECS[name], str(word))
        except PlannerError as error:
            yield str(error)


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
    if counts and most and min(map(int, counts)) > max(map(int, most)):
        yield f"{work.name}: every number of GPUs is above {said('max_gpus')}."
