"""Takes in candidates from any source and keeps what the result needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import CodeArray, FloatArray, IndexArray
from planner.estimators.inference.estimate import SERVING_REJECTIONS
from planner.optimize.pareto import pareto_front, undominated
from planner.optimize.serving.deployments import Candidates, Deployments
from planner.optimize.serving.problem import ServingProblem


@dataclass(frozen=True, kw_only=True)
class ServingMiss:
    """What comes closest to keeping the limit that rejected it; SI units."""

    rejection: str
    row: dict[str, Any]
    value: float
    bound: float

    @property
    def excess(self) -> float:
        """How far beyond the bound, as a fraction of it."""
        return abs(self.value - self.bound) / max(abs(self.bound), 1e-300)


class ServingCollector:
    """Keeps the Pareto front, the counts and the nearest misses of all candidates so far.

    ``values`` are the objectives of the front, minimized and sorted.
    """

    def __init__(self, problem: ServingProblem) -> None:
        self._problem = problem
        self._objectives = problem.objectives
        self._blocks: list[Candidates] = []
        self.values: FloatArray = np.empty((0, len(self._objectives)))
        self._places: IndexArray = np.empty((0, 2), dtype=np.intp)
        self._misses: dict[str, ServingMiss] = {}
        self.counts = np.zeros(len(problem.rejections) + 1, dtype=np.int64)

    def skip(self, counts: IndexArray) -> None:
        """Count what rules rejected, by the number of the rejection."""
        self.counts[: len(counts)] += counts

    def add(self, candidates: Candidates) -> IndexArray:
        """Take in candidates; returns the flat indices of the feasible ones."""
        codes = self.codes(candidates)
        counts = np.bincount(codes.ravel(), minlength=len(self.counts))
        self.counts += counts
        feasible = np.flatnonzero(codes == 0)
        if feasible.size:
            self._merge(candidates, feasible)
        if not self.counts[0]:
            self._miss(candidates, codes, counts)
        return feasible

    @property
    def misses(self) -> tuple[ServingMiss, ...]:
        """The nearest miss of each limit, while nothing is feasible."""
        return () if self.counts[0] else tuple(self._misses.values())

    @property
    def best(self) -> tuple[float, ...]:
        """The objectives of the best row, minimized; infinite where there is none."""
        return tuple(self.values[0]) if len(self.values) else (np.inf,)

    def table(self, rows: IndexArray) -> dict[str, list[Any]]:
        """Some rows of the front as columns, in their order."""
        pieces = []
        places = self._places[rows]
        for block in np.unique(places[:, 0]):
            mine = np.flatnonzero(places[:, 0] == block)
            pieces.append((mine, self._blocks[block].rows(places[mine, 1])))
        order = np.argsort(np.concatenate([mine for mine, _ in pieces]))
        joined = {
            name: [value for _, columns in pieces for value in columns[name]]
            for name in pieces[0][1]
        }
        return {name: [values[row] for row in order] for name, values in joined.items()}

    def codes(self, candidates: Candidates) -> CodeArray:
        """0 or the one-based number of the rejection, limits included."""
        deployments = candidates.deployments
        codes = np.broadcast_to(candidates.rejected_by, deployments.shape)
        first = len(SERVING_REJECTIONS) + 1
        for number, constraint in enumerate(self._problem.constraints, start=first):
            violated = (codes == 0) & constraint.violated(deployments)
            codes = np.where(violated, np.int8(number), codes)
        return codes

    def objectives(self, candidates: Candidates, rows: IndexArray) -> FloatArray:
        """Objectives of some rows as columns, all to be minimized."""
        deployments = candidates.deployments
        columns = [_at(o.sign * o.value(deployments), deployments, rows) for o in self._objectives]
        return np.stack(columns, axis=1)

    def _merge(self, candidates: Candidates, feasible: IndexArray) -> None:
        values = self.objectives(candidates, feasible)
        kept = undominated(values, self.values)
        rows, values = feasible[kept], values[kept]
        best = pareto_front(values)
        if not best.size:
            return
        places = np.stack([np.full(best.size, len(self._blocks)), rows[best]], axis=1)
        self._blocks.append(candidates)
        merged = np.concatenate([self.values, values[best]])
        front = pareto_front(merged)
        self.values = merged[front]
        self._places = np.concatenate([self._places, places])[front]

    def _miss(self, candidates: Candidates, codes: CodeArray, counts: IndexArray) -> None:
        names, first = self._problem.rejections, len(SERVING_REJECTIONS)
        for number in range(first, len(names) + 1):
            if not counts[number]:
                continue
            rows = np.flatnonzero(codes == number)
            miss = self._nearest(candidates, number, rows)
            if miss is None:
                continue
            known = self._misses.get(miss.rejection)
            if known is None or miss.excess < known.excess:
                self._misses[miss.rejection] = miss

    def _nearest(self, candidates: Candidates, number: int, rows: IndexArray) -> ServingMiss | None:
        deployments = candidates.deployments
        if number == len(SERVING_REJECTIONS):
            if candidates.memory is None:
                return None
            sign, (needed, has) = 1, candidates.memory
            values, bound = _at(needed, deployments, rows), float(has)
        else:
            constraint = self._problem.constraints[number - len(SERVING_REJECTIONS) - 1]
            sign, bound = constraint.limit.sign, constraint.bound
            values = _at(constraint.limit.value(deployments), deployments, rows)
        if np.isnan(values).all():
            return None
        nearest = int(np.nanargmin(sign * values))
        columns = candidates.rows(rows[[nearest]])
        return ServingMiss(
            rejection=self._problem.rejections[number - 1],
            row={name: values[0] for name, values in columns.items()},
            value=float(values[nearest]),
            bound=bound,
        )


def _at(value: Any, deployments: Deployments, rows: IndexArray) -> FloatArray:
    return np.broadcast_to(value, deployments.shape).ravel()[rows]
