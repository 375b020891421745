"""Limits that a feasible configuration must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from planner.arrays import BoolArray
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.source import Candidates
from planner.terms import terms_of


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """``bound`` in SI units on an attribute of candidates: from above (``sign`` 1) or below (-1).

    ``unit`` as the table of terms has it. ``assumed``: nobody gave it, see
    `planner.optimize.relaxing`.
    """

    name: str
    bound: float
    sign: int
    unit: str
    assumed: bool = False

    def violated(self, candidates: Candidates) -> BoolArray:
        """Where the bound does not hold; an unknown value does not hold it."""
        with np.errstate(invalid="ignore"):
            value = candidates.value(self.name)
            return np.asarray(~(self.sign * value <= self.sign * self.bound))


def constraints(
    workload: str, bounds: Mapping[str, float], assumed: Mapping[str, float] | None = None
) -> tuple[Constraint, ...]:
    """Constraints from bounds in SI units by name; those that are ``assumed`` come last.

    Raises
    ------
    SearchSpaceError
        A name is unknown or a bound is negative or not a number.
    """
    known, defaults = terms_of(workload, "limit"), dict(assumed or {})
    for name, bound in bounds.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise SearchSpaceError(f"Unknown constraint {name!r}.{hint} Known: {', '.join(known)}.")
        if not (np.isfinite(bound) and bound >= 0):
            raise SearchSpaceError(f"The limit of {name} must be a number of at least 0.")
    return tuple(
        Constraint(
            name=name,
            bound=bound,
            sign=known[name].sign,
            unit=known[name].type,
            assumed=name in defaults,
        )
        for name, bound in {**bounds, **defaults}.items()
    )
