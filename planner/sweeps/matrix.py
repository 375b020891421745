"""A measure of a sweep by GPU and number of GPUs, the winners marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from planner.base import text
from planner.report.told import label, told_alike
from planner.show.page import BAD, BEST, GAP, TIE, TOTAL, Block, Cell, Head, Table, said
from planner.sweeps.columns import MEASURES, VALUE, better, column_of_measure, workloads_of
from planner.sweeps.summary import (
    CHOSEN_BY,
    IMPOSSIBLE,
    LIMIT,
    MEMORY,
    UNKNOWN,
    Group,
    Place,
    Spot,
    reason_mark,
)

MARKS: Mapping[str, str] = {
    MEMORY: "out of memory",
    LIMIT: "misses a limit",
    UNKNOWN: "unknown",
    IMPOSSIBLE: "impossible",
}
"""What the marks of cells without a plan mean."""


def matrix_blocks(group: Group, most: int) -> Iterator[Block]:
    """The measure by GPU and terms, and number of GPUs; the best places where not all fit."""
    metric, sign = group.metric, better(group.metric)
    if not group.knows(metric):
        yield said(unknown_line(group), indent="")
        return
    best = dict.fromkeys(group.places, float("inf"))
    for (place, _), here in group.spots.items():
        if metric in here.found:
            best[place] = min(best[place], sign * here.found[metric].value)
    ranked = sorted(best, key=lambda place: best[place])
    if len(ranked) > most:  # of every GPU the best terms
        ranked = [*{place[:1]: place for place in reversed(ranked)}.values()][-most:]
    chosen = {*ranked}
    places = [place for place in group.places if place in chosen]
    table = matrix_table(group, places)
    yield GAP
    yield said(table.caption, mark=TOTAL, indent="")
    yield table
    if len(places) < len(group.places):
        more = len(group.places) - len(places)
        yield said(f"Each {group.by[0]} on its best terms; {more:,} more rows: --full")


def matrix_table(group: Group, places: Sequence[Place], name: str = "", corner: str = " ") -> Table:
    """The measure of some places of a group, a column for each number of GPUs."""
    column = column_of(group.metric, group)
    cells, unit = cells_of(group, group.metric, column, places)
    heads = ["best" if count is None else text.value(count) for count in group.counts]
    rows = [
        [Cell(text=" ".join(place)), *(cells[place, count] for count in group.counts)]
        for place in places
    ]
    return Table(
        name=name,
        caption=matrix_title(group, column, unit),
        heads=[
            Head(name="place", text=corner),
            *(Head(name=n, text=n, numeric=True, rank=at) for at, n in enumerate(heads, 1)),
        ],
        rows=rows,
        is_small=True,
        is_whole=True,
        elsewhere="--csv has them",
    )


def matrix_title(group: Group, column: str, unit: str) -> str:
    """What a matrix shows, in which unit, and by what."""
    words = "cost x time" if group.metric == VALUE else label(column)
    place, other = group.by
    by = place if group.counts == [None] else f"{place} and {other}" if place else other
    return f"{words[:1].upper()}{words[1:]}{f', {unit},' if unit else ''} by {by}"


def column_of(metric: str, group: Group) -> str:
    """The column that a measure is read from in a group; itself where it has none there."""
    rows = group.best.values() if metric in MEASURES else ()
    return next((found for row in rows if (found := column_of_measure(metric, row))), metric)


def unknown_line(group: Group) -> str:
    """That no scenario of a group tells what is asked for."""
    of = workloads_of(group.shown)
    why = f": it is of workload {' or '.join(of)}" if of and group.workload not in of else ""
    return f"No {'cost x time' if group.shown == VALUE else label(group.shown)} is known here{why}."


def cells_of(
    group: Group, metric: str, column: str, places: Sequence[Place]
) -> tuple[dict[Spot, Cell], str]:
    """Every cell, and their unit."""
    spots = [(place, count) for place in places for count in group.counts]
    known = [s for s in spots if s in group.spots and metric in group.spots[s].found]
    words, unit = told_alike(column, [group.spots[spot].found[metric].value for spot in known])
    winners = {count: group.best_spot(metric, count) for count in group.counts}
    ties = {
        other
        for count, winner in winners.items()
        if winner is not None and metric in CHOSEN_BY
        for other in group.ties(metric, winner)
        if other[1] == count
    }
    cells = dict.fromkeys(spots, Cell(text="-"))
    for spot, number in zip(known, words, strict=True):
        is_best = spot == winners[spot[1]]
        sign, mark = ("*", BEST) if is_best else ("=", TIE) if spot in ties else ("", "")
        value = group.spots[spot].found[metric].value
        cells[spot] = Cell(text=sign + number, number=value, mark=mark)
    for spot in spots:
        here = group.spots.get(spot)
        if here is not None and not here.feasible:
            cells[spot] = Cell(text=reason_mark(here.reason), mark=BAD)
    return cells, unit


def marks_lines(groups: Sequence[Group]) -> list[str]:
    """What the marks of matrices mean."""
    used = {reason_mark(h.reason) for g in groups for h in g.spots.values() if not h.feasible}
    marks = ["* best of its column"]
    if any(group.metric in CHOSEN_BY for group in groups):
        marks.append("= published runs do not tell it from that")
    marks += [f"{mark} {words}" for mark, words in MARKS.items() if mark in used]
    return ["; ".join(marks)]
