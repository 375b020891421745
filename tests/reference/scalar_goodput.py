"""A naive twin of goodput: the life of a job, second by second of its failures, drawn at random."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Job:
    """Seconds of training between checkpoints, and what these and recoveries take.

    A checkpoint stops training for ``blocking``, and can be used ``write`` after it began.
    """

    interval: float
    blocking: float
    write: float
    recovery: float
    between_failures: float


def training_time_share(job: Job, seed: int, failures: int) -> float:
    """Lasting progress over the time that it takes, until so many failures have come."""
    draw = random.Random(seed)
    elapsed = progress = 0.0
    for _ in range(failures):
        life = draw.expovariate(1 / job.between_failures)
        elapsed += life
        progress += _lasting(job, life - job.recovery)
    return progress / elapsed


def _lasting(job: Job, life: float) -> float:
    """Seconds of training that checkpoints keep of a life that a failure ends."""
    kept = trained = now = 0.0
    while True:
        now += job.interval
        trained += job.interval
        if now + job.write > life:
            return kept
        kept = trained
        now += job.blocking
