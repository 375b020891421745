"""Ways to serve as a driver that samples sees them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from planner.arrays import CodeArray, FloatArray, IndexArray
from planner.configurations.serving import ServingConfigurations
from planner.configurations.table import word
from planner.estimators.inference.estimate import SERVING_REJECTIONS
from planner.optimize.optuna_search import sample
from planner.optimize.sampled import Direction, Outcomes
from planner.optimize.serving.aggregated import judged
from planner.optimize.serving.collector import ServingCollector
from planner.optimize.serving.deployments import Candidates
from planner.optimize.serving.problem import AGGREGATED, ServingProblem, Source
from planner.optimize.serving.search import ServingResult, gathered, grouped, search_source
from planner.optimize.violations import relative_excess
from planner.version import __version__

# Worse than any rule of a configuration that exists.
_NOT_OF_THE_SOURCE = 4.0


def sampled_serving_search(problem: ServingProblem, **how: Any) -> ServingResult:
    """Sample aggregated replicas; disaggregated workers, which are few, are searched whole.

    ``how`` are the arguments of `planner.optimize.optuna_search.sample`.

    Raises
    ------
    SearchSpaceError
        An argument is impossible, the study belongs to another problem, or no source is of
        aggregated replicas.
    OutputError
        The file of the study cannot be read or written.
    """
    started = time.perf_counter()
    groups, collectors = grouped(problem)
    if any(source.mode == AGGREGATED for source in problem.sources):
        sample(ServingSamples(problem, collectors), **how)
    for source, collector in zip(problem.sources, collectors, strict=True):
        if source.mode != AGGREGATED:
            search_source(problem, source, collector)
    return gathered(problem, groups, started)


class ServingSamples:
    """`planner.optimize.sampled.Samplable` of aggregated replicas.

    An axis of joint columns is one parameter. Several GPUs and engines are the parameter
    ``source``; what only some of them have is infeasible for the others, and counted for none.
    """

    def __init__(self, problem: ServingProblem, collectors: Sequence[ServingCollector]) -> None:
        self._problem = problem
        pairs = zip(problem.sources, collectors, strict=True)
        self._sources = [(one, to) for one, to in pairs if one.mode == AGGREGATED]
        worded = [_worded(source) for source, _ in self._sources]
        names = [
            f"{source.pool.gpu} {source.pool.setting.engine.name}" for source, _ in self._sources
        ]
        axes = {
            name: list(dict.fromkeys(word for own in worded for word in own[name]))
            for name in worded[0]
        }
        self.parameters: Mapping[str, Sequence[Any]] = {"source": names, **axes}
        self._entries = [
            [_entries(own[name], words) for name, words in axes.items()] for own in worded
        ]

    @property
    def name(self) -> str:
        """Of the model, and that it is served."""
        return f"{self._problem.setting.model.name} served"

    @property
    def digest(self) -> str:
        """Equal for problems whose trials mean the same."""
        problem = self._problem
        pools = [
            (source.counts, source.request_rate, source.pool.setting, source.pool.price)
            for source, _ in self._sources
        ]
        identity = (
            __version__,
            [[_worded(source) for source, _ in self._sources], pools],
            [objective.name for objective in problem.objectives],
            [(constraint.name, constraint.bound) for constraint in problem.constraints],
        )
        return hashlib.sha256(repr(identity).encode()).hexdigest()

    @property
    def objectives(self) -> Mapping[str, Direction]:
        """The direction of each objective."""
        return {o.name: "minimize" if o.sign > 0 else "maximize" for o in self._problem.objectives}

    @property
    def num_rows(self) -> int:
        """Number of combinations."""
        return int(np.prod([len(words) for words in self.parameters.values()], dtype=object))

    def evaluate(self, rows: IndexArray) -> Outcomes:
        """Judge replicas by the positions of their values, and collect them."""
        objectives = np.full((len(rows), len(self._problem.objectives)), np.nan)
        violation = np.full(len(rows), _NOT_OF_THE_SOURCE)
        for number, (source, collector) in enumerate(self._sources):
            places = [
                table[rows[:, axis]] for axis, table in enumerate(self._entries[number], start=1)
            ]
            mine = np.flatnonzero((rows[:, 0] == number) & (np.min(places, axis=0) >= 0))
            if not mine.size:
                continue
            columns = {
                name: values[place[mine]]
                for axis, place in zip(source.pool.mesh.axes, places, strict=True)
                for name, values in axis.items()
            }
            candidates = judged(source, ServingConfigurations(**columns))
            collector.add(candidates)
            objectives[mine] = collector.objectives(candidates, np.arange(mine.size))
            violation[mine] = _violations(self._problem, candidates, collector.codes(candidates))
        return objectives, violation


def _worded(source: Source) -> dict[str, list[Any]]:
    """The entries of each axis of a source's mesh, by name and in words."""
    worded: dict[str, list[Any]] = {}
    for axis in source.pool.mesh.axes:
        words = {name: [word(name, v) for v in values] for name, values in axis.items()}
        if len(words) == 1:
            worded.update(words)
            continue
        lines = zip(*words.values(), strict=True)
        worded[" ".join(words)] = [" ".join(str(word) for word in line) for line in lines]
    return worded


def _entries(own: Sequence[Any], words: Sequence[Any]) -> IndexArray:
    """Where each of all words is among a source's own; -1 where it is not."""
    places = {word: place for place, word in enumerate(own)}
    return np.array([places.get(word, -1) for word in words], dtype=np.intp)


def _violations(problem: ServingProblem, candidates: Candidates, codes: CodeArray) -> FloatArray:
    """As `planner.optimize.violations.violations`."""
    soft = len(SERVING_REJECTIONS)
    graded = np.where((codes > 0) & (codes < soft), 3 - codes / soft, 0.0)
    for number in range(soft, len(problem.rejections) + 1):
        rows = codes == number
        if not rows.any():
            continue
        if number > soft:
            constraint = problem.constraints[number - soft - 1]
            value, bound = constraint.limit.value(candidates.deployments), constraint.bound
        elif candidates.memory is not None:
            value, bound = candidates.memory[0], float(candidates.memory[1])
        else:
            value, bound = np.asarray(np.nan), 0.0
        excess = relative_excess(np.broadcast_to(value, codes.shape)[rows], bound)
        graded[rows] = excess + (number == soft)
    return graded
