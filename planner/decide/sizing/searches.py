"""The searches of a size, each made once for all contracts."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from planner.optimize.constraints import Constraint
from planner.optimize.other_terms import searched
from planner.optimize.problem import Problem
from planner.optimize.result import SearchResult
from planner.question.request import Request
from planner.workloads.plan import Plan, make_plan


@dataclass
class Searches:
    """Searches of one GPU under some ``contracts``, by all else that is asked."""

    contracts: tuple[str | None, ...]
    found: dict[Hashable, dict[str | None, tuple[Plan, SearchResult]]] = field(default_factory=dict)

    def of(self, request: Request, limits: Sequence[Constraint] = ()) -> tuple[Plan, SearchResult]:
        """What a search finds; ``limits`` replace its own and are not widened.

        Raises
        ------
        SpecError, SearchSpaceError
            Something is unknown, faulty or impossible.
        """
        asked = (request.objectives, request.num_gpus, request.mode, tuple(limits))
        if asked not in self.found:
            plans = [make_plan(replace(request, contract=one)) for one in self.contracts]
            problems = [_limited(plan, limits) for plan in plans]
            pairs = zip(plans, searched(problems), strict=True)
            each = ((replace(plan, problem=result.problem), result) for plan, result in pairs)
            self.found[asked] = dict(zip(self.contracts, each, strict=True))
        return self.found[asked][request.contract]


def _limited(plan: Plan, limits: Sequence[Constraint]) -> Problem:
    if not limits:
        return plan.problem
    known = {limit.name: replace(limit, assumed=False) for limit in limits}
    given = {limit.name: limit for limit in plan.problem.constraints}
    return replace(plan.problem, constraints=tuple({**given, **known}.values()))
