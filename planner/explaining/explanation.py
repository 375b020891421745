"""Why a plan takes the time and the memory that it takes, and what would change that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from planner.base.records import record
from planner.errors import PlannerError
from planner.explaining.against import Difference, Seen
from planner.explaining.assumptions import Assumption, assumptions
from planner.explaining.changed import requested
from planner.explaining.sources import Sources
from planner.explaining.steps import ExplainedStep, keys_of, step_dict
from planner.explaining.what_if import Sensitivity, sensitivities
from planner.optimize.collector import first_row, known_value
from planner.plan.pinned import PinnedPlan
from planner.plan.plan import Plan, evaluated
from planner.workloads.base import Evaluation

MEMORY = ("peak_memory_gib", "memory_headroom_gib")


@record(kw_only=True)
class Explanation:
    """A plan of one configuration, explained; each part is worked out when it is asked for.

    ``against`` is the plan beside which it stands, if any; ``burst`` the requests at once that
    `planner.estimate` takes.
    """

    plan: Plan
    found: Evaluation
    against: Seen | None = None
    burst: int | None = None

    @cached_property
    def seen(self) -> Seen:
        """The plan with its results and steps."""
        return Seen(plan=self.plan, found=self.found)

    @property
    def row(self) -> Mapping[str, Any]:
        """Its result columns."""
        return self.seen.row

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The result columns that changes are told in: what such plans reach, and their memory."""
        names = (*self.plan.workload.wording.told, *MEMORY)
        return tuple(name for name in dict.fromkeys(names) if name in self.row)

    @property
    def steps(self) -> list[ExplainedStep]:
        """Every kind of step with its operators, the longest first; none of a flat share."""
        return [*self.seen.steps.values()]

    @cached_property
    def memory(self) -> dict[str, float]:
        """GiB of each part of the fullest GPU's memory, the largest first."""
        parts = self.seen.memory.items()
        return dict(sorted((part for part in parts if part[1]), key=lambda part: -part[1]))

    @cached_property
    def bound(self) -> Mapping[str, Any] | None:
        """The row of the same plan where everything reaches its peak at once; None if unknown."""
        pinned = PinnedPlan.of(self.plan, self.row).request()
        try:
            given = pinned.flops_efficiency if pinned.workload == "train" else None
            bound = replace(pinned, ideal=True, flops_efficiency=given)
            found = evaluated(requested(bound), self.burst)
        except PlannerError:
            return None
        return first_row(found.table())

    @cached_property
    def sensitivities(self) -> list[Sensitivity]:
        """What changes where hardware, terms or the question do."""
        return sensitivities(self.plan, self.found, self.row, self.burst)

    @cached_property
    def assumptions(self) -> list[Assumption]:
        """What the plan assumes and is moved by, the most first."""
        return assumptions(self.seen, self.columns, self.burst)

    @cached_property
    def difference(self) -> Difference | None:
        """What the other plan gains and loses."""
        return None if self.against is None else Difference(one=self.seen, other=self.against)

    def to_dict(self) -> dict[str, Any]:
        """Plain words and numbers, as JSON takes them; times in seconds, memory in GiB."""
        sources = Sources(self.plan)
        row = {name: known_value(value) for name, value in self.row.items()}
        bound = self.bound
        return {
            "plan": PinnedPlan.of(self.plan, self.row).to_dict(),
            "row": row,
            "intervals": {name: [*map(known_value, both)] for name, both in self.seen.ends.items()},
            "at_the_peaks": bound
            and {name: known_value(bound[name]) for name in self.columns if name in bound},
            "steps": [step_dict(step, sources) for step in self.steps],
            "memory_gib": self.memory,
            "sensitivities": [one.to_dict(self.row, self.columns) for one in self.sensitivities],
            "assumptions": [one.to_dict() for one in self.assumptions],
            "sources": keys_of(self.steps, sources),
            "against": None if self.difference is None else self.difference.to_dict(),
        }
