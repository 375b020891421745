"""Worker processes that answer questions: as many at once as there are, the others in turn."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from planner.base.reading import json_of
from planner.base.records import record
from planner.decide.sizing.size import contracts_given, size_all, tasks_of
from planner.errors import InfeasibleError, PlannerError
from planner.optimize.exhaustive import exhaustive_search
from planner.pages.document import Document
from planner.pages.read import document_page
from planner.show.html import environment
from planner.show.views.documents import add_estimate, finish_search, object_text
from planner.show.views.infeasible import infeasible_message
from planner.show.views.rows import RowFiles, result_blocks
from planner.show.views.sizes import add_sizes, question_lines, reason_lines
from planner.specs.catalogue import Catalogue
from planner.ui.guard import Limits, Refused
from planner.ui.question import Question, option_of
from planner.workloads.plan import answered, evaluated, make_plan, one_configuration, result_of

_LOOK_S = 0.05
_TELL_S = 0.1
_PRELOADED = ["planner.ui.pool"]
_GONE = (EOFError, OSError)
_CANCELLED = "It was cancelled."


@dataclass(eq=False, kw_only=True)
class Job:
    """A question that is asked: whether it is worked on, how far, and in the end its answer."""

    question: Question
    client: str
    future: Future[Answer] = field(default_factory=Future)
    done: int = 0
    total: int = 0
    is_running: bool = False
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # who waits for it cannot end it alone

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self.is_cancelled = True


class Pool:
    """So many processes, each with a thread that hands it questions."""

    def __init__(self, limits: Limits, specs: Path | None = None) -> None:
        self.limits, self.specs = limits, specs
        self._context = _context()
        self._waiting: list[Job] = []
        self._running: list[Job] = []
        self._changed = threading.Condition()
        self._is_closed = False
        self._threads = [
            threading.Thread(target=self._serve, daemon=True) for _ in range(limits.workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, question: Question, client: str) -> Job:
        """Have a question answered.

        Raises
        ------
        Refused
            Too many wait already.
        """
        job = Job(question=question, client=client)
        with self._changed:
            self._waiting = [one for one in self._waiting if not self._is_dropped(one)]
            if len(self._waiting) >= self.limits.waiting or self._is_closed:
                raise Refused(
                    f"{len(self._waiting)} questions wait already: try again in some seconds.", 503
                )
            self._waiting.append(job)
            self._changed.notify()
        return job

    def before(self, job: Job) -> int:
        """How many wait before it."""
        with self._changed:
            waiting = [one for one in self._waiting if not one.is_cancelled]
        return waiting.index(job) if job in waiting else 0

    def close(self) -> None:
        """End all processes; what they worked on is refused."""
        with self._changed:
            self._is_closed = True
            for job in (*self._waiting, *self._running):
                job.cancel()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def _is_dropped(self, job: Job) -> bool:
        if job.is_cancelled:
            _refuse(job, Refused(_CANCELLED, 409))
        return job.is_cancelled

    def _next(self) -> Job | None:
        """The first job of the client with the fewest that are worked on; None at the end."""
        with self._changed:
            while True:
                self._waiting = [one for one in self._waiting if not self._is_dropped(one)]
                if self._is_closed:
                    return None
                if self._waiting:
                    break
                self._changed.wait()
            busy = Counter(job.client for job in self._running)
            job = min(self._waiting, key=lambda one: busy[one.client])
            self._waiting.remove(job)
            self._running.append(job)
            job.is_running = True
            return job

    def _serve(self) -> None:
        worker = _Worker(self._context, self.specs, self.limits)
        while (job := self._next()) is not None:
            try:
                worker.work(job)
            except Exception as error:
                worker.end()
                _refuse(job, Refused(f"internal error: {type(error).__name__}: {error}", 500))
            finally:
                with self._changed:
                    self._running.remove(job)
        worker.end()


class _Worker:
    """A process that is begun when it is needed, and again after it ended."""

    def __init__(self, context: BaseContext, specs: Path | None, limits: Limits) -> None:
        self._context, self._specs, self._limits = context, specs, limits
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._tasks = 0

    def work(self, job: Job) -> None:
        """Have a job done; a process that lasts too long, or that nobody waits for, is ended."""
        pipe = self._begun()
        with suppress(*_GONE):  # it is found out below
            pipe.send(job.question)
        started = time.monotonic()
        while True:
            if job.is_cancelled:
                return self._give_up(job, Refused(_CANCELLED, 409))
            if time.monotonic() - started > self._limits.seconds:
                most = f"It takes more than {self._limits.seconds:g} s"
                words = f"{most}: narrow the question, or use the command line."
                return self._give_up(job, Refused(words, 504))
            try:
                if not pipe.poll(_LOOK_S):
                    continue
                kind, value = pipe.recv()
            except _GONE:
                return self._give_up(job, Refused(_LOST, 500))
            if kind == "done":
                job.done, job.total = value
                continue
            self._tasks += 1
            if self._tasks >= self._limits.tasks:
                self.end()
            if kind == "answer":
                job.future.set_result(value)
            else:
                job.future.set_exception(value)
            return None

    def _begun(self) -> Connection:
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            self.end()
            self._pipe, theirs = self._context.Pipe()
            self._process = self._context.Process(  # type: ignore[attr-defined]
                target=_work, args=(theirs, self._specs, self._limits), daemon=True
            )
            self._process.start()
            theirs.close()
        return self._pipe

    def _give_up(self, job: Job, error: Refused) -> None:
        self.end()
        _refuse(job, error)

    def end(self) -> None:
        """End the process, whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        self._tasks = 0


_LOST = "The process that worked on it ended: most likely there is not enough memory for it."


def _refuse(job: Job, error: PlannerError) -> None:
    with suppress(Exception):  # it has its answer
        job.future.set_exception(error)


def _context() -> BaseContext:
    """A fork of a process without threads that has imported what is needed."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _work(pipe: Connection, specs: Path | None, limits: Limits) -> None:
    """A worker: question after question, until the other end of the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    while True:
        try:
            question = pipe.recv()
            pipe.send(_answered(question, specs, limits, pipe))
        except _GONE:
            return


def _answered(
    question: Question, specs: Path | None, limits: Limits, pipe: Connection
) -> tuple[str, object]:
    last = 0.0

    def tell(done: int, total: int) -> None:
        nonlocal last
        if time.monotonic() - last > _TELL_S:
            last = time.monotonic()
            pipe.send(("done", (done, total)))

    try:
        return "answer", answer(question, specs, limits, tell)
    except PlannerError as error:
        return "error", error
    except MemoryError:
        return "error", Refused("There is not enough memory for this: narrow the question.", 413)
    except Exception as error:
        return "error", Refused(f"internal error: {type(error).__name__}: {error}", 500)


Tell = Callable[[int, int], None]
"""Is told how much is done, and of how much."""

_WHERE = "the answer"


@record(kw_only=True)
class Answer:
    """The object of ``--json`` as text, and as a page its content as HTML."""

    title: str
    object: str
    content: str

    @property
    def size(self) -> int:
        """Characters of all."""
        return len(self.object) + len(self.content)


def answer(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> Answer:
    """Answer a question.

    Raises
    ------
    PlannerError
        It is unknown, impossible, infeasible, or beyond a limit.
    """
    text = _ANSWERS[question.command](question, specs, limits, tell)
    if len(text) > limits.answer_bytes:
        raise Refused(_too_large(limits), 413)
    page = document_page(Document.of(json_of(text, _WHERE), _WHERE), Catalogue(specs))
    content = environment().get_template("content.html").render(page=page)
    made = Answer(title=page.title, object=text, content=content)
    if made.size > limits.answer_bytes:
        raise Refused(_too_large(limits), 413)
    return made


def _too_large(limits: Limits) -> str:
    most = limits.answer_bytes / 2**20
    return f"The answer has more than {most:g} MB: narrow the question, or use the command line."


def _search(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> str:
    plan = make_plan(question.request(specs))
    total = plan.problem.num_rows
    if total > limits.rows:
        raise Refused(
            f"That is {total:,} configurations; here a search has at most {limits.rows:,}. Narrow "
            "it with settings, or use the command line.",
            413,
        )
    result = exhaustive_search(plan.problem, progress=lambda done: tell(done, total))
    plan = answered(plan, result)
    if result.fastest is None:
        raise InfeasibleError(infeasible_message(plan, result))

    def add(files: RowFiles) -> None:
        files.add(result_blocks(plan, result.scaled(result.table)))
        finish_search(files, plan, result, question.words, {"driver": "exhaustive"})

    return object_text(add)


def _estimate(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> str:
    plan = one_configuration(question.request(specs))
    found = evaluated(plan)
    if found.rejected_by:
        raise InfeasibleError(infeasible_message(plan, result_of(plan, found), found))
    return object_text(lambda files: add_estimate(files, plan, found, question.words))


def _size(question: Question, specs: Path | None, limits: Limits, tell: Tell) -> str:
    fields = dict(question.fields)
    contracts = contracts_given(fields.pop("contract", None), option_of("contract"))
    asked = Question(command="size", workload=question.workload, fields=fields)
    request = asked.request(specs)
    total = len(tasks_of(request, contracts, said=option_of))
    tell(0, total)
    sizes = size_all(request, contracts, said=option_of, progress=lambda done: tell(done, total))
    if sizes.best is None:
        lines = [*question_lines(sizes), *filter(None, reason_lines(sizes))]
        raise InfeasibleError("\n".join(lines))
    return object_text(lambda files: add_sizes(files, sizes, question.words))


_ANSWERS = {"search": _search, "estimate": _estimate, "size": _size}
