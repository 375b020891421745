"""The public functions: search and estimate."""

from __future__ import annotations

from typing import Any, Literal

from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import Progress, Sink, exhaustive_search
from planner.optimize.problem import Evaluation, judge
from planner.optimize.result import SearchResult
from planner.plan import make_plan
from planner.request import Request


def search(
    *,
    driver: Literal["exhaustive", "optuna"] = "exhaustive",
    trials: int = 2000,
    seed: int = 0,
    sampler: str = "nsga2",
    storage: str | None = None,
    progress: Progress | None = None,
    sink: Sink | None = None,
    **request: Any,
) -> SearchResult:
    """The Pareto front of a search space.

    Parameters
    ----------
    driver : ``exhaustive`` evaluates every configuration, ``optuna`` samples
    trials, seed, sampler, storage : see `planner.optimize.optuna_search.optuna_search`
    progress : is told how many configurations or trials are done
    sink : is given every feasible configuration, some thousand at a time (exhaustive only)
    request : the fields of `planner.Request`: ``model`` and ``num_gpus`` at least

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.

    >>> result = search(model="llama-7b", num_gpus=8, space="small")
    >>> result.configurations_evaluated
    320
    """
    problem = make_plan(Request(**request)).problem
    if driver == "exhaustive":
        return exhaustive_search(problem, progress=progress, sink=sink)
    if driver != "optuna" or sink is not None:
        raise SearchSpaceError("The driver is exhaustive, or optuna without a sink.")
    from planner.optimize.optuna_search import optuna_search

    return optuna_search(
        problem, trials=trials, seed=seed, sampler=sampler, storage=storage, progress=progress
    )


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
