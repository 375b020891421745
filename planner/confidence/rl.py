"""How sure predicted steps of reinforcement learning are: the errors of published ones."""

from __future__ import annotations

from planner.confidence.intervals import TRANSFERRED, Confidence

STEP_TIME = (0.5, 2.5)
"""Factors between which nine of ten published steps of sources that were left out lie."""
_LAYOUT = 1.3


def rl_confidence() -> Confidence:
    """The same for all frameworks and GPUs until there are more sources."""
    return Confidence(factors={"step_time": STEP_TIME}, layout=_LAYOUT, basis=TRANSFERRED)
