"""The largest batch of each of several methods: every combination of what a question lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import numpy as np

from planner.base.cells import Row, Value
from planner.base.records import record
from planner.configurations.table import ConfigurationTable
from planner.decide.explaining.largest import Largest, largest_batch_of
from planner.errors import SearchSpaceError
from planner.optimize.collector import known_value
from planner.plan.plan import Plan, make_plan
from planner.question.request import ALL, Request
from planner.question.terms import glossary
from planner.workloads.base import only
from planner.workloads.registry import workload_of

MOST_METHODS = 2_000


@record(kw_only=True)
class Method:
    """One of several methods: the ``values`` by which it differs, and the most that fits.

    ``largest`` is None of what cannot be planned at all; ``reason`` is what ends the batch, or why
    there is none.
    """

    values: Row
    largest: Largest | None
    reason: str = ""

    @property
    def row(self) -> Row:
        """The result columns at the largest batch; none where nothing is feasible."""
        found = None if self.largest is None else self.largest.row
        return {} if found is None else found


@record(kw_only=True)
class Methods:
    """Methods with the largest batch of each, ordered by what they differ in.

    ``name`` is what grows: ``micro_batch_size`` to train, ``concurrency`` to serve.
    """

    plan: Plan
    name: str
    methods: Sequence[Method]

    @property
    def columns(self) -> dict[str, list[Value]]:
        """Equally long columns: what methods differ by, the largest batch, its result columns.

        None where nothing is feasible.
        """
        values = dict.fromkeys(name for one in self.methods for name in one.values)
        results = dict.fromkeys(name for one in self.methods for name in one.row)
        told = [name for name in results if name not in values and name != self.name]
        return {
            **{name: [one.values.get(name) for one in self.methods] for name in values},
            self.name: [one.largest.largest if one.largest else None for one in self.methods],
            **{n: [known_value(one.row.get(n)) for one in self.methods] for n in told},
            "ended_by": [one.reason for one in self.methods],
        }


def has_several(request: Request) -> bool:
    """Whether a request lists several methods."""
    answers = [getattr(request, field.name) for field in fields(request)]
    lists = [one for one in answers if isinstance(one, tuple) and one != request.objectives]
    is_all = any(one == ALL for one in answers)
    return is_all or any(one == (ALL,) or _is_several(one) for one in lists) or bool(_set(request))


def methods_of_layouts(request: Request) -> Methods:
    """The largest batch of every combination of the lists of a request that sets its layout.

    What is not set keeps its default, not that of a space.

    Raises
    ------
    SpecError, SearchSpaceError
        Something is unknown, faulty or impossible, or there are too many methods.
    """
    workload = workload_of(request.workload)
    batch = request.settings.get(workload.batch)
    if _is_several(batch):
        raise SearchSpaceError(f"{workload.batch} is what grows: leave its list out.")
    plan = make_plan(replace(request, space=workload.single))
    problem = plan.problem
    if any(source.mesh is None for source in problem.sources):
        raise SearchSpaceError("Several methods are compared for --mode aggregated alone.")
    if problem.num_rows > MOST_METHODS:
        raise SearchSpaceError(
            f"That is {problem.num_rows:,} methods: give lists of {MOST_METHODS:,} at most."
        )
    several = _set(request)
    methods = [
        Method(values={name: cell.get(name) for name in problem.axes}, largest=None, reason=why)
        for cell, why in problem.refused
    ]
    for source, cell in zip(problem.sources, problem.cells, strict=True):
        own = {name: cell.get(name) for name in problem.axes}
        table = only(source)
        for place in _ordered(table, several):
            one = table.rows(np.array([place]))
            values = {name: glossary()[name].shown(getattr(one, name)[0]) for name in several}
            largest = largest_batch_of(plan, source, one, alone=True)
            methods.append(_method_of(largest, own | values))
    return Methods(plan=plan, name=workload.batch, methods=methods)


def _is_several(values: object) -> bool:
    return isinstance(values, list | tuple) and len(values) > 1


def _set(request: Request) -> list[str]:
    """The settings that have several values."""
    return [name for name, values in request.settings.items() if _is_several(values)]


def _ordered(table: ConfigurationTable, names: Sequence[str]) -> Sequence[int]:
    """The rows of a table, those of the first name's first value first."""
    if not names:
        return range(table.size)
    columns = [np.broadcast_to(getattr(table, name), table.size) for name in reversed(names)]
    return [int(place) for place in np.lexsort(columns)]


def _method_of(largest: Largest, values: Row) -> Method:
    """The largest batch of one configuration, with what ends it."""
    if largest.largest is None or largest.following is not None:
        return Method(values=values, largest=largest, reason=largest.reason)
    ends = f"it ends with {largest.ends_at}" if largest.ends_at else "more were not tried"
    return Method(values=values, largest=largest, reason=ends)
