"""A command of planner that ran in this process, as the fixture ``planner`` gives it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    exit_code: int
    out: str
    err: str


Command = Callable[..., Ran]
