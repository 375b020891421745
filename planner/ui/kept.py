"""What is kept for a while: answers, what is being worked on, and what was uploaded."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TypeAlias

from planner.errors import PlannerError, SearchSpaceError
from planner.ui.guard import Limits, Refused
from planner.ui.pool import Answer, Job, Pool
from planner.ui.question import Question, is_file

Key: TypeAlias = tuple[str, str, bool, int]

_LEFT_S = 30.0
_KEPT_FAULTS = 200
_MOST_FILES = 16
_LONGEST_NAME = 100


@dataclass
class Watched:
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
        self._asked: dict[str, Watched] = {}
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

    def ask(self, question: Question, client: str) -> Watched:
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
        self._asked[name] = Watched(name=name, job=job, asked=time.monotonic())
        return self._asked[name]

    def find(self, name: str) -> Watched | None:
        """A job by its name."""
        return self._asked.get(name)

    def cancel(self, asked: Watched) -> None:
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
        has_files = bool(question.files)
        return question.command, question.query, has_files, changed(self._pool.specs)


def changed(folder: Path | None) -> int:
    """When the last of a folder's files was changed [ns]; 0 without one."""
    if folder is None:
        return 0
    times = (path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
    return max(times, default=0)


class Uploads:
    """Texts that were uploaded, in memory, by what they say; the latest last."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._files: OrderedDict[str, tuple[tuple[str, str], ...]] = OrderedDict()

    def keep(self, table: object) -> str:
        """Keep files, ``{"files": [{"name": ..., "text": ...}]}``; what a question calls them.

        Raises
        ------
        SearchSpaceError
            They are none, or too many.
        """
        files = table.get("files") if isinstance(table, dict) else None
        if not isinstance(files, list) or not 0 < len(files) <= _MOST_FILES:
            raise SearchSpaceError(f"Upload 1 to {_MOST_FILES} text files.")
        found: dict[str, str] = {}
        for file in files:
            name, text = (file.get(key) if isinstance(file, dict) else None for key in _PARTS)
            if not isinstance(name, str) or not isinstance(text, str):
                raise SearchSpaceError("A file has a name and a text.")
            short = PurePosixPath(name.replace("\\", "/")).name
            if short in ("", "..") or not short.isprintable() or len(short) > _LONGEST_NAME:
                raise SearchSpaceError(
                    f"A file's name has up to {_LONGEST_NAME} printable characters."
                )
            if "\0" in text:
                raise SearchSpaceError(f"{short}: is not text.")
            found[short] = text
        kept = tuple(found.items())
        token = hashlib.sha256(repr(kept).encode()).hexdigest()[:24]
        self._files[token] = kept
        self._files.move_to_end(token)
        while len(self._files) > 1 and self._size > self._limits.uploads_bytes:
            self._files.popitem(last=False)
        return f"{token}:{kept[0][0]}"

    @property
    def _size(self) -> int:
        return sum(len(text) for files in self._files.values() for _, text in files)

    def placed(self, question: Question) -> Question:
        """The question with the files that it names, where they are still kept."""
        tokens = [text.partition(":")[0] for n, text in question.fields.items() if is_file(n)]
        files = tuple(file for token in tokens for file in self._files.get(token, ()))
        return replace(question, files=files) if files else question


_PARTS = ("name", "text")
