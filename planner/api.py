"""The public functions: search and estimate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from planner.errors import SearchSpaceError
from planner.optimize.exhaustive import Progress, Sink, exhaustive_search
from planner.optimize.problem import Evaluation, judge
from planner.optimize.result import SearchResult
from planner.optimize.serving.search import ServingResult, serving_search
from planner.optimize.serving.single import (
    InferenceEvaluation,
    ServingEvaluation,
    serve_once,
    static_once,
)
from planner.plan import make_plan
from planner.request import Request
from planner.serving_plan import make_serving_plan, one_configuration


def search(
    *,
    workload: Literal["train", "serve"] = "train",
    driver: Literal["exhaustive", "optuna"] = "exhaustive",
    trials: int = 2000,
    seed: int = 0,
    sampler: str = "nsga2",
    storage: str | None = None,
    progress: Progress | None = None,
    sink: Sink | None = None,
    **request: Any,
) -> SearchResult | ServingResult:
    """The Pareto front of a search space.

    Parameters
    ----------
    workload : ``train``, or ``serve`` (without a sink)
    driver : ``exhaustive`` evaluates every configuration, ``optuna`` samples
    trials, seed, sampler, storage : see `planner.optimize.optuna_search.sample`
    progress : is told how many configurations or trials are done
    sink : is given every feasible configuration, some thousand at a time (exhaustive only)
    request : the other fields of `planner.Request`: ``model`` and ``num_gpus`` (serving: or
        ``request_rate``) at least

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible.

    >>> result = search(model="llama-7b", num_gpus=8, space="small")
    >>> result.configurations_evaluated
    320
    """
    if workload == "serve":
        if driver not in ("exhaustive", "optuna") or sink is not None:
            raise SearchSpaceError("The driver is exhaustive or optuna, without a sink to serve.")
        serving = make_serving_plan(Request(workload=workload, **request)).problem
        if driver == "exhaustive":
            return serving_search(serving, progress)
        from planner.optimize.serving.sampled import sampled_serving_search

        how: dict[str, Any] = {"trials": trials, "seed": seed, "sampler": sampler}
        return sampled_serving_search(serving, storage=storage, progress=progress, **how)
    if workload != "train":
        raise SearchSpaceError(f"The workload to search is train or serve, not {workload!r}.")
    problem = make_plan(Request(**request)).problem
    if driver == "exhaustive":
        return exhaustive_search(problem, progress=progress, sink=sink)
    if driver != "optuna" or sink is not None:
        raise SearchSpaceError("The driver is exhaustive, or optuna without a sink.")
    from planner.optimize.optuna_search import optuna_search

    return optuna_search(
        problem, trials=trials, seed=seed, sampler=sampler, storage=storage, progress=progress
    )


def estimate(
    *,
    workload: Literal["train", "inference", "serve"] = "train",
    burst: int | None = None,
    **request: Any,
) -> Evaluation | InferenceEvaluation | ServingEvaluation:
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
    if workload == "train":
        return _training_estimate(request)
    if workload not in ("inference", "serve"):
        raise SearchSpaceError(f"The workload is train, inference or serve, not {workload!r}.")
    static = workload == "inference"
    plan = one_configuration(Request(workload=workload, **request), None if static else burst)
    (source,) = plan.problem.sources
    return static_once(source) if static else serve_once(source, burst)


def _training_estimate(request: Mapping[str, Any]) -> Evaluation:
    problem = make_plan(Request(**{"space": "single", **request})).problem
    if problem.mesh.num_rows != 1:
        raise SearchSpaceError(
            f"That is {problem.mesh.num_rows:,} configurations: give one value per parameter."
        )
    (block,) = problem.mesh.blocks()
    return judge(problem, block.rows([0]))
