"""The public functions: search and estimate."""

from __future__ import annotations

from typing import Any, Literal

from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import Progress, Sink, exhaustive_search
from planner.optimize.result import SearchResult
from planner.plan import evaluated, make_plan, one_configuration
from planner.request import Request
from planner.workloads.base import Evaluation


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
    trials, seed, sampler, storage : see `planner.optimize.optuna_search.sample`
    progress : is told how many configurations or trials are done
    sink : is given the columns of every feasible configuration, some thousand at a time
        (exhaustive only)
    request : the fields of `planner.Request`: ``model`` and ``num_gpus`` (serving: or
        ``request_rate``) at least

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.

    >>> result = search(model="llama-7b", num_gpus=8, space="small")
    >>> result.configurations_evaluated
    320
    """
    if driver not in ("exhaustive", "optuna") or (driver == "optuna" and sink is not None):
        raise SearchSpaceError("The driver is exhaustive, or optuna without a sink.")
    problem = make_plan(Request(**request)).problem
    if driver == "exhaustive":
        return exhaustive_search(problem, progress=progress, sink=sink)
    from planner.optimize.optuna_search import optuna_search

    return optuna_search(
        problem, trials=trials, seed=seed, sampler=sampler, storage=storage, progress=progress
    )


def estimate(*, burst: int | None = None, **request: Any) -> Evaluation:
    """The prediction for one configuration: ``settings`` gives one value per parameter.

    Parameters that are not set keep their defaults, not those of a space. ``inference`` is
    one static batch, ``serve`` a stream of requests, with ``burst`` of them at once too.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    InfeasibleError
        To serve: no concurrency reaches the ``request_rate``.
    """
    return evaluated(one_configuration(Request(**request), burst), burst)
