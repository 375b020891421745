"""Parts of the report of a configuration that depend on the workload."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from string import Formatter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from planner.base.csv_cells import Row, Value
from planner.base.formatting import (
    format_count,
    format_duration,
    format_percent,
    format_significant,
    format_usd,
)
from planner.base.records import record
from planner.base.units import DAY, GIB
from planner.decide.assumptions import sensitive_assumptions
from planner.optimize.source import Candidates
from planner.question.terms import term_of_column
from planner.show.output_blocks import Block, KeyValues, Title, make_lines
from planner.show.presenters.format_results import (
    format_gpu_hours,
    format_host_memory,
    memory_table,
    number_of,
)
from planner.show.presenters.uncertainty import assumption_lines, interval_pairs, unnamed_lines
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Evaluation

if TYPE_CHECKING:
    from planner.estimators.timeline.pipeline_schedule import Timeline

ResultT = TypeVar("ResultT", bound=Candidates)
"""The configurations of a workload."""


@record(kw_only=True)
class Details(Generic[ResultT]):
    """The part of a report that depends on the workload.

    ``memory_and_speed``: blocks of one configuration; ``more``: further blocks of an estimate, with
    operators last; ``operators``: their rows for a file. ``times``: seconds of a step by part, by
    kind of step; ``timelines``: such steps over time. ``memory``: GiB of the fullest GPU by part,
    by phase if there are several. ``distributions``: percentiles of latencies. ``to_see``: title of
    the command that shows more than a search.
    """

    memory_and_speed: Callable[[Plan, ResultT], Iterable[Block]]
    more: Callable[[Plan, Evaluation], Iterable[Block]]
    operators: Callable[[Evaluation], Sequence[Row]]
    times: Callable[[ResultT], Mapping[str, Mapping[str, float]]] = lambda _: {}
    timelines: Callable[[ResultT], Sequence[Timeline]] = lambda _: ()
    memory: Callable[[ResultT], Mapping[str, Mapping[str, float]]] = lambda _: {}
    distributions: Callable[[ResultT], Mapping[str, Sequence[object]]] | None = None
    to_see: str = "To see it in full"


_OF = {
    "train": ("planner.show.presenters.training_details", "TRAINING"),
    "inference": ("planner.show.presenters.serving_details", "BATCHES"),
    "serve": ("planner.show.presenters.serving_details", "DEPLOYMENTS"),
    "rl": ("planner.show.presenters.training_details", "RL"),
}


def details_of(plan: Plan) -> Details[Any]:
    """The details of a plan's workload; `DEFAULT_DETAILS` if it has none."""
    module, name = _OF.get(plan.workload.name, (__name__, "DEFAULT_DETAILS"))
    details: Details[Any] = getattr(import_module(module), name)
    return details


_FORMATS: Mapping[str, Callable[[float], str]] = {
    "count": format_count,
    "number": format_significant,
    "percent": format_percent,
    "time": format_duration,
    "days": lambda days: format_duration(DAY * days),
    "hours": format_gpu_hours,
    "usd": format_usd,
}
UNKNOWN_PRICE = "price unknown: give --price"


class _Number(float):
    """A result that a template formats by the name of a format, such as ``time``."""

    def __format__(self, kind: str) -> str:
        return _FORMATS[kind](float(self))


def text_pairs(row: Row, templates: Mapping[str, str]) -> dict[str, str]:
    """Return results of a row as text by name; without empty texts and unknown numbers.

    A template names columns with their formats: ``{requests_per_s:number} a second``.
    """
    numbers = {n: _Number(x) for n in row if not math.isnan(x := number_of(row, n))}
    columns = {
        name: {column for _, column, _, _ in Formatter().parse(template) if column}
        for name, template in templates.items()
    }
    return {
        name: template.format_map(numbers)
        for name, template in templates.items()
        if template and columns[name] <= {*numbers}
    }


OTHERS = "all modules"
"""The module name of parts of a step that belong to no module."""


def by_module(rows: Iterable[Row], names: Sequence[str]) -> list[dict[str, Value]]:
    """Return operator rows summed by module in the columns ``names``; `OTHERS` stay as rows."""
    sums: dict[str, dict[str, float]] = {}
    for row in rows:
        group = str(row["operator"] if row["module"] == OTHERS else row["module"])
        totals = sums.setdefault(group, dict.fromkeys(names, 0.0))
        for name in names:
            totals[name] += number_of(row, name)
    return [{"operator": group, **totals} for group, totals in sums.items()]


def uncertainty_blocks(plan: Plan, candidates: Candidates) -> Iterator[Block]:
    """Yield the first row's 90 % intervals, if there are published runs, and assumptions."""
    row = candidates.row
    confidence = candidates.source.confidence_of(row)
    assumptions = sensitive_assumptions(plan, candidates)
    lines = assumption_lines(plan, assumptions)
    if confidence is not None or lines:
        yield Title(text="Uncertainty")
    if confidence is not None:
        capacity = candidates.source.usable_memory(row) / GIB
        pairs = interval_pairs(row, confidence, capacity)
        if host_memory := format_host_memory(row, candidates.source.inputs.machine):
            pairs["host memory"] = host_memory
        yield KeyValues(pairs=pairs)
        lines = [*unnamed_lines(candidates.source.gpu), *lines]
    for line in lines:
        yield make_lines(line)


def memory_blocks(candidates: Candidates, gpu_label: str = "GPU") -> Iterator[Block]:
    """The memory of the first row by part."""
    row = candidates.row
    yield Title(text=f"Memory of the fullest {gpu_label}")
    yield memory_table(row, candidates.source.inputs.machine)


def _results(plan: Plan, candidates: Candidates) -> Iterator[Block]:
    """Yield a table of the memory and of every other result of a row, as text by name."""
    yield from memory_blocks(candidates)
    yield Title(text="Speed")
    row = candidates.row
    pairs = {
        name.replace("_", " "): f"{value:,.4g}"
        for name, value in row.items()
        if isinstance(value, float)
        and "memory" not in name
        and (term := term_of_column(name)) is not None
        and "result" in term.kind
    }
    yield KeyValues(pairs=pairs)
    yield from uncertainty_blocks(plan, candidates)


DEFAULT_DETAILS = Details(memory_and_speed=_results, more=lambda *_: (), operators=lambda _: ())
