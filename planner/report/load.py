"""What is said first of a plan for a stated load: whether it carries it, and how surely."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner import text
from planner.optimize.collector import first_row
from planner.optimize.constraints import with_rate
from planner.optimize.source import Candidates
from planner.plan import Plan

_SAME = 1e-3


def load_line(plan: Plan, candidates: Candidates) -> str:
    """Whether the first row carries the stated rate, its capacity, and what is in flight.

    Without a stated rate how many requests wait for room; empty where none do. The probability is
    the least of those that the capacity reaches the rate and that each limit is kept.
    """
    rate = plan.request.request_rate
    row = first_row(candidates.columns())
    capacity = row.get("capacity_requests_per_s")
    if rate is None or capacity is None:
        return _waiting_line(row) if candidates.waits and not row.get("rejected_by") else ""
    asked = with_rate(plan.problem.constraints, rate)
    chances = [one for limit in asked if math.isfinite(one := limit.chance(candidates))]
    surely = f" with {text.chance(min(chances))}" if chances else ""
    held = text.significant(row["requests_in_flight"])
    at_most = f"it carries at most {text.significant(capacity)}"
    if row["requests_per_s"] < rate * (1 - _SAME):
        return f"Less than the load: {at_most} requests/s, not {rate:g}{surely}."
    within = " within the limits" if plan.problem.constraints else ""
    return (
        f"Carries {rate:g} requests/s{within}{surely}: {at_most}. Times and costs are those at "
        f"this rate, {held} requests in flight in each."
    )


def _waiting_line(row: Mapping[str, Any]) -> str:
    number, room = row["concurrency"], row["most_sequences"]
    if not room < number:
        return ""
    return (
        f"Fits; {text.count(room)} of {text.count(number)} requests at once in each, the others "
        f"wait: {text.duration(row['time_to_first_token_s'])} to the first token."
    )
