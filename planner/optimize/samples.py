"""A search problem as a driver that samples sees it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, Numeric
from planner.base.cells import Value
from planner.base.version import __version__
from planner.confidence.intervals import MEDIAN
from planner.configurations.table import ConfigurationTable, word
from planner.optimize.collector import Collector
from planner.optimize.constraints import Constraint
from planner.optimize.problem import MEMORIES, Problem
from planner.optimize.source import Candidates, Mesh

_SMALLEST = 1e-12


def violations(problem: Problem, candidates: Candidates, codes: CodeArray) -> FloatArray:
    """One number per row: 0 where feasible, the larger the further from it.

    Missing a constraint is worth (0, 1], running out of memory (1, 2], both by the relative
    excess, and breaking a rule more than 2, the less the later the rule that breaks first.
    ``codes`` are those of `planner.optimize.problem.Problem.codes`.
    """
    soft, codes = problem.first_soft, np.ravel(codes)
    graded = np.where((codes > 0) & (codes < soft), 3 - codes / soft, 0.0)
    for number in range(soft, len(problem.rejections) + 1):
        rows = np.flatnonzero(codes == number)
        if rows.size:
            value, _, bound = problem.limited(number, candidates)
            is_memory = number < soft + len(MEMORIES)
            graded[rows] = (
                relative_excess(candidates.at(value, rows), candidates.at(bound, rows)) + is_memory
            )
    return graded


def relative_excess(value: FloatArray, bound: Numeric) -> FloatArray:
    """Distance over distance plus bound: near 0 just beyond the bound, 1 if unknown."""
    distance = np.abs(value - bound)
    with np.errstate(invalid="ignore"):
        share = distance / (distance + np.abs(bound))
    return np.asarray(np.maximum(np.nan_to_num(share, nan=1.0), _SMALLEST))


Direction: TypeAlias = Literal["minimize", "maximize"]
Outcomes: TypeAlias = tuple[FloatArray, FloatArray]

# Worse than any rule of a configuration that exists.
_NOT_OF_THE_SOURCE = 4.0


class Samples:
    """Parameters with allowed values, and a function that judges rows and collects them.

    ``parameters`` maps each parameter to its values by word (text, number or flag), in an order
    where neighbours are alike; what can only be chosen together is one parameter. Several
    sources are the parameter ``source``; what only some of them have is infeasible for the
    others, and counted for none. Sources without a mesh are not sampled.
    """

    def __init__(self, problem: Problem, collectors: Sequence[Collector]) -> None:
        self._problem = problem
        pairs = zip(problem.sources, problem.cells, collectors, strict=True)
        meshed = [(one, one.mesh, cell, to) for one, cell, to in pairs if one.mesh is not None]
        self._sources = [(one, mesh, to) for one, mesh, _, to in meshed]
        self._cells = [cell for _, _, cell, _ in meshed]
        worded = [_worded(mesh) for _, mesh, _ in self._sources]
        joint = {
            name: list(dict.fromkeys(word for own in worded for word in own[name]))
            for name in worded[0]
        }
        names = [" ".join(map(str, cell.values())) for cell in self._cells]
        self.parameters: Mapping[str, Sequence[Value]] = {"source": names, **joint}
        self._entries = [
            [_entries(own[name], words) for name, words in joint.items()] for own in worded
        ]

    @property
    def name(self) -> str:
        """What a study of the problem is called: its model."""
        return self._problem.setting.model.name

    @property
    def digest(self) -> str:
        """Equal for problems whose trials mean the same, in any process."""
        problem = self._problem
        identity = (
            __version__,
            [(source.named, source.identity, _worded(mesh)) for source, mesh, _ in self._sources],
            [objective.name for objective in problem.objectives],
            [_told(constraint) for constraint in problem.constraints],
        )
        return hashlib.sha256(repr(identity).encode()).hexdigest()

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """The direction of each objective."""
        return {o.name: "minimize" if o.sign > 0 else "maximize" for o in self._problem.objectives}

    @property
    def num_rows(self) -> int:
        """Number of combinations of the parameters' values."""
        return int(np.prod([len(words) for words in self.parameters.values()], dtype=object))

    def evaluate(self, rows: IndexArray) -> Outcomes:
        """Judge configurations and take them into the result.

        ``rows`` has a line per configuration and a column per parameter: the positions of its
        values. Returns the objectives, minimized, as columns, and per row how far it is from
        being feasible: 0 where it is. A row must not be given twice.
        """
        objectives = np.full((len(rows), len(self._problem.objectives)), np.nan)
        violation = np.full(len(rows), _NOT_OF_THE_SOURCE)
        for number, (source, mesh, collector) in enumerate(self._sources):
            places = [
                table[rows[:, axis]] for axis, table in enumerate(self._entries[number], start=1)
            ]
            mine = np.flatnonzero((rows[:, 0] == number) & (np.min(places, axis=0) >= 0))
            if not mine.size:
                continue
            candidates = source.judged(_chosen(mesh, [place[mine] for place in places]))
            collector.add(candidates)
            objectives[mine] = self._problem.values(candidates, np.arange(mine.size))
            codes = self._problem.codes(candidates)
            violation[mine] = violations(self._problem, candidates, codes)
        return objectives, violation


def _told(limit: Constraint) -> tuple[object, ...]:
    sure = () if limit.confidence == MEDIAN else (limit.confidence,)
    return (limit.name, limit.bound, *sure)


def _chosen(mesh: Mesh, places: Sequence[IndexArray]) -> ConfigurationTable:
    """The flat table of some entries of each factor of a mesh."""
    columns = {
        name: values[place]
        for factor, place in zip(mesh.factors, places, strict=True)
        for name, values in factor.items()
    }
    return mesh.kind(**columns)


def _worded(mesh: Mesh) -> dict[str, list[str | float]]:
    """The entries of each factor of a mesh, by name and in words."""
    worded: dict[str, list[str | float]] = {}
    for factor in mesh.factors:
        words = {name: [word(name, v) for v in values] for name, values in factor.items()}
        if len(words) == 1:
            worded.update(words)
            continue
        lines = zip(*words.values(), strict=True)
        worded[" ".join(words)] = [" ".join(str(word) for word in line) for line in lines]
    return worded


def _entries(own: Sequence[object], words: Sequence[object]) -> IndexArray:
    """Where each of all words is among a source's own; -1 where it is not."""
    places = {word: place for place, word in enumerate(own)}
    return np.array([places.get(word, -1) for word in words], dtype=np.intp)
