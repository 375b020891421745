"""The facts of a sweep as sentences, and its plans in short."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.base import text
from planner.report.short import plan_of, share
from planner.report.told import label, told
from planner.sweeps.columns import COST, PLACES, TIME, VALUE, Row, column_of_measure, measured_ends
from planner.sweeps.summary import Group, Overtaking, Place
from planner.workloads.registry import workload_of

# Most often the same for all.
_TOLD_ONCE = ("reliability", "price")
TITLES = {COST: "cheapest", TIME: "fastest", VALUE: "best value"}


def group_title(group: Group) -> str:
    """The model, the work, and what tells it from other groups."""
    words = [f"{name.replace('_', ' ')} {text.value(value)}" for name, value in group.asked.items()]
    missing = group.scenarios - group.feasible
    without = f" ({text.count(missing)} of {text.count(group.scenarios)} without a plan)"
    known = [word for word in (group.model, group.work, *words) if word]
    return f"{', '.join(known)}{without * (missing > 0)}"


def plan_in_short(row: Row) -> str:
    """The software and the layout of a scenario's plan, as its users write it."""
    return plan_of(workload_of(row["workload"]), row)


def where(row: Row) -> str:
    """The GPU of a scenario, and on what terms it runs."""
    names = [name for name in PLACES if name not in _TOLD_ONCE]
    return ", ".join(str(row[name]) for name in names if row.get(name) is not None)


def wheres(rows: Sequence[Row]) -> list[str]:
    """Where scenarios run, without what is the same for all."""
    varied = [n for n in PLACES if n == "gpu" or len({row.get(n) for row in rows}) > 1]
    return [", ".join(str(r[n]) for n in varied if r.get(n) is not None) for r in rows]


def told_of(measure: str, row: Row, has_ends: bool = True) -> str:
    """A measure of a scenario with its unit, and the ends of its interval."""
    column = column_of_measure(measure, row)
    if not column:
        return "-"
    ends = measured_ends(column, row) if has_ends else None
    unit = f" {label(column)}" if column.endswith("_tokens_usd") else ""
    return told(column, row[column], ends) + unit


def winner_lines(group: Group) -> list[str]:
    """Which place is the cheapest, and which the fastest, for every number of GPUs."""
    found = []
    counts = [count for count in group.counts if count is not None]
    for measure in (COST, TIME) if len(counts) > 1 else ():
        runs: list[tuple[Place, list[int]]] = []
        for count in counts:
            spot = group.best_spot(measure, count)
            if spot is None:
                continue
            if runs and runs[-1][0] == spot[0]:
                runs[-1][1].append(count)
            else:
                runs.append((spot[0], [count]))
        words = [f"{' '.join(place)} with {_range(mine)}" for place, mine in runs]
        if words:
            found.append(f"{TITLES[measure].capitalize()} by number of GPUs: {', '.join(words)}")
    return found


def overtaking_line(one: Overtaking) -> str:
    """Where a GPU becomes better than another."""
    terms = f" ({' '.join(one.first[1:])})" if len(one.first) > 1 else ""
    what = {COST: "cheaper", TIME: "faster"}.get(one.measure, "better")
    ends = (
        f"{share(one.behind)} behind with {text.count(one.before)}",
        f"{share(one.ahead)} ahead{', a tie' * one.is_tie}",
    )
    return (
        f"{one.second[0]} is {what} than {one.first[0]}{terms} from {text.count(one.num_gpus)} "
        f"GPUs on ({'; '.join(ends)})"
    )


def _range(counts: Sequence[int]) -> str:
    ends = [text.count(count) for count in (counts[0], counts[-1])]
    return ends[0] if len(counts) == 1 else " to ".join(ends)


def nowhere_lines(group: Group) -> list[str]:
    """The places without any plan, a line for each reason."""
    lines = []
    for reason, places in group.nowhere().items():
        number = f"{len(places)} with no plan" if len(places) > 1 else "No plan"
        lines.append(f"{number} at any number of GPUs ({reason}): {places_in_short(places)}")
    return lines


def places_in_short(places: Iterable[Place]) -> str:
    """Places in a list."""
    return ", ".join(" ".join(place) for place in places)


def tie_lines(group: Group, measure: str) -> list[str]:
    """The scenarios that published runs do not tell from the best one."""
    best = group.best_spot(measure)
    if best is None:
        return []
    found: dict[Place, list[int]] = {}
    spots = group.ties(measure)
    for place, count in sorted(spots, key=lambda s: group.spots[s].found[measure].value):
        found.setdefault(place, []).append(count or 0)
    words, every = [], len(group.counts)
    for place, counts in found.items():
        numbers = ", ".join(text.count(count) for count in sorted(counts) if count)
        if len(counts) > 1 and len(counts) == every:
            numbers = "any number"
        words.append(f"{' '.join(place)}{f' ({numbers})' if numbers else ''}")
    name = TITLES[measure]
    if not words:
        return [f"Nothing ties with the {name}."]
    return [f"{len(spots)} tie with the {name} (published runs do not tell): {'; '.join(words)}"]


def assumed_lines(group: Group) -> list[str]:
    """The numbers behind the best plans that no source tells."""
    words = {
        f"{row['gpu']}: {row['assumed']}": None
        for row in group.best.values()
        if row.get("assumed") is not None
    }
    return [f"Assumed, without a source: {' / '.join(words)}"] if words else []
