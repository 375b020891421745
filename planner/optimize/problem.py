"""A search problem: what to judge, what to optimize, what must hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TypeAlias

import numpy as np

from planner.base.arrays import CodeArray, FloatArray, IndexArray, Numeric
from planner.base.cells import Value
from planner.base.records import record
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.constraints import Constraint
from planner.optimize.source import Candidates, Setting, Source
from planner.question.terms import terms_of

MAX_OBJECTIVES = 3


@record(kw_only=True)
class Objective:
    """An attribute of candidates; ``sign`` is 1 to minimize it, -1 to maximize it."""

    name: str
    sign: int


def objectives(workload: str, names: Iterable[str]) -> tuple[Objective, ...]:
    """Objectives by name, one to three of those of a workload.

    Raises
    ------
    SearchSpaceError
        A name is unknown or repeated, or there are none or too many.
    """
    known, words = terms_of(workload, "objective"), list(names)
    for word in words:
        if word not in known:
            hint = did_you_mean(word, known)
            raise SearchSpaceError(f"Unknown objective {word!r}.{hint} Known: {', '.join(known)}.")
    if not 1 <= len(words) <= MAX_OBJECTIVES or len(set(words)) < len(words):
        raise SearchSpaceError(
            f"Give one to {MAX_OBJECTIVES} different objectives, not {', '.join(words) or 'none'}."
        )
    return tuple(Objective(name=word, sign=known[word].sign) for word in words)


Cell: TypeAlias = Mapping[str, Value]
"""A value of each outer axis: model, GPU, framework or engine, adapter, and so on."""

MEMORIES = ("host", "gpu")
"""Of which a source's last rules say that they are full."""


@record(kw_only=True, repr=False)
class Problem:
    """Everything a driver needs.

    Parameters
    ----------
    cells : for each source, what it is told apart by: model, GPU, framework and so on; sources
        of one cell are alike
    refused : cells without a source, and why
    furthest : factor of the best first objective at which the front ends
    has_ties : published runs tell how far plans must be apart in the first objective
    """

    sources: tuple[Source, ...]
    objectives: tuple[Objective, ...]
    constraints: tuple[Constraint, ...] = ()
    cells: tuple[Cell, ...] = ()
    refused: tuple[tuple[Cell, str], ...] = ()
    furthest: float = np.inf
    has_ties: bool = False

    def __post_init__(self) -> None:
        if not self.cells:
            object.__setattr__(self, "cells", tuple(source.named for source in self.sources))

    def __repr__(self) -> str:
        goals = ", ".join(objective.name for objective in self.objectives)
        number = len(self.sources)
        where = self.sources[0].told if number == 1 else f"{number} cells"
        return f"<Problem: {self.num_rows:,} configurations of {where} by {goals}>"

    @cached_property
    def axes(self) -> Mapping[str, tuple[Value, ...]]:
        """The values of everything in which cells differ, in the order they were asked for."""
        values: dict[str, dict[Value, None]] = {}
        for cell in (*self.cells, *(cell for cell, _ in self.refused)):
            for name, value in cell.items():
                values.setdefault(name, {})[value] = None
        return {name: tuple(several) for name, several in values.items() if len(several) > 1}

    @property
    def setting(self) -> Setting:
        """The first source's setting; model and question are the same in all."""
        return self.sources[0].setting

    @property
    def rejections(self) -> tuple[str, ...]:
        """Names of the rules, of running out of memory, and of the constraints."""
        return (*self.sources[0].rejections, *(constraint.name for constraint in self.constraints))

    @property
    def first_soft(self) -> int:
        """Number of the first rejection that has a distance: both memories, the constraints."""
        return self.sources[0].num_rules + 1

    @property
    def num_rows(self) -> int:
        """Configurations of all sources."""
        return sum(source.num_rows for source in self.sources)

    def codes(self, candidates: Candidates) -> CodeArray:
        """0 or the one-based number of the rejection, limits included, of every row."""
        codes = np.broadcast_to(candidates.rejected_by, candidates.shape)
        first = self.first_soft + len(MEMORIES)
        for number, constraint in enumerate(self.constraints, start=first):
            kept = codes == 0
            if not kept.any():
                break
            codes = np.where(kept & constraint.violated(candidates), np.int8(number), codes)
        return codes

    def values(self, candidates: Candidates, rows: IndexArray) -> FloatArray:
        """Objectives of some rows as columns ``(rows, objectives)``, all to be minimized.

        Each column is contiguous.
        """
        return np.stack(
            [candidates.at(o.sign * candidates.value(o.name), rows) for o in self.objectives]
        ).T

    def limited(self, number: int, candidates: Candidates) -> tuple[FloatArray, int, Numeric]:
        """Value, sign (1 from above, -1 from below) and bound of rejection ``number``, in SI.

        The value is the one at the confidence of the limit; of memory, what is predicted, against
        what may be predicted.
        """
        place = number - self.first_soft
        if place < len(MEMORIES):
            needed, usable = candidates.memory[place]
            return needed, 1, usable
        constraint = self.constraints[place - len(MEMORIES)]
        return constraint.judged(candidates), constraint.sign, constraint.bound
