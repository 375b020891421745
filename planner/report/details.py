"""What a report says of one configuration beside what every workload has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from rich.console import Console

from planner.base.records import record
from planner.base.units import GIB
from planner.decide.open_facts import moving_facts
from planner.estimators.timeline.spans import Timeline
from planner.optimize.collector import first_row
from planner.optimize.source import Candidates
from planner.plan.plan import Plan
from planner.question.terms import term_of_column
from planner.report.console import print_folded, print_pairs, print_title
from planner.report.open_facts import open_lines
from planner.report.parts import host_words, memory_table
from planner.report.sure import sure_pairs
from planner.workloads.base import Evaluation


@record(kw_only=True)
class Details:
    """The part of a report that only one workload has.

    ``memory_and_speed`` prints one configuration; ``more`` what an estimate has beside that, its
    operators last; ``operators`` gives these as rows for a file. ``times``: the seconds of a step
    by part, under the name of each kind of step; ``timelines``: such steps over time. ``to_see``:
    what `planner estimate` shows and a search does not.
    """

    memory_and_speed: Callable[[Console, Plan, Candidates], None]
    more: Callable[[Console, Plan, Evaluation], None]
    operators: Callable[[Evaluation], Sequence[dict[str, Any]]]
    times: Callable[[Candidates], Mapping[str, Mapping[str, float]]] = lambda _: {}
    timelines: Callable[[Candidates], Sequence[Timeline]] = lambda _: ()
    to_see: str = "To see it in full"


_OF = {
    "train": ("planner.report.training_details", "TRAINING"),
    "inference": ("planner.report.serving_details", "BATCHES"),
    "serve": ("planner.report.serving_details", "DEPLOYMENTS"),
}


def details_of(plan: Plan) -> Details:
    """The details of a plan's workload; of one that has none of its own what all have."""
    module, name = _OF.get(plan.workload.name, (__name__, "PLAIN"))
    found: Details = getattr(import_module(module), name)
    return found


def print_sure(console: Console, plan: Plan, candidates: Candidates) -> None:
    """Where 90 % of published runs like the first row would be, if any, and what is open."""
    row = first_row(candidates.columns())
    sure = candidates.source.confidence(row["num_gpus"])
    facts = moving_facts(plan, candidates)
    lines = open_lines(plan, facts)
    if sure is not None or lines:
        print_title(console, "How sure")
    if sure is not None:
        capacity = candidates.source.setting.machine.gpu.allocatable_memory / GIB
        pairs = sure_pairs(row, sure, capacity, facts)
        if on_host := host_words(row, candidates.source.setting.machine):
            pairs["host memory"] = on_host
        print_pairs(console, pairs)
    for line in lines:
        print_folded(console, line)


def print_memory(console: Console, candidates: Candidates, of: str = "GPU") -> None:
    """The memory of the first row by part."""
    row = first_row(candidates.columns())
    print_title(console, f"Memory of the fullest {of}")
    console.print(memory_table(console, row, candidates.source.setting.machine))


def _results(console: Console, plan: Plan, candidates: Candidates) -> None:
    """The memory, and every other result by its name."""
    print_memory(console, candidates)
    print_title(console, "Speed")
    row = first_row(candidates.columns())
    pairs = {
        name.replace("_", " "): f"{value:,.4g}"
        for name, value in row.items()
        if isinstance(value, float)
        and "memory" not in name
        and (term := term_of_column(name)) is not None
        and "result" in term.kind
    }
    print_pairs(console, pairs)
    print_sure(console, plan, candidates)


PLAIN = Details(memory_and_speed=_results, more=lambda *_: None, operators=lambda _: ())
