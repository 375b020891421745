"""A replay of a trace beside what is predicted in closed form."""

from __future__ import annotations

from collections.abc import Iterator

from planner.base import text
from planner.decide.replayed import LATENCIES, SHARES, replayed
from planner.optimize.source import Candidates
from planner.show.page import Block, grid, said
from planner.show.views.told import label
from planner.workloads.plan import Plan

_APART = 0.2


def replay_blocks(plan: Plan, candidates: Candidates) -> Iterator[Block]:
    """Mean and percentiles of each latency, replayed and predicted, and what differs."""
    found = replayed(candidates, plan.request)
    heads = ("", "", "mean", *(f"p{100 * share:.0f}" for share in SHARES))
    rows = [
        (words, how, *(text.duration(one[share]) for share in (None, *SHARES)))
        for name in LATENCIES
        for words, how, one in (
            (label(f"{name}_s"), "replayed", found.seen[name]),
            ("", "predicted", found.predicted[name]),
        )
    ]
    yield said(f"Replay of {text.count(found.requests)} requests:")
    yield grid(heads, rows, words=(0, 1))
    if found.hit_rates is not None:
        predicted, seen = (text.percent(share) for share in found.hit_rates)
        yield said(f"Prompts found in the caches: {seen} replayed, {predicted} predicted.")
    if apart := found.differs(_APART):
        names = ", ".join(label(f"{name}_s") for name in apart)
        yield said(
            f"Prediction and replay differ by more than {_APART:.0%} in mean {names}: the replay "
            "has the order of these very requests; other hours have another."
        )
