"""Jobs by their links, and answers that are kept for those who come again."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from planner.errors import PlannerError
from planner.ui.limits import Refused
from planner.ui.pool import Job, Pool
from planner.ui.question import Question
from planner.ui.work import Answer

Key: TypeAlias = tuple[str, str, int]

_LEFT_S = 30.0
_KEPT_FAULTS = 200


@dataclass
class Asked:
    """A job of one client: how many connections watch it, and when somebody last asked for it."""

    name: str
    job: Job
    asked: float
    watchers: int = 0


class Kept:
    """What was answered, by question, the latest last; and what is being worked on, by client.

    All of it is used by one thread, that of the event loop.
    """

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._answers: OrderedDict[Key, Answer] = OrderedDict()
        self._faults: OrderedDict[Key, PlannerError] = OrderedDict()
        self._asked: dict[str, Asked] = {}
        self._size = 0

    def answer(self, question: Question) -> Answer | PlannerError | None:
        """The answer to a question, or what is wrong with it; None where it is not known.

        That something lasted too long or was lost is told once: the next time it is tried again.
        """
        key = self._key(question)
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        fault = self._faults.get(key)
        if isinstance(fault, Refused):
            del self._faults[key]
        return fault

    def ask(self, question: Question, client: str) -> Asked:
        """The job of a client's question: one that is worked on, or a new one.

        Raises
        ------
        Refused
            Too many wait already.
        """
        self.settle()
        for asked in self._asked.values():
            if asked.job.client == client and asked.job.question == question:
                asked.asked = time.monotonic()
                return asked
        name, job = secrets.token_urlsafe(12), self._pool.submit(question, client)
        self._asked[name] = Asked(name=name, job=job, asked=time.monotonic())
        return self._asked[name]

    def find(self, name: str) -> Asked | None:
        """A job by its name."""
        return self._asked.get(name)

    def cancel(self, asked: Asked) -> None:
        """Nobody waits for a job any more."""
        asked.job.cancel()
        self._asked.pop(asked.name, None)

    def settle(self) -> None:
        """Keep what has been answered since; cancel what nobody watches or asked for in a while."""
        now = time.monotonic()
        for name, asked in [*self._asked.items()]:
            if asked.job.future.done():
                del self._asked[name]
                self._keep(asked.job)
            elif not asked.watchers and now - asked.asked > _LEFT_S:
                self.cancel(asked)

    def _keep(self, job: Job) -> None:
        key, error = self._key(job.question), job.future.exception()
        if error is None:
            found = job.future.result()
            old = self._answers.pop(key, None)
            self._size -= 0 if old is None else old.size
            self._answers[key] = found
            self._size += found.size
            while self._size > self._pool.limits.kept_bytes and len(self._answers) > 1:
                _, oldest = self._answers.popitem(last=False)
                self._size -= oldest.size
        elif isinstance(error, PlannerError):
            self._faults[key] = error
            while len(self._faults) > _KEPT_FAULTS:
                self._faults.popitem(last=False)

    def _key(self, question: Question) -> Key:
        """A question, and when the folder of own specs was changed last."""
        return question.command, question.query, changed(self._pool.specs)


def changed(folder: Path | None) -> int:
    """When the last of a folder's files was changed [ns]; 0 without one."""
    if folder is None:
        return 0
    times = (path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
    return max(times, default=0)
