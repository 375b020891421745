"""The public functions: search, estimate, size, sweep, explain, compare, and the most that fits."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Literal

from planner.commands.check import CHECK
from planner.commands.command import Call
from planner.commands.compare import COMPARE
from planner.commands.estimate import ESTIMATE
from planner.commands.explain import EXPLAIN, OPERATORS
from planner.commands.max_batch import MAX_BATCH, MAX_LENGTH, find_batch, find_largest
from planner.commands.search import SEARCH
from planner.commands.size import SIZE
from planner.commands.sweep import SWEEP
from planner.decide.explain.largest_fit import (
    LargestFit,
    Methods,
    largest_length,
    methods_of_layouts,
)
from planner.decide.predictor import Predictor
from planner.errors import InfeasibleError, SearchSpaceError
from planner.optimize.exhaustive import Progress, Sink
from planner.question.parse_values import format_input
from planner.question.request import Request
from planner.show.presenters.comparison import has_question
from planner.show.results import (
    CompareAnswer,
    EstimateAnswer,
    ExplainAnswer,
    OperatorsAnswer,
    PoolsAnswer,
    SearchAnswer,
    ServicesAnswer,
    SizeAnswer,
)
from planner.sweeps.find_plan import read_saved_plan
from planner.sweeps.sweep_folder import Sweep
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation


def search(
    *,
    driver: Literal["exhaustive", "optuna"] | None = None,
    trials: int | None = None,
    seed: int | None = None,
    sampler: Literal["nsga2", "tpe"] | None = None,
    progress: Progress | None = None,
    sink: Sink | None = None,
    base: Request | None = None,
    **request: object,
) -> SearchAnswer:
    """The Pareto front of a search space, with the recommended plan.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, of another
    workload, or does nothing alone.

    Parameters
    ----------
    driver : ``exhaustive`` (default) evaluates every configuration, ``optuna`` samples
    trials, seed, sampler : for ``optuna`` only, see
        `planner.optimize.optuna_search.run_trials`: default: 2000, 0, ``nsga2``
    progress : called with the number of configurations or trials done
    sink : called with the columns of all feasible configurations, a few thousand at a time
        (exhaustive only)
    base : a question that ``request`` changes; the number formats of a question of `read_launch`
        stay fixed, the layout is searched
    request : the fields of `planner.Request`: ``model`` and ``num_gpus`` (serving: or
        ``request_rate``) at least. Numbers may be text as on the command line (``"8k"``,
        ``"40%"``, ``"6s"``), values that may be several any list, set, range or array.

    Returns
    -------
    SearchAnswer
        ``recommended`` (None: no plan is feasible), the ``front``, and ``rejected_by``: how many
        configurations each rule, memory or limit rejects. ``to_frame()`` has a row per plan; the
        names of its columns end with their unit.

    >>> result = search(model="llama-7b", num_gpus=8, space="small")
    >>> result.configurations_evaluated
    320
    """
    extra = {
        "driver": driver, "trials": trials, "seed": seed, "sampler": sampler, "sink": sink,
        "base": base,
    }  # fmt: skip
    if progress is not None and not callable(progress):
        raise SearchSpaceError(f"progress is a function, not {format_input(progress)}.")
    inputs = SEARCH.read(_call(request, progress, **extra))
    return SearchAnswer.from_result(SEARCH.run(inputs).result, base_plan=inputs.plan)


def estimate(
    *, burst: int | None = None, base: Request | None = None, **request: object
) -> EstimateAnswer:
    """The prediction for one configuration: ``settings`` has one value per parameter.

    Parameters that are not set keep their defaults, not those of a space. ``inference`` is one
    static batch, ``serve`` a stream of requests.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or there are
    several configurations; InfeasibleError if no concurrency
    reaches the ``request_rate``.

    Parameters
    ----------
    burst : number of requests that arrive at once, to serve; None: none
    base : a question that ``request`` changes, such as that of `read_launch`
    request : the fields of `planner.Request`, as in `search`

    Returns
    -------
    EstimateAnswer
        ``estimate`` with times [s] and memory [bytes], and ``rejected_by``, "" if the configuration
        is feasible. ``table()`` has result columns; their names end with the unit.

    >>> answer = estimate(model="llama-7b", num_gpus=8, settings={"tensor_parallel": 2})
    >>> answer.rejected_by, bool(100 < answer.table()["step_time_s"][0] < 200)
    ('', True)
    """
    estimated = ESTIMATE.answer(_call(request, burst=burst, base=base))
    return EstimateAnswer.from_result(estimated.evaluation, plan=estimated.plan)


def check(
    program: str | Sequence[str], *, row: int | None = None, **request: object
) -> EstimateAnswer:
    """The prediction of a command that is about to start, as ``planner check`` reads it.

    ``rejected_by`` of the answer is empty if the command fits. Nothing is run. Raises LaunchError
    if nothing in the command is read; SpecError or SearchSpaceError if something is unknown or
    impossible.

    Parameters
    ----------
    program : the words of the command, or its line, such as ``"bash run.sh"``
    row : which of several launches in it, from 1
    request : the fields of `planner.Request` that the command does not say, such as ``gpu``

    Returns
    -------
    EstimateAnswer
        as `estimate`; ``plan.request`` is the question that the command asks.

    >>> answer = check("vllm serve meta-llama/Llama-3.1-8B-Instruct -tp 2", gpu="h100")
    >>> answer.rejected_by, answer.plan.request.model
    ('', 'meta-llama/Llama-3.1-8B-Instruct')
    """
    words = program if isinstance(program, str) else tuple(program)
    checked = CHECK.answer(_call(request, program=words, row=row))
    return EstimateAnswer.from_result(checked.evaluation, plan=checked.plan)


def predictor(*, base: Request | None = None, **request: object) -> Predictor:
    """The step time of any batch of one serving configuration, for simulators of engines.

    Raises SpecError or SearchSpaceError as `estimate` does, or if prefill and decode have separate
    workers; InfeasibleError if the configuration is rejected.

    Parameters
    ----------
    base : a question that ``request`` changes
    request : the fields of `planner.Request`; ``workload`` is ``serve`` by default

    Returns
    -------
    Predictor
        ``predict(batch)`` is the time of a step [s]. The batch has a pair for each request: its
        tokens in the cache, and the tokens that the step computes.

    >>> predict = predictor(model="llama-3.1-8b", gpu="h100", num_gpus=1).predict
    >>> 0 < predict([(1000, 1)] * 8) < predict([(0, 1024)])
    True
    """
    if base is None:
        request.setdefault("workload", "serve")
    answer = estimate(base=base, burst=None, **request)
    if answer.rejected_by:
        raise InfeasibleError(f"The configuration is rejected by {answer.rejected_by}.")
    return Predictor.of(answer.candidates)


def size(
    *,
    contract: str | Sequence[str] | None = None,
    load: str | os.PathLike[str] | None = None,
    startup_time: float | str | None = None,
    budget: float | str | None = None,
    price_change: float | str | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    **request: object,
) -> SizeAnswer:
    """The fewest and the cheapest GPUs that keep the limits, for each GPU and contract.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible for every
    GPU, or the request sets no limit or rate to reach.

    Parameters
    ----------
    contract : one or several, or ``all``; default: the default contract of each GPU
    load : to serve: CSV file of the request rates of a day, in place of ``request_rate``; see
        `planner.decide.sizing.autoscaling.read_load`. ``contract`` are the
        contracts that its GPUs may have
    startup_time : time from the request for a GPU to its first answer: seconds, text with a unit,
        or parts as `planner.decide.sizing.autoscaling.read_startup` reads them. Needs a ``load``,
        or a ``trace``, whose load per minute is used
    budget : most USD to spend: in total on a run (``"2MUSD"``), per time on a service
        (``"50kUSD/month"``). Without a rate, a service is as large as the budget or a power limit
        allows
    price_change : change of rental prices after the first year, ``"-30%"`` or ``"-15%/year"``
    progress : called with the number of GPUs done
    workers : processes that share the GPUs
    request : as in `search`, without ``objectives``. Training needs a limit of time or cost,
        serving a ``request_rate``; ``confidence`` is the probability to keep them. ``gpu`` may be
        several or ``all``; default: all current data-center GPUs, unless a cluster is set.
        ``num_gpus`` are the numbers of GPUs to try; default: whole nodes.

    Returns
    -------
    SizeAnswer
        ``best`` is the recommended `Size`, ``feasible`` has one per GPU and contract. Each has the
        ``fewest`` and the ``cheapest`` GPUs, with costs in USD and the result columns of ``row``.

    >>> sizes = size(model="llama-7b", gpu="a100", total_tokens="1T", space="small",
    ...              constraints={"time_to_train": "30d"})
    >>> sizes.best.fewest.num_gpus
    128
    """
    call = _call(
        {**request, "contract": contract},
        progress,
        load=load,
        startup_time=startup_time,
        budget=budget,
        price_change=price_change,
        workers=workers,
    )
    return SizeAnswer.from_result(SIZE.answer(call))


def size_services(
    services: str | os.PathLike[str] | Mapping[str, object],
    *,
    stock: str | Mapping[str, int] | None = None,
    contract: str | Sequence[str] | None = None,
    budget: float | str | None = None,
    price_change: float | str | None = None,
    startup_time: float | str | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    **common: object,
) -> ServicesAnswer:
    """Several services on GPUs that they share, so that all together cost least a day.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible; a line for
    each service; InfeasibleError if a service runs on none of the GPUs, or the stock is too small.

    Parameters
    ----------
    services : a TOML file with a table ``[services.NAME]`` for each, or a mapping like it: its
        ``model``, ``request_rate`` or ``load`` (a CSV file), lengths and limits; answers that all
        services share are above the tables. ``[jobs.NAME]`` are training runs, or batches with
        ``num_requests``, that repeat ``every`` week (default) or other time
    stock : available GPUs of each type, ``"h100=64,b200=32"`` or a mapping; default: the stock of
        the file. A type without a number is unlimited
    contract : one or several contracts to choose from
    budget : what may be spent a year or another time, ``"5MUSD/year"``
    price_change : as in `size`
    startup_time : of services with a ``load``, as in `size`
    progress : called with the number of services done
    workers : processes that share the GPUs
    common : answers that all services share, as in `size`

    Returns
    -------
    ServicesAnswer
        ``pools`` of GPUs with their peak and cost [USD per day], ``placements`` of the services.

    >>> fleet = size_services(
    ...     {"services": {"chat": {"model": "llama-3.1-8b", "request_rate": 20}}},
    ...     stock={"h100": 8}, price=2, engine="vllm",
    ... )
    >>> fleet.pools[0].peak_gpus
    5
    """
    call = _call(
        {**common, "contract": contract},
        progress,
        services=services,
        stock=stock,
        budget=budget,
        price_change=price_change,
        startup_time=startup_time,
        workers=workers,
    )
    return ServicesAnswer.from_result(SIZE.answer(call))


def size_pools(
    pools: int | str | Sequence[int | str],
    *,
    stock: str | Mapping[str, int] | None = None,
    contract: str | Sequence[str] | None = None,
    load: str | os.PathLike[str] | None = None,
    startup_time: float | str | None = None,
    progress: Progress | None = None,
    workers: int = 1,
    **request: object,
) -> PoolsAnswer:
    """GPUs of a service split into pools by prompt length, compared with one pool for all prompts.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or all
    prompts have one length; InfeasibleError if a pool runs on none of the GPUs, or the stock is too
    small.

    Parameters
    ----------
    pools : number of pools, with bounds chosen from quantiles of the prompts, or the bounds
        [tokens]: ``2``, ``"6k"``, ``[2000, 8000]``
    stock, contract, load, startup_time, progress, workers : as in `size_services` and `size`
    request : as in `size`, with ``lengths``, ``trace`` or ``input_variation``; every limit holds in
        each pool

    Returns
    -------
    PoolsAnswer
        ``pools`` and ``mixed`` (one pool), each with ``num_gpus`` and ``cost`` [USD per day];
        ``saved`` is the share of the cost that pools save.

    >>> answer = size_pools("4k", model="llama-3.1-8b", gpu="h100", price=2, workload="serve",
    ...                     request_rate=100, lengths="azure-code", engine="vllm",
    ...                     mode="aggregated")
    >>> len(answer.pools.placements), answer.pools.num_gpus - answer.mixed.num_gpus
    (2, 1)
    """
    call = _call(
        {**request, "contract": contract},
        progress,
        pools=pools,
        stock=stock,
        load=load,
        startup_time=startup_time,
        workers=workers,
    )
    return PoolsAnswer.from_result(SIZE.answer(call))


def sweep(
    plan: str | os.PathLike[str] | Mapping[str, object],
    output: str | os.PathLike[str],
    *,
    workers: int | None = None,
    dask: str | None = None,
    fresh: bool = False,
    specs: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Every combination of the lists in a plan, one search each; continues an unfinished sweep.

    Raises SpecError or SearchSpaceError if a setting of the plan is unknown, contradictory or too
    large, with one line for each error; OutputError if the directory cannot be written, or belongs
    to another plan, version or specs.

    Parameters
    ----------
    plan : a TOML file, the name of a shipped plan, or the tables of such a file
    output : the directory of the results
    workers : processes; default: one per core
    dask : the address of a scheduler, whose workers are used instead
    fresh : start again; the contents of the directory are removed
    specs : folder of the user's spec files
    progress : called with the number of scenarios done

    Returns
    -------
    Sweep
        ``scenarios()`` is a frame with a row per combination; the names of its columns end with
        their unit. ``rows()`` reads them one by one.

    >>> from tempfile import mkdtemp
    >>> plan = {"model": "llama-7b", "gpu": ["a100", "h100"], "num_gpus": 8, "space": "small"}
    >>> frame = sweep(plan, mkdtemp(), workers=1).scenarios()
    >>> frame.gpu.tolist(), bool(frame.step_time_s[0] > frame.step_time_s[1])
    (['a100-sxm-80gb', 'h100-sxm-80gb'], True)
    """
    extra = {"sweep_plan": plan, "output": output, "workers": workers, "dask": dask, "fresh": fresh}
    return SWEEP.answer(_call({"specs": specs}, progress, **extra)).sweep


def operators(
    operator: str | Sequence[str], *, specs: str | os.PathLike[str] | None = None, **answers: object
) -> OperatorsAnswer:
    """The time and the bound of one kernel, collective or copy.

    Raises SpecError or SearchSpaceError if an answer is unknown, missing, or not used by the
    operator.

    Parameters
    ----------
    operator : one or more of `planner.decide.explain.operators.KINDS`: ``gemm``, ``send`` ...
    specs : folder of the user's spec files
    answers : ``gpu``, ``cluster``, ``framework``, ``num_gpus``, ``precision``, and sizes: ``rows``,
        ``columns``, ``depth``, ``num_bytes`` ...; each may have several values

    Returns
    -------
    Operators
        ``columns``: equally long lists by name, a row for every combination; ``works``: what each
        does.

    >>> answer = operators("gemm", gpu="a100", rows=4096, columns=4096, depth=[4096, 11008])
    >>> [round(rate) for rate in answer.columns["tflops"]]
    [240, 235]
    """
    call = _call({**answers, "specs": specs}, operators=operator)
    return OperatorsAnswer.from_result(OPERATORS.answer(call))


def explain(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    against: Mapping[str, object] | str | os.PathLike[str] | Request | None = None,
    burst: int | None = None,
    base: Request | None = None,
    **request: object,
) -> ExplainAnswer:
    """Why a plan takes its time and memory, and what would change them.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or there are
    several configurations; InfeasibleError if the plan does not fit or breaks a rule, or nothing is
    feasible; LaunchError if a file holds no plan, or has no such row.

    Parameters
    ----------
    plan : plan file, result file (its ``row``) or directory of a sweep; None: ``request`` has the
        ``settings`` of one configuration, or a search recommends one
    row : row of a result file or sweep, from 1; None: the recommended row
    against : other plan: settings and answers to change, a file, or a request
    burst, base : as in `estimate`
    request : the fields of `planner.Request`; with ``plan``, those to change

    Returns
    -------
    ExplainAnswer
        ``steps`` with the time [s] and the bound of each part; ``to_dict()`` has all for JSON, with
        times in seconds and memory in GiB.

    >>> explained = explain(model="llama-7b", num_gpus=8, settings={"tensor_parallel": 2})
    >>> explained.steps[0].bound
    'compute'
    """
    extra = {"base": _base(plan, row, base), "burst": burst, "against": against}
    return ExplainAnswer.from_result(EXPLAIN.answer(_call(request, **extra)).explanation)


def compare(*things: str | os.PathLike[str], **request: object) -> CompareAnswer:
    """Plans compared: where they differ, which is better, and which differences are proven.

    Raises SpecError or SearchSpaceError if something is unknown, faulty or impossible, or the
    things are of several kinds; InfeasibleError if fewer than two have a plan.

    Parameters
    ----------
    things : two or more: plan files, result files (``FILE``, ``FILE:ROW``) or launch files; or
        names of GPUs, models, frameworks or engines, or folders of specs (``shipped``: without
        one), each with the plan that a search recommends
    request : the fields of `planner.Request` that all have in common; with files: the fields to
        change in all

    Returns
    -------
    CompareAnswer
        ``predicted`` plans, and ``results``: the columns that differ, with the best plan of each
        and the plans that are tied with it.

    >>> answer = compare("a100", "h100", model="llama-7b", num_gpus=8)
    >>> answer.results[0].name, answer.predicted[answer.results[0].best].name
    ('step_time_s', 'h100')
    """
    texts = [os.fspath(thing) for thing in things]
    inputs = COMPARE.read(_call(request, things=texts))
    if not has_question(inputs.things, inputs.answers):
        raise SearchSpaceError(
            f"Give a question, such as a model, to compare {' and '.join(texts)}."
        )
    return CompareAnswer.from_result(COMPARE.run(inputs).plans)


def max_batch(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    base: Request | None = None,
    **request: object,
) -> LargestFit:
    """The largest micro-batch, or the most concurrent requests, within memory and limits.

    Raises SpecError, SearchSpaceError, InfeasibleError or LaunchError as `explain` raises them; a
    plan that does not fit is none of them.

    Parameters
    ----------
    plan, row, base, request : as `explain` takes them; ``constraints`` among them are kept, and
        ``confidence`` is the probability to fit and keep them

    Returns
    -------
    LargestFit
        ``largest`` batch [sequences or requests]; None: none fits. ``reason`` is what rejects the
        ``following`` one.

    >>> found = max_batch(model="llama-7b", num_gpus=8, settings={"recompute": "full"})
    >>> found.name, found.largest, found.following
    ('micro_batch_size', 16, 32)
    """
    inputs = MAX_BATCH.read(_call(request, base=_base(plan, row, base)))
    return find_largest(find_batch, inputs).fits[0]


def max_batches(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    base: Request | None = None,
    **request: object,
) -> Methods:
    """The largest batch of each of several methods: every combination of what is listed.

    Raises SpecError, SearchSpaceError or LaunchError as `max_batch` raises them; or there are more
    than 2,000 methods. One that does not fit is none of them, but a row without a batch.

    Parameters
    ----------
    plan, row, base, request : as `max_batch` takes them; ``settings``, ``gpu``, ``num_gpus``,
        ``model``, ``adapter``, ``framework``, ``engine`` and ``precision`` may be several. What
        is not set keeps its default: nothing is searched

    Returns
    -------
    Methods
        ``columns``: equally long lists by name, a row per method; memory in GiB, times in seconds.

    >>> found = max_batches(model="llama-7b", num_gpus=8, settings={"recompute": "none,full"})
    >>> found.columns["recompute"], found.columns["micro_batch_size"]
    (['none', 'full'], [2, 16])
    """
    inputs = MAX_BATCH.read(_call(request, base=_base(plan, row, base)))
    return methods_of_layouts(inputs.request)


def max_length(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    base: Request | None = None,
    length: str | None = None,
    **request: object,
) -> LargestFit:
    """The longest sequence, prompt or answer that fits and keeps the limits.

    Raises SpecError, SearchSpaceError, InfeasibleError or LaunchError as `max_batch` raises them.

    Parameters
    ----------
    plan, row, base, request : as `max_batch` takes them
    length : ``sequence_length``, ``input_tokens`` or ``output_tokens``, of reinforcement learning
        ``output_cap``; default: the first that the workload has

    Returns
    -------
    LargestFit
        ``largest`` length [tokens]; None: none fits. ``reason`` is what rejects the ``following``
        one.

    >>> longest = max_length(model="llama-7b", num_gpus=8, settings={"tensor_parallel": 8})
    >>> longest.name, longest.largest > 2048
    ('sequence_length', True)
    """
    inputs = MAX_LENGTH.read(_call(request, base=_base(plan, row, base)))

    def find_length(plan: Plan, evaluation: Evaluation) -> list[LargestFit]:
        """Return the largest value of the length."""
        lengths = plan.workload.longest or plan.workload.lengths
        return [largest_length(plan, evaluation, length or lengths[0])]

    return find_largest(find_length, inputs).fits[0]


def _call(
    request: Mapping[str, object], progress: Progress | None = None, /, **extra: object
) -> Call:
    """Return the call of a command, which reports its progress to a function."""
    return Call(request=request, extra=extra, bar=lambda total, unit: nullcontext(progress))


def _base(
    plan: str | os.PathLike[str] | None, row: int | None, base: Request | None
) -> Request | None:
    """Return the request of a plan file; without one the base."""
    return base if plan is None else read_saved_plan(Path(plan), row).request()


def signature_of(function: Callable[..., object]) -> inspect.Signature:
    """The signature of a function with the fields of a request in place of ``**request``."""
    parameters = [*inspect.signature(function).parameters.values()][:-1]
    request_parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(field),
            annotation=field.type,
        )
        for field in fields(Request)
        if field.name not in {parameter.name for parameter in parameters}
    ]
    ordered = sorted([*request_parameters, *parameters], key=lambda parameter: parameter.kind)
    return inspect.Signature(ordered, return_annotation=function.__annotations__["return"])


def _default(field: Field[object]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is MISSING else field.default


size.__signature__ = signature_of(size)  # type: ignore[attr-defined]
search.__signature__ = signature_of(search)  # type: ignore[attr-defined]
estimate.__signature__ = signature_of(estimate)  # type: ignore[attr-defined]
explain.__signature__ = signature_of(explain)  # type: ignore[attr-defined]
max_batch.__signature__ = signature_of(max_batch)  # type: ignore[attr-defined]
max_batches.__signature__ = signature_of(max_batches)  # type: ignore[attr-defined]
max_length.__signature__ = signature_of(max_length)  # type: ignore[attr-defined]
