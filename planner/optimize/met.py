"""What a sampling driver has met: the outcome of every row, and a search around the best."""

from __future__ import annotations

import math

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.optimize.neighbourhood import coarse_mesh, neighbours
from planner.optimize.samples import Samples

_BEST = 8
_MOST_PAIRS = 2**13

Outcome = tuple[list[float], float]


class Met:
    """Evaluates rows, each once, and keeps the best few by each objective.

    Between batches of trials, `explore` evaluates the neighbourhoods of the best rows.
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._sizes = [len(values) for values in samples.parameters.values()]
        self._outcomes: dict[bytes, Outcome] = {}
        self._expanded: set[tuple[bytes, int]] = set()
        width, objectives = len(self._sizes), len(samples.objectives)
        self._best = [np.empty((0, width), dtype=np.intp) for _ in range(objectives)]
        self._best_values = [np.empty((0, 2)) for _ in range(objectives)]

    def __contains__(self, row: IndexArray) -> bool:
        return row.tobytes() in self._outcomes

    @property
    def exhausted(self) -> bool:
        """Whether every configuration of the space has been evaluated."""
        return len(self._outcomes) == self._samples.num_rows

    def outcome(self, row: IndexArray) -> Outcome:
        """Objectives, minimized, and the violation of a row that was evaluated."""
        return self._outcomes[row.tobytes()]

    def evaluate(self, rows: IndexArray) -> None:
        """Judge the rows that are new, each once, in one call."""
        fresh = {row.tobytes(): place for place, row in enumerate(rows)}
        places = [place for key, place in fresh.items() if key not in self._outcomes]
        if not places:
            return
        rows = rows[places]
        objectives, violation = self._samples.evaluate(rows)
        violation = np.maximum(violation, np.isnan(objectives).any(axis=1))
        # Samplers compare rejected trials by their violation alone, but accept no NaN.
        told = np.nan_to_num(objectives, nan=0.0, posinf=0.0, neginf=0.0)
        keys = (row.tobytes() for row in rows)
        pairs = zip(told.tolist(), violation.tolist(), strict=True)
        self._outcomes.update(zip(keys, pairs, strict=True))
        for number, column in enumerate(told.T):
            self._keep_best(number, rows, np.stack([violation, column], axis=1))

    def explore(self) -> None:
        """Evaluate a coarse sub-mesh first, then what is next to the best rows until none improves.

        One parameter is changed at a time; of the very best row, two at a time as well.
        """
        if not self._outcomes:
            self.evaluate(coarse_mesh(self._sizes))
        for number in range(len(self._best)):
            while self._expand(number):
                pass

    def best(self) -> list[IndexArray]:
        """The best rows by each objective in turn, without repetitions."""
        rows = [row for rank in range(_BEST) for table in self._best for row in table[rank:][:1]]
        return list({row.tobytes(): row for row in rows}.values())

    def _expand(self, number: int) -> bool:
        """Evaluate around the best rows by one objective; whether there was anything to do."""
        for changes, most in ((1, _BEST), (2, 1)):
            around = [
                row for row in self._best[number][:most] if self._is_new(row.tobytes(), changes)
            ]
            if around:
                self.evaluate(np.concatenate([self._next_to(row, changes) for row in around]))
                return True
        return False

    def _next_to(self, row: IndexArray, changes: int) -> IndexArray:
        rows = neighbours(row, self._sizes, changes)
        # Evenly thinned, so that a space of many long parameters costs no more than others.
        return rows[:: math.ceil(max(len(rows), 1) / _MOST_PAIRS)]

    def _is_new(self, key: bytes, changes: int) -> bool:
        known = (key, changes) in self._expanded
        self._expanded.add((key, changes))
        return not known

    def _keep_best(self, number: int, rows: IndexArray, ranks: FloatArray) -> None:
        """Merge rows into the best by objective ``number``; equal ones go by their positions."""
        rows = np.concatenate([self._best[number], rows])
        ranks = np.concatenate([self._best_values[number], ranks])
        order = np.lexsort((*rows.T[::-1], ranks[:, 1], ranks[:, 0]))[:_BEST]
        self._best[number], self._best_values[number] = rows[order], ranks[order]
