"""Takes in evaluations from any driver and keeps what the result needs."""

from __future__ import annotations

import time

import numpy as np

from planner.arrays import CodeArray, FloatArray, IndexArray
from planner.configurations.rules import RULES
from planner.configurations.training import NAMES, TrainingConfigurations
from planner.optimize.pareto import pareto_front, undominated
from planner.optimize.problem import Evaluation, Problem, count_codes, judge, values
from planner.optimize.result import NearestMiss, SearchResult
from planner.optimize.violations import first_soft


class Collector:
    """Keeps the Pareto front, the counts and the nearest misses of all evaluations so far."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._front: TrainingConfigurations | None = None
        self._front_values: FloatArray = np.empty((0, len(problem.objectives)))
        self._counts = np.zeros(len(problem.rejections) + 1, dtype=np.int64)
        self._misses: dict[int, NearestMiss] = {}
        self._started = time.perf_counter()

    def add(self, evaluation: Evaluation) -> None:
        """Take in the feasible rows and the counts of one evaluation."""
        self._count(evaluation)
        feasible = evaluation.feasible
        if feasible.size:
            self._misses.clear()
            self._merge(evaluation, feasible)

    def skip(self, counts: IndexArray) -> None:
        """Count configurations that rules rejected, by the number of the rejection."""
        self._counts += counts

    def result(self) -> SearchResult:
        """What was found; the front is evaluated again, row by row, for its breakdowns."""
        problem = self._problem
        front = self._front
        return SearchResult(
            problem=problem,
            estimate=None if front is None else judge(problem, front).estimate,
            configurations_evaluated=int(self._counts.sum()),
            configurations_predicted=int(self._counts[0] + self._counts[len(RULES) + 1 :].sum()),
            configurations_feasible=int(self._counts[0]),
            rejected_by={
                name: int(count)
                for name, count in zip(problem.rejections, self._counts[1:], strict=True)
                if count
            },
            nearest_misses=tuple(self._misses[number] for number in sorted(self._misses)),
            search_time=time.perf_counter() - self._started,
        )

    def _count(self, evaluation: Evaluation) -> None:
        shape = evaluation.estimate.configurations.shape
        codes = np.broadcast_to(evaluation.rejected_by, shape)
        counts = count_codes(codes, len(self._problem.rejections))
        self._counts += counts
        for number in np.flatnonzero(counts).tolist():
            if number >= first_soft(self._problem):
                self._miss(number, evaluation, codes)

    def _miss(self, number: int, evaluation: Evaluation, codes: CodeArray) -> None:
        """Remember the row that comes closest to keeping a limit, while nothing is feasible."""
        if self._counts[0]:
            return
        rows = np.flatnonzero(codes == number)
        miss = NearestMiss.among(self._problem, number, evaluation.estimate, rows)
        if number not in self._misses or miss.excess < self._misses[number].excess:
            self._misses[number] = miss

    def _merge(self, evaluation: Evaluation, feasible: IndexArray) -> None:
        candidates = values(self._problem, evaluation.estimate)[feasible]
        kept = undominated(candidates, self._front_values)
        rows, candidates = feasible[kept], candidates[kept]
        best = pareto_front(candidates)
        if not best.size:
            return
        found = evaluation.estimate.configurations.rows(rows[best])
        merged = np.concatenate([self._front_values, candidates[best]])
        if self._front is not None:
            found = _concatenate(self._front, found)
        front = pareto_front(merged)
        self._front, self._front_values = found.chosen(front), merged[front]


def _concatenate(
    first: TrainingConfigurations, second: TrainingConfigurations
) -> TrainingConfigurations:
    return TrainingConfigurations(
        **{name: np.concatenate([getattr(first, name), getattr(second, name)]) for name in NAMES}
    )
