"""The public functions about one plan or some: explain, compare, and the most that fits."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.answers import Compared, Explained
from planner.errors import SearchSpaceError
from planner.explaining.largest import Largest
from planner.explaining.largest import largest_batch as _largest_batch
from planner.explaining.largest import largest_length as _largest_length
from planner.explaining.methods import Methods, methods_of_layouts
from planner.explaining.other import changed_request
from planner.plan.given import make_request, read_burst
from planner.plan.plan import Plan
from planner.question.request import Request
from planner.question.signature import signature_of
from planner.report.compared_things import compared_plans, has_question, things_of
from planner.report.explained import explained_plan
from planner.report.recommended import planned, recommended_of
from planner.sweeps.any_plan import pinned_in
from planner.workloads.base import Evaluation


def explain(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    against: Mapping[str, Any] | str | os.PathLike[str] | Request | None = None,
    burst: int | None = None,
    base: Request | None = None,
    **request: Any,
) -> Explained:
    """Why a plan takes the time and the memory that it takes, and what would change that.

    Parameters
    ----------
    plan : a plan file, a result (its ``row``, from 1) or the directory of a sweep; else ``request``
        has the ``settings`` of one configuration, or a search recommends one
    against : the other plan beside it: what is set or asked otherwise, a file, or a request
    burst, base : as `estimate` takes them
    request : the fields of `planner.Request`; beside a plan they change it

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are several configurations.
    InfeasibleError
        The plan does not fit or breaks a rule, or nothing is feasible.
    LaunchError
        A file holds no plan, or has no such row.

    >>> explained = explain(model="llama-7b", num_gpus=8, settings={"tensor_parallel": 2})
    >>> explained.steps[0].bound
    'compute'
    """
    if plan is not None:
        base = pinned_in(Path(plan), row).request()
    asked = make_request(request, base=base)
    if base is None and not asked.settings:
        asked = recommended_of(asked).request()
    number = read_burst(asked.workload, burst)
    other = _other_request(asked, against)
    return Explained.showing(explained_plan(asked, number, other))


def compare(*things: str | os.PathLike[str], **request: Any) -> Compared:
    """Plans side by side: in what they differ, who wins where, what published runs do not tell.

    Parameters
    ----------
    things : two or more: files of plans or results (``FILE``, ``FILE:ROW``); or names of GPUs,
        models, frameworks or engines, or folders of specs (``shipped``: without one), each with
        the plan that a search recommends
    request : the question that all have in common: the fields of `planner.Request`; beside files
        what is changed in all

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or of several kinds.
    InfeasibleError
        Fewer than two have a plan.

    >>> found = compare("a100", "h100", model="llama-7b", num_gpus=8)
    >>> found.results[0].name, found.seens[found.results[0].best].name
    ('step_time_s', 'h100')
    """
    texts = [os.fspath(thing) for thing in things]
    named = things_of(texts, None if request.get("specs") is None else Path(request["specs"]))
    if not has_question(named, request):
        raise SearchSpaceError(
            f"Give a question, such as a model, to compare {' and '.join(texts)}."
        )
    return Compared.showing(compared_plans(named, request, pinned_in))


def _other_request(
    asked: Request, against: Mapping[str, Any] | str | os.PathLike[str] | Request | None
) -> Request | None:
    if against is None or isinstance(against, Request):
        return against
    if isinstance(against, Mapping):
        return changed_request(asked, against)
    return pinned_in(Path(against), None).request()


def max_batch(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    base: Request | None = None,
    **request: Any,
) -> Largest:
    """The largest micro-batch, or the most requests at once, that fits and keeps limits.

    Parameters
    ----------
    plan, row, base, request : as `explain` takes them; ``constraints`` among them are kept, and
        ``confidence`` says how surely it fits and keeps them

    Raises
    ------
    SpecError, SearchSpaceError, InfeasibleError, LaunchError
        As `explain` raises them; a plan that does not fit is none of them.

    >>> found = max_batch(model="llama-7b", num_gpus=8, settings={"recompute": "full"})
    >>> found.name, found.largest, found.following
    ('micro_batch_size', 16, 32)
    """
    return _largest_batch(*_one_plan(plan, row, base, request))


def max_batches(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    base: Request | None = None,
    **request: Any,
) -> Methods:
    """The largest batch of each of several methods: every combination of what is listed.

    Parameters
    ----------
    plan, row, base, request : as `max_batch` takes them; ``settings``, ``gpu``, ``num_gpus``,
        ``model``, ``adapter``, ``framework``, ``engine`` and ``precision`` may be several. What
        is not set keeps its default: nothing is searched

    Raises
    ------
    SpecError, SearchSpaceError, LaunchError
        As `max_batch` raises them; or there are more than 2,000 methods. One that does not fit
        is none of them, but a row without a batch.

    >>> found = max_batches(model="llama-7b", num_gpus=8, settings={"recompute": "none,full"})
    >>> found.columns["recompute"], found.columns["micro_batch_size"]
    (['none', 'full'], [2, 16])
    """
    if plan is not None:
        base = pinned_in(Path(plan), row).request()
    return methods_of_layouts(make_request(request, base=base))


def max_length(
    plan: str | os.PathLike[str] | None = None,
    *,
    row: int | None = None,
    base: Request | None = None,
    length: str | None = None,
    **request: Any,
) -> Largest:
    """The longest sequence, prompt or answer that fits and keeps limits.

    Parameters
    ----------
    plan, row, base, request : as `max_batch` takes them
    length : ``sequence_length``, ``input_tokens`` or ``output_tokens``; the first of the workload
        where not given

    Raises
    ------
    SpecError, SearchSpaceError, InfeasibleError, LaunchError
        As `max_batch` raises them.
    """
    found, evaluation = _one_plan(plan, row, base, request)
    return _largest_length(found, evaluation, length or found.workload.lengths[0])


def _one_plan(
    plan: str | os.PathLike[str] | None,
    row: int | None,
    base: Request | None,
    request: Mapping[str, Any],
) -> tuple[Plan, Evaluation]:
    if plan is not None:
        base = pinned_in(Path(plan), row).request()
    asked = make_request(request, base=base)
    return planned(asked, is_open=base is None and not asked.settings)


explain.__signature__ = signature_of(explain)  # type: ignore[attr-defined]
max_batch.__signature__ = signature_of(max_batch)  # type: ignore[attr-defined]
max_batches.__signature__ = signature_of(max_batches)  # type: ignore[attr-defined]
max_length.__signature__ = signature_of(max_length)  # type: ignore[attr-defined]
