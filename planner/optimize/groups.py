"""What was found for each cell: one value of every outer axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np

from planner.base.arrays import IndexArray, distinct
from planner.base.cells import Value
from planner.base.records import record
from planner.confidence.ranking import Standing, lack_of, most_known, regrets, tied
from planner.configurations.table import ConfigurationTable
from planner.optimize.collector import Collector, NearestMiss
from planner.optimize.pareto import pareto_front, useful
from planner.optimize.problem import MEMORIES, Cell, Problem
from planner.optimize.recommendation import Choice, Simplest
from planner.optimize.source import Candidates, Source
from planner.optimize.sureness import bad_factor, factors_apart


@record(kw_only=True)
class Group:
    """What was found in a cell."""

    cell: Cell
    collector: Collector


def grouped(problem: Problem) -> tuple[list[Group], list[Collector]]:
    """The groups of a problem, and the collector of each source."""
    groups: dict[tuple[Value, ...], Group] = {}
    collectors = []
    for cell in problem.cells:
        key = tuple(cell.values())
        if key not in groups:
            groups[key] = Group(cell=cell, collector=Collector(problem))
        collectors.append(groups[key].collector)
    return list(groups.values()), collectors


def first(groups: Sequence[Group]) -> tuple[Source, ConfigurationTable] | None:
    """The source and the configuration of the best row."""
    found = [group.collector for group in groups if len(group.collector.values)]
    return min(found, key=lambda one: tuple(one.values[0])).place(0) if found else None


Pieces: TypeAlias = Sequence[tuple[IndexArray, Candidates]]
"""Candidates of several sources, each with the places of its rows in one table."""


def joint_front(groups: Sequence[Group], furthest: float, ahead: Choice | None = None) -> Pieces:
    """The front of all groups, judged, up to a factor of the best first objective.

    A plan that is ``ahead`` has the first place, before the front.
    """
    found = [group.collector for group in groups]
    values = [one.values for one in found]
    together = np.concatenate(values)
    front = pareto_front(together)
    front = front[useful(together[front], furthest)]
    owners = np.repeat(np.arange(len(found)), [len(one) for one in values])[front]
    starts = np.cumsum([0, *map(len, values)])
    tables: dict[int, list[tuple[IndexArray, ConfigurationTable]]] = {}
    sources: dict[int, Source] = {}
    if ahead is not None:
        sources[id(ahead.source)] = ahead.source
        tables[id(ahead.source)] = [(np.zeros(1, dtype=np.intp), ahead.configuration)]
    for number in distinct(owners).tolist():
        places = np.flatnonzero(owners == number)
        for mine, source, table in found[number].pieces(front[places] - starts[number]):
            sources[id(source)] = source
            piece = (places[mine] + (ahead is not None), table)
            tables.setdefault(id(source), []).append(piece)
    # Each prediction costs the same milliseconds, whatever the number of rows.
    return [
        (
            np.concatenate([places for places, _ in several]),
            sources[key].judged(type(several[0][1]).stacked([table for _, table in several])),
        )
        for key, several in tables.items()
    ]


def best_choice(
    problem: Problem, groups: Sequence[Group], *, is_proven: bool = False
) -> Choice | None:
    """Of the cell to take the simplest plan that published runs do not tell from its fastest.

    It is the best one in a bad case, or of those that are tied with it one with more evidence.
    ``is_proven``: only software that was measured on the GPU.
    """
    ranked = ranked_choices(problem, groups)
    if is_proven:
        ranked = [one for one in ranked if one[0].is_proven]
    return ranked[most_known([standing for standing, _ in ranked])][1] if ranked else None


def better_tied(problem: Problem, groups: Sequence[Group], chosen: Choice) -> Choice | None:
    """The best as predicted of the choices that are tied with one and predicted to be better."""
    ranked = ranked_choices(problem, groups)
    own = next((standing for standing, one in ranked if one is chosen), None)
    better = [
        one
        for standing, one in ranked
        if own is not None and one.values[0] < chosen.values[0] and tied(own, standing)
    ]
    return min(better, key=lambda one: one.values[0], default=None)


def regret_of(problem: Problem, groups: Sequence[Group], chosen: Choice) -> float:
    """What a choice is expected to lose against the best of those of other cells, as
    `planner.confidence.ranking.regrets`; NaN without others, or where nothing tells of its errors.
    """
    ranked = ranked_choices(problem, groups)
    own = [at for at, (_, one) in enumerate(ranked) if one is chosen]
    if len(ranked) < 2 or not own:
        return math.nan
    standings = [standing for standing, _ in ranked]
    return float(regrets(standings, problem.objectives[0].sign)[own[0]])


def ranked_choices(problem: Problem, groups: Sequence[Group]) -> list[tuple[Standing, Choice]]:
    """The plan to launch of each cell beside how its best one stands, the best in a bad case first.

    The modes of a cell are one choice.
    """
    cells: dict[tuple[Value, ...], list[Group]] = {}
    for group in groups:
        key = tuple(value for name, value in group.cell.items() if name != "mode")
        cells.setdefault(key, []).append(group)
    joined = (Simplest.joined(one.collector.simplest for one in cell) for cell in cells.values())
    found = []
    for one in joined:
        fastest = one.best
        if fastest is None or (chosen := _simplest(problem, one, fastest)) is None:
            continue
        order = bad_case(problem, fastest), fastest.weighed, *fastest.values
        found.append((order, (_standing(problem, fastest), chosen)))
    return [one for _, one in sorted(found, key=lambda one: one[0])]


def _simplest(problem: Problem, simplest: Simplest, fastest: Choice) -> Choice | None:
    return simplest.choice(fastest.tie_factor if problem.has_ties else 1.0)


def bad_case(problem: Problem, choice: Choice) -> float:
    """The first objective, minimized and weighed, that 9 of 10 runs like a plan keep.

    Infinite where runs tell the errors of others, but not of its like.
    """
    goal = problem.objectives[0]
    sure = choice.source.confidence(choice.num_gpus)
    factor = bad_factor(sure, goal.name, goal.sign)
    return math.inf if factor is None else choice.weighed * factor


def _standing(problem: Problem, choice: Choice) -> Standing:
    """A choice among those of other cells by the first objective."""
    goal, sure = problem.objectives[0].name, choice.source.confidence(choice.num_gpus)
    value, (low, high) = abs(choice.weighed), factors_apart(sure, goal) or (math.nan, math.nan)
    return Standing(
        value=value,
        low=value * low,
        high=value * high,
        bad=abs(bad_case(problem, choice)),
        kin=tuple(choice.source.named.values()),
        tie_factor=choice.tie_factor,
        lack=lack_of("", math.nan) if sure is None else lack_of(sure.basis, sure.runs),
    )


def cell_of(problem: Problem, choice: Choice) -> Cell:
    """The cell that a plan was found in."""
    cells = zip(problem.sources, problem.cells, strict=True)
    return next(cell for source, cell in cells if source is choice.source)


def by_value(problem: Problem, groups: Sequence[Group], axis: str) -> Mapping[Value, list[Group]]:
    """The groups of each value of an axis; none of a value that was refused."""
    return {
        value: [group for group in groups if group.cell.get(axis) == value]
        for value in problem.axes[axis]
    }


def nearest(groups: Sequence[Group]) -> Iterator[NearestMiss]:
    """The nearest miss of each limit, where nothing at all is feasible."""
    if any(group.collector.counts[0] for group in groups):
        return
    misses = [miss for group in groups for miss in group.collector.misses]
    for name in dict.fromkeys(miss.rejection for miss in misses):
        yield min((m for m in misses if m.rejection == name), key=lambda miss: miss.excess)


def why(problem: Problem, groups: Sequence[Group]) -> str:
    """The limit that most plans missed; if none came so far, the memory, or the last rule.

    Rules are looked at in their order: what breaks the last of them keeps all others. Of feasible
    plans without a front the objective that is unknown; empty where nothing was judged.
    """
    counts = np.sum([group.collector.counts for group in groups], axis=0, initial=0)
    if not np.any(counts):
        return ""
    if counts[0]:
        return problem.objectives[0].name
    soft = problem.first_soft
    limits = soft + len(MEMORIES)
    for part in (slice(limits, None), slice(soft, limits)):
        if counts[part].any():
            return problem.rejections[(part.start - 1) + int(np.argmax(counts[part]))]
    return problem.rejections[int(np.flatnonzero(counts)[-1]) - 1]
