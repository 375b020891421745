"""Limits that a feasible configuration must keep."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from planner.arrays import BoolArray
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.objectives import TRAINING_VALUES, Value
from planner.terms import terms_of


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A quantity that can be limited: from above (``sign`` 1) or from below (-1)."""

    sign: int
    value: Value
    unit: str


@dataclass(frozen=True, kw_only=True)
class Constraint:
    """``bound`` on a quantity, in SI units."""

    name: str
    bound: float
    limit: Limit

    def violated(self, *predicted: Any) -> BoolArray:
        """Where the bound does not hold; an unknown value does not hold it."""
        with np.errstate(invalid="ignore"):
            value = self.limit.value(*predicted)
            return np.asarray(~(self.limit.sign * value <= self.limit.sign * self.bound))


def limits_of(workload: str, values: Mapping[str, Value]) -> dict[str, Limit]:
    """The limits of a workload: its ``values`` that the table of terms calls so."""
    return {
        name: Limit(sign=term.sign, value=values[name], unit=term.type)
        for name, term in terms_of(workload, "limit").items()
    }


LIMITS = limits_of("train", TRAINING_VALUES)


def constraints(
    bounds: Mapping[str, float], known: Mapping[str, Limit] = LIMITS
) -> tuple[Constraint, ...]:
    """Constraints from bounds in SI units by name.

    Raises
    ------
    SearchSpaceError
        A name is unknown or a bound is negative or not a number.
    """
    for name, bound in bounds.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise SearchSpaceError(f"Unknown constraint {name!r}.{hint} Known: {', '.join(known)}.")
        if not (np.isfinite(bound) and bound >= 0):
            raise SearchSpaceError(f"The limit of {name} must be a number of at least 0.")
    return tuple(
        Constraint(name=name, bound=bound, limit=known[name]) for name, bound in bounds.items()
    )
