"""The public functions: search and estimate."""

from __future__ import annotations

from typing import Any

from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import Progress, Sink, exhaustive_search
from planner.optimize.problem import Evaluation, judge
from planner.optimize.result import SearchResult
from planner.plan import make_plan
from planner.request import Request


def search(
    *, progress: Progress | None = None, sink: Sink | None = None, **request: Any
) -> SearchResult:
    """The Pareto front of every configuration of a search space.

    Keyword arguments are those of `planner.Request`: ``model`` and ``num_gpus`` at least.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.

    >>> result = search(model="llama-7b", num_gpus=8, space="small")
    >>> result.configurations_evaluated
    320
    """
    problem = make_plan(Request(**request)).problem
    return exhaustive_search(problem, progress=progress, sink=sink)


def estimate(**request: Any) -> Evaluation:
    """The prediction for one configuration: ``settings`` gives one value per parameter.

    Parameters that are not set keep their defaults, not those of a space.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    """
    problem = make_plan(Request(**{"space": "single", **request})).problem
    if problem.mesh.num_rows != 1:
        raise SearchSpaceError(
            f"That is {problem.mesh.num_rows:,} configurations: give one value per parameter."
        )
    (block,) = problem.mesh.blocks()
    return judge(problem, block.rows([0]))
