"""What a log says, before a plan is known: steps, quantities, memory, and the run's numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from planner.base.records import record

STEP_TIME = "step_time_s"
TOKENS = "tokens_per_s_per_gpu"
SAMPLES = "samples_per_s"
"""Sequences of the whole run per second; no column of runs, the plan's batch turns it over."""


_LARGEST = 1e15


def plain_number(given: Any) -> float | None:
    """A number of a log, from text or JSON; None where it is none that a run can have."""
    try:
        found = math.nan if isinstance(given, bool) else float(given)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if abs(found) <= _LARGEST else None


def plain_count(given: Any) -> int:
    """A whole number of a log; 0 where it is none that a run can have."""
    return int(plain_number(given) or 0)


@record(kw_only=True)
class Step:
    """A line about one step, or about the steps since the line before.

    ``value`` is that of the reading's quantity; ``batch`` is the global batch size where the
    line tells it [sequences], else 0; ``after`` names what was done just before: an evaluation, a
    checkpoint.
    """

    number: int
    stream: str
    value: float
    batch: int = 0
    after: str = ""


@record(kw_only=True)
class Reading:
    """What was understood of a log.

    ``format`` is its name for ``--log-format``, ``title`` what printed it, ``is_training`` None
    where that cannot be told. Either ``steps`` of
    training tell ``quantity`` line by line, or ``values`` tell quantities of the whole run, both
    by the names of columns of runs without ``measured_``, in their units. ``percentiles`` has
    those of requests by quantity and percent, ``memory`` what the fullest GPU held [GiB] by
    kind. ``facts`` are numbers of the run, by the names of columns too, ``notes`` what else a
    reader must know.
    """

    format: str
    title: str
    is_training: bool | None
    quantity: str = STEP_TIME
    steps: tuple[Step, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    percentiles: Mapping[tuple[str, int], float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.steps or self.values)
