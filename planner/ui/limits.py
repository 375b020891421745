"""What one request may take, so that no other user is slowed down."""

from __future__ import annotations

import resource
from dataclasses import replace

from planner.base.processes import num_cores
from planner.base.records import record
from planner.errors import PlannerError


class Refused(PlannerError):
    """A request is beyond a limit, or was ended; ``status`` is that of its answer."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status

    def __reduce__(self) -> tuple[type[Refused], tuple[str, int]]:
        return type(self), (str(self), self.status)


@record(kw_only=True)
class Limits:
    """Limits of a request, and of all together.

    Parameters
    ----------
    workers : processes that answer
    seconds : of work on one request
    rows : configurations of one search
    waiting : requests that wait for a worker
    question_bytes : of a query or a body
    answer_bytes : of one answer
    kept_bytes : of all answers that are kept for those who come again
    memory_bytes : of a worker's address space
    tasks : answers after which a worker is replaced
    connections : open ones of all clients
    client_connections : those of one client that is not of this machine
    client_seconds : in which a whole request has come, and in which an answer is taken further
    """

    workers: int = num_cores()
    seconds: float = 60.0
    rows: int = 200_000_000
    waiting: int = 100
    question_bytes: int = 16 * 2**10
    answer_bytes: int = 32 * 2**20
    kept_bytes: int = 64 * 2**20
    memory_bytes: int = 8 * 2**30
    tasks: int = 200
    connections: int = 500
    client_connections: int = 64
    client_seconds: float = 10.0


def within_files(limits: Limits) -> Limits:
    """Limits with no more connections than half of the files that this process may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limits
    return replace(limits, connections=min(limits.connections, files // 2))
