"""One configuration of a launch file, as its framework or engine would run it."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.base.cells import Row, Value, number
from planner.decide.improve import Change, best_changes
from planner.optimize.collector import full_rows
from planner.question.request import Request
from planner.workloads.base import Evaluation
from planner.workloads.plan import Plan, evaluated, one_configuration

if TYPE_CHECKING:
    from planner.launch.imported import Imported

_OUT = "out_of_memory"
_CAP = "concurrency"


def as_started(request: Request, burst: int | None = None) -> tuple[Request, tuple[str, ...]]:
    """The request as an engine runs what a launch file says, and what is to be said of that.

    Raises
    ------
    SpecError, SearchSpaceError, InfeasibleError
        The question is impossible.
    """
    if request.workload != "serve" or _CAP not in request.settings:
        return request, ()
    plan, _, notes = judged(request, burst)
    return plan.request, notes


def judged(request: Request, burst: int | None = None) -> tuple[Plan, Evaluation, tuple[str, ...]]:
    """The plan of a launch file as it is started, its prediction, and what is to be said of it.

    An engine takes in as many requests as its cache has room for: a larger ``max_num_seqs`` is
    a bound that is never reached. With a request rate the number that it keeps busy counts, of so
    many at most.

    Raises
    ------
    SpecError, SearchSpaceError, InfeasibleError
        The question is impossible.
    """
    cap = request.settings.get(_CAP) if request.workload == "serve" else None
    if cap is not None and request.request_rate is not None:
        others = {name: value for name, value in request.settings.items() if name != _CAP}
        ranks = int(_first(request.settings.get("attention_data_parallel", 1)))
        seqs = request.max_num_seqs or max(int(_first(cap)) // ranks, 1)
        request, cap = replace(request, settings=others, max_num_seqs=seqs), None
    plan = one_configuration(request, burst)
    found = evaluated(plan, burst)
    if cap is None or not _lacks_room(found):
        return plan, found, ()
    room = _most_that_fit(request, int(_first(cap)), full_row(found).get("most_sequences"))
    if room is None:
        return plan, found, ()
    plan = one_configuration(_with_cap(request, room), burst)
    note = f"Its cache holds {room:,} requests at once, not for {int(_first(cap)):,}."
    return plan, evaluated(plan, burst), (note,)


def changes_of(
    imported: Imported,
    request: Request,
    plan: Plan,
    found: Evaluation,
    row: Row,
    beside: Collection[str] = (),
) -> list[Change]:
    """What is better near the plan of a launch file, can be said in it, and keeps its load.

    ``beside`` are the parameters that the user said beside the file.
    """
    most = most_asked(request, row, imported.defaults.keys() - {*beside})
    can_say = imported.target.table.can_say
    return best_changes(
        plan,
        found,
        lambda name, value: (
            value is not None and can_say(name, value) and (name != _CAP or number(value) <= most)
        ),
    )


def most_asked(
    request: Request, own: Mapping[str, object], defaults: Collection[str] = ()
) -> float:
    """The load that was given, in requests of a replica at once: no change raises that.

    ``own`` are the result columns of the request, of a rate with the number it keeps busy;
    ``defaults`` names what a file leaves to its engine. Without bound where nobody gave a load.
    """
    if request.workload != "serve":
        return math.inf
    if request.request_rate is not None:
        return float(str(own[_CAP]))
    if _CAP in request.settings and _CAP not in defaults:
        return _first(request.settings[_CAP])
    return math.inf


def _most_that_fit(request: Request, cap: int, near: Value) -> int | None:
    """The most requests at once that the memory has room for; None where it has none for one.

    ``near`` is the number beside which it is looked for first.
    """
    low, high = 0, cap
    tried = [*range(int(near), int(near) + 2)] if isinstance(near, int | float) else []
    while high - low > 1:
        middle = next((one for one in tried if low < one < high), (low + high) // 2)
        found = evaluated(one_configuration(_with_cap(request, middle)))
        fits = not (found.rejected_by or _lacks_room(found))
        low, high = (middle, high) if fits else (low, middle)
    return low or None


def _lacks_room(found: Evaluation) -> bool:
    """Whether not all requests find room at once."""
    return found.rejected_by == _OUT or found.candidates.waits


def _with_cap(request: Request, cap: int) -> Request:
    return replace(request, settings={**request.settings, _CAP: cap})


def _first(value: object) -> float:
    return float(str(value[0] if isinstance(value, tuple | list) else value))


def full_row(found: Evaluation) -> Row:
    """The result columns of one configuration, unknown numbers as None."""
    (row,) = full_rows(found.table(), [found.source])
    return row
