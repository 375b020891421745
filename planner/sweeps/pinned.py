"""The plan of one scenario of a sweep."""

from __future__ import annotations

from pathlib import Path

from planner.errors import LaunchError
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import make_plan
from planner.sweeps.parts import AGAIN
from planner.sweeps.results import Sweep


def pinned_scenario(folder: Path, number: int | None, specs: Path | None = None) -> PinnedPlan:
    """The plan that a sweep recommends in a scenario, by its column ``scenario``.

    Raises
    ------
    SpecError
        The directory is none of a sweep, or cannot be read.
    LaunchError
        It has no such scenario, or nothing fits there.
    """
    sweep = Sweep(folder)
    if number is None:
        raise LaunchError(f"{folder}: is a sweep: choose one of its scenarios with --row.")
    row = next((row for row in sweep.rows() if row["scenario"] == number), None)
    if row is None:
        raise LaunchError(f"{folder}: has no scenario {number} (column scenario), or not yet.")
    if not row["feasible"]:
        raise LaunchError(f"{folder}: scenario {number} has no plan: {row.get('reason')}")
    plan = make_plan(sweep.plan.scenario(number).request(specs))
    try:
        return PinnedPlan.of(plan, row)
    except KeyError as error:
        raise LaunchError(
            f"{folder}: scenario {number} is not of what its plan asks: it was changed. {AGAIN}"
        ) from error
