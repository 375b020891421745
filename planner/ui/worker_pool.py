"""Worker processes that answer questions, and the cache of their answers."""

from __future__ import annotations

import hashlib
import io
import json
import multiprocessing
import os
import secrets
import signal
import threading
import time
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from planner.base.read_files import TABLE, parse_json, read_bytes
from planner.base.records import record
from planner.commands.options import FILE
from planner.errors import PlannerError, SearchSpaceError
from planner.launch.targets import targets
from planner.optimize.exhaustive import StopSearch
from planner.show.html import environment, markdown, page_html
from planner.show.output_blocks import PICTURES, Page
from planner.show.presenters.plots.picture import Picture
from planner.show.presenters.row_tables import csv_cell
from planner.show.theme import DARK, LIGHT
from planner.ui.question import PRICES, Question, is_file
from planner.ui.request_limits import Limits, RequestRefused
from planner.ui.run_commands import (
    UPLOADED,
    WHERE,
    CommandInput,
    ProgressCallback,
    check_size,
    prepare_input,
    run_command,
)
from planner.workloads.registry import workload_of
from planner.workloads.saved_plan import SavedPlan

PLAN_FILE = "plan.toml"
OBJECT_FILE = "answer.json"
"""The file with the object of an answer and the first lines of its page."""
MARKDOWN_FILE = "page.md"


@record(kw_only=True)
class Answer:
    """An answer: the object of ``--json`` as text, and the content of its page as HTML.

    ``assumed`` are the values assumed for empty fields; ``plan`` is the query that estimates its
    plan, ``targets`` the tools that can start it, the best match first; ``is_drawn``: it has
    pictures.
    """

    title: str
    object: str
    content: str
    workload: str = ""
    assumed: Mapping[str, str] = field(default_factory=dict)
    plan: str = ""
    targets: Sequence[str] = ()
    is_drawn: bool = False

    @property
    def size(self) -> int:
        """Characters of the object and the page."""
        return len(self.object) + len(self.content)


@record(kw_only=True)
class AnswerFile:
    """A file of an answer."""

    name: str
    kind: str
    content: bytes


def answer(
    question: Question, specs: Path | None, limits: Limits, report_progress: ProgressCallback
) -> Answer:
    """Return the answer to a question.

    Raises PlannerError if the question is invalid, infeasible, or beyond a limit.
    """
    with prepare_input(question, specs, limits, report_progress) as command_input:
        command = run_command(command_input)
        text = _hide_folders(command_input, command.object)
        check_size(len(text), limits)
        content = environment().get_template("content.html").render(page=command.page)
        line = _hide_folders(command_input, command.line)
    result = Answer(
        title=command.page.title,
        object=text,
        content=_hide_folders(command_input, content),
        workload=command.pinned.workload if command.pinned else question.workload,
        assumed={**_assumption_texts(text), **command.assumption_texts},
        plan=_plan_question(question, line).query if line else "",
        targets=_targets(command.pinned) if command.pinned else (),
        is_drawn=command.draw is not None,
    )
    check_size(result.size, limits)
    return result


def make_file(
    question: Question,
    name: str,
    specs: Path | None,
    limits: Limits,
    report_progress: ProgressCallback,
) -> AnswerFile:
    """Return a file of an answer: ``table.csv``, ``page.html``, ``plan.toml``, ``launch.zip``.

    The file can also be a picture, ``front.png``, whose name may end in ``-dark``.

    Raises PlannerError if the question has no answer, or the answer has no such file.
    """
    with prepare_input(question, specs, limits, report_progress) as command_input:
        command = run_command(command_input)
        stem, _, ending = name.rpartition(".")
        picture = stem.removesuffix("-dark")
        pictures = PICTURES.get(question.command, PICTURES["estimate"])
        if ending in ("png", "svg") and command.draw is not None and picture in pictures:
            path = command_input.folder / f"picture.{ending}"
            theme = DARK if stem.endswith("-dark") else LIGHT
            command.draw(Picture(path=path, name=picture, theme=theme))
            kind = "image/png" if ending == "png" else "image/svg+xml"
            return AnswerFile(name=name, kind=kind, content=read_bytes(path, TABLE))
        texts: dict[str, tuple[str, Callable[[], str]]] = {
            "page.html": ("text/html", lambda: page_html(command.page)),
            MARKDOWN_FILE: ("text/markdown", lambda: markdown(command.page)),
            "table.csv": ("text/csv", lambda: _csv(command.object)),
        }
        if command.pinned is not None:
            texts[PLAN_FILE] = ("application/toml", command.pinned.to_toml)
        if name == OBJECT_FILE:
            document = (
                f'{{"text": {json.dumps(_summary_text(command.page))}, "object": {command.object}}}'
            )
            content = _hide_folders(command_input, document).encode()
            return AnswerFile(name=name, kind="application/json", content=content)
        if name in texts:
            kind, text = texts[name]
            content = _hide_folders(command_input, text()).encode()
            return AnswerFile(name=name, kind=f"{kind}; charset=utf-8", content=content)
        if name == "launch.zip" and command.texts:
            return AnswerFile(
                name=name, kind="application/zip", content=_zip_texts(command_input, command.texts)
            )
    raise SearchSpaceError(f"This answer has no file {name}.")


def _summary_text(page: Page) -> str:
    """The text of a page: title, headline, question, answer, results, and uncertainty."""
    reached = (f"{name}: {text}" for name, text in page.reached.items())
    lines = [page.title, page.headline, *page.question, *page.answer, *reached, *page.sure]
    return "\n".join(filter(None, lines))


def _zip_texts(command_input: CommandInput, texts: Mapping[str, str]) -> bytes:
    """Return a ZIP archive of texts by file name, without the paths of temporary folders."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(name, _hide_folders(command_input, text))
    return stream.getvalue()


def _csv(text: str) -> str:
    """Return the rows of an answer's JSON object as CSV."""
    table = parse_json(text, WHERE)
    rows = table.get("rows") if isinstance(table, Mapping) else None
    if not rows:
        raise SearchSpaceError("This answer has no rows: take its page or its object.")
    names = [*dict.fromkeys(name for row in rows for name in row)]
    stream = io.StringIO()
    stream.write(",".join(map(csv_cell, names)) + "\n")
    for row in rows:
        stream.write(",".join(csv_cell(row.get(name)) for name in names) + "\n")
    return stream.getvalue()


def _hide_folders(command_input: CommandInput, text: str) -> str:
    """Return a text without the paths of the temporary folder."""
    prices_folder = command_input.folder.with_name(command_input.folder.name + "-own")
    for folder in (prices_folder, command_input.folder, command_input.folder.parent):
        text = text.replace(f"{folder}/", "").replace(str(folder), UPLOADED)
    return text


def _assumption_texts(text: str) -> dict[str, str]:
    """Return the values assumed for empty fields, from the manifest of an answer."""
    table = parse_json(text, WHERE)
    manifest = table.get("manifest") if isinstance(table, Mapping) else None
    defaults = manifest.get("defaults") if isinstance(manifest, Mapping) else None
    return {str(n): str(v) for n, v in defaults.items()} if isinstance(defaults, Mapping) else {}


def _targets(pinned: SavedPlan) -> list[str]:
    """Return the tools that start plans of this workload; those of the same software first."""
    kind = workload_of(pinned.workload).profile_kind
    software = _normalize_name(str(pinned.answers.get(kind)))
    tools = {n: tool for n, tool in targets().items() if pinned.workload in tool.workloads}
    return sorted(
        tools, key=lambda name: software not in map(_normalize_name, tools[name].profiles)
    )


def _normalize_name(name: str) -> str:
    return name.lower().replace(" ", "-")


def _plan_question(question: Question, line: str) -> Question:
    """Return the plan of an answer as a question for ``planner estimate``.

    Prices and uploaded models are from ``question``.
    """
    plan_question = Question.of_line("estimate", line)
    if PRICES in plan_question.fields:
        plan_question = plan_question.with_fields(**{PRICES: question.fields.get(PRICES, "")})
    if plan_question.fields.get("model", "").endswith(".json"):
        plan_question = plan_question.with_fields(model="", file=question.fields.get(FILE, ""))
    return plan_question


_POLL_S = 0.05
_PROGRESS_INTERVAL_S = 0.1
_SEARCH_TIME_SHARE = 0.8
"""The share of its time after which a search stops and returns its results so far."""
_PRELOADED = ["planner.ui.worker_pool"]
_PIPE_ERRORS = (EOFError, OSError)
_CANCELLED = "Cancelled."


@dataclass(eq=False, kw_only=True)
class Job:
    """A question in the queue: its progress, and finally its answer or a ``file`` of the answer."""

    question: Question
    client: str
    file: str = ""
    future: Future[Any] = field(default_factory=Future)
    done: int = 0
    total: int = 0
    is_running: bool = False
    is_cancelled: bool = False

    def __post_init__(self) -> None:
        self.future.set_running_or_notify_cancel()  # waiters cannot cancel the future

    def cancel(self) -> None:
        """Mark the job as cancelled; its worker stops it."""
        self.is_cancelled = True


class Pool:
    """Worker processes, each with a thread that sends it questions."""

    def __init__(self, limits: Limits, specs: Path | None = None) -> None:
        """Start one thread for each worker process; ``specs`` is the folder of user specs."""
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

    def submit(self, question: Question, client: str, file: str = "") -> Job:
        """Queue a question, or a file of its answer, and return the job.

        Raises RequestRefused if too many questions wait.
        """
        job = Job(question=question, client=client, file=file)
        with self._changed:
            self._waiting = [
                waiting_job for waiting_job in self._waiting if not self._is_dropped(waiting_job)
            ]
            if len(self._waiting) >= self.limits.waiting or self._is_closed:
                raise RequestRefused(
                    f"{len(self._waiting)} questions are waiting: try again in a few seconds.", 503
                )
            self._waiting.append(job)
            self._changed.notify()
        return job

    def before(self, job: Job) -> int:
        """Number of jobs that wait before this one."""
        with self._changed:
            waiting = [waiting_job for waiting_job in self._waiting if not waiting_job.is_cancelled]
        return waiting.index(job) if job in waiting else 0

    def close(self) -> None:
        """End all processes and refuse their jobs."""
        with self._changed:
            self._is_closed = True
            for job in (*self._waiting, *self._running):
                job.cancel()
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(timeout=5)

    def _is_dropped(self, job: Job) -> bool:
        if job.is_cancelled:
            _refuse(job, RequestRefused(_CANCELLED, 409))
        return job.is_cancelled

    def _next(self) -> Job | None:
        """Return the first job of the client with the fewest running jobs; None after `close`."""
        with self._changed:
            while True:
                self._waiting = [
                    waiting_job
                    for waiting_job in self._waiting
                    if not self._is_dropped(waiting_job)
                ]
                if self._is_closed:
                    return None
                if self._waiting:
                    break
                self._changed.wait()
            busy = Counter(job.client for job in self._running)
            job = min(self._waiting, key=lambda waiting_job: busy[waiting_job.client])
            self._waiting.remove(job)
            self._running.append(job)
            job.is_running = True
            return job

    def _serve(self) -> None:
        """Run jobs in one worker process, one after the other, until the pool is closed."""
        worker = _Worker(self._context, self.specs, self.limits)
        while (job := self._next()) is not None:
            try:
                worker.work(job)
            except Exception as error:
                worker.end()
                _refuse(
                    job, RequestRefused(f"internal error: {type(error).__name__}: {error}", 500)
                )
            finally:
                with self._changed:
                    self._running.remove(job)
        worker.end()


class _Worker:
    """A process that is started on demand, and again after it ended."""

    def __init__(self, context: BaseContext, specs: Path | None, limits: Limits) -> None:
        self._context, self._specs, self._limits = context, specs, limits
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None
        self._tasks = 0

    def work(self, job: Job) -> None:
        """Run a job in the process, which is killed if the job takes too long or is cancelled."""
        pipe = self._ensure_started()
        with suppress(*_PIPE_ERRORS):  # handled below
            pipe.send((job.question, job.file))
        started = time.monotonic()
        while True:
            if job.is_cancelled:
                return self._give_up(job, RequestRefused(_CANCELLED, 409))
            if time.monotonic() - started > self._limits.seconds:
                limit_text = f"It takes more than {self._limits.seconds:g} s"
                message = f"{limit_text}: narrow the question, or use the command line."
                return self._give_up(job, RequestRefused(message, 504))
            try:
                if not pipe.poll(_POLL_S):
                    continue
                kind, value = pipe.recv()
            except _PIPE_ERRORS:
                return self._give_up(job, RequestRefused(_WORKER_LOST, 500))
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

    def _ensure_started(self) -> Connection:
        """Return the pipe to the worker process, which is started if it does not run."""
        if self._process is None or not self._process.is_alive() or self._pipe is None:
            self.end()
            self._pipe, worker_end = self._context.Pipe()
            self._process = self._context.Process(  # type: ignore[attr-defined]
                target=_worker_loop, args=(worker_end, self._specs, self._limits), daemon=True
            )
            self._process.start()
            worker_end.close()
        return self._pipe

    def _give_up(self, job: Job, error: RequestRefused) -> None:
        self.end()
        _refuse(job, error)

    def end(self) -> None:
        """Kill the worker process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process.close()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None
        self._tasks = 0


_WORKER_LOST = "The worker process ended, most likely out of memory."


def _refuse(job: Job, error: PlannerError) -> None:
    with suppress(Exception):  # the job may have its answer already
        job.future.set_exception(error)


def _context() -> BaseContext:
    """Return a context that forks workers from a server process with modules loaded."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def _worker_loop(pipe: Connection, specs: Path | None, limits: Limits) -> None:
    """Answer questions from a pipe until its other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ["HF_HUB_OFFLINE"] = "1"  # clients must not make the server download models
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limits
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (limits.memory_bytes, limits.memory_bytes))
    while True:
        try:
            task = pipe.recv()
            pipe.send(_run_question(task, specs, limits, pipe))
        except _PIPE_ERRORS:
            return


def _run_question(
    task: tuple[Question, str], specs: Path | None, limits: Limits, pipe: Connection
) -> tuple[str, object]:
    """Answer a question, or make the named file of its answer, within the time limit.

    Returns ``"answer"`` with the answer or ``"error"`` with the error; progress goes to ``pipe``.
    """
    question, name = task
    started, last = time.monotonic(), 0.0

    def report_progress(done: int, total: int) -> None:
        """Send the progress to the pool; stop the search when its time is used up."""
        nonlocal last
        now = time.monotonic()
        if now - started > _SEARCH_TIME_SHARE * limits.seconds:
            raise StopSearch
        if now - last > _PROGRESS_INTERVAL_S:
            last = now
            pipe.send(("done", (done, total)))

    try:
        if name:
            return "answer", make_file(question, name, specs, limits, report_progress)
        return "answer", answer(question, specs, limits, report_progress)
    except PlannerError as error:
        return "error", error
    except MemoryError:
        return "error", RequestRefused("Not enough memory: narrow the question.", 413)
    except Exception as error:
        return "error", RequestRefused(f"internal error: {type(error).__name__}: {error}", 500)


Key: TypeAlias = tuple[str, str, bool, int]

_ABANDONED_S = 30.0
_MAX_CACHED_ERRORS = 200
_MOST_FILES = 16
_LONGEST_NAME = 100


@dataclass
class WatchedJob:
    """A job of one client: the number of its connections, and the time of its last request."""

    name: str
    job: Job
    last_polled: float
    watchers: int = 0


class AnswerCache:
    """Answers by question, the latest last; and running jobs by name.

    Only the thread of the event loop uses it.
    """

    def __init__(self, pool: Pool) -> None:
        """Create an empty cache of answers and errors for the jobs of a pool."""
        self._pool = pool
        self._answers: OrderedDict[Key, Answer] = OrderedDict()
        self._errors: OrderedDict[Key, PlannerError] = OrderedDict()
        self._jobs: dict[str, WatchedJob] = {}
        self._size = 0

    def answer(self, question: Question) -> Answer | PlannerError | None:
        """Return the cached answer to a question, or its error; None if neither is cached.

        A RequestRefused is returned once: the next request tries again.
        """
        key = self._key(question)
        if key in self._answers:
            self._answers.move_to_end(key)
            return self._answers[key]
        error = self._errors.get(key)
        if isinstance(error, RequestRefused):
            del self._errors[key]
        return error

    def ask(self, question: Question, client: str) -> WatchedJob:
        """Return the job of a client's question: one in the queue, or a new one.

        Raises RequestRefused if too many questions wait.
        """
        self.settle()
        for watched_job in self._jobs.values():
            if watched_job.job.client == client and watched_job.job.question == question:
                watched_job.last_polled = time.monotonic()
                return watched_job
        name, job = secrets.token_urlsafe(12), self._pool.submit(question, client)
        self._jobs[name] = WatchedJob(name=name, job=job, last_polled=time.monotonic())
        return self._jobs[name]

    def find(self, name: str) -> WatchedJob | None:
        """The job of a name; None if there is none."""
        return self._jobs.get(name)

    def cancel(self, watched_job: WatchedJob) -> None:
        """Cancel a job and forget it."""
        watched_job.job.cancel()
        self._jobs.pop(watched_job.name, None)

    def settle(self) -> None:
        """Cache the answers of finished jobs; cancel jobs without watchers or recent requests."""
        now = time.monotonic()
        for name, watched_job in [*self._jobs.items()]:
            if watched_job.job.future.done():
                del self._jobs[name]
                self._keep(watched_job.job)
            elif not watched_job.watchers and now - watched_job.last_polled > _ABANDONED_S:
                self.cancel(watched_job)

    def _keep(self, job: Job) -> None:
        """Cache the answer or the error of a finished job; the oldest ones are removed first."""
        key, error = self._key(job.question), job.future.exception()
        if error is None:
            new = job.future.result()
            old = self._answers.pop(key, None)
            self._size -= 0 if old is None else old.size
            self._answers[key] = new
            self._size += new.size
            while self._size > self._pool.limits.kept_bytes and len(self._answers) > 1:
                _, oldest = self._answers.popitem(last=False)
                self._size -= oldest.size
        elif isinstance(error, PlannerError):
            self._errors[key] = error
            while len(self._errors) > _MAX_CACHED_ERRORS:
                self._errors.popitem(last=False)

    def _key(self, question: Question) -> Key:
        """Cache key: the question, and the last change of the user's specs folder."""
        has_files = bool(question.files)
        return question.command, question.query, has_files, last_change_time(self._pool.specs)


def last_change_time(folder: Path | None) -> int:
    """Return when any file in a folder last changed [ns]; 0 without a folder or files."""
    if folder is None:
        return 0
    times = (path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file())
    return max(times, default=0)


class Uploads:
    """Uploaded texts in memory, by their digest; the latest last."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._files: OrderedDict[str, tuple[tuple[str, str], ...]] = OrderedDict()

    def keep(self, table: object) -> str:
        """Store ``{"files": [{"name": ..., "text": ...}]}``; return the name for questions.

        Raises SearchSpaceError if the object is invalid or has too many files.
        """
        files = table.get("files") if isinstance(table, dict) else None
        if not isinstance(files, list) or not 0 < len(files) <= _MOST_FILES:
            raise SearchSpaceError(f"Upload 1 to {_MOST_FILES} text files.")
        texts: dict[str, str] = {}
        for file in files:
            name, text = (file.get(key) if isinstance(file, dict) else None for key in _PARTS)
            if not isinstance(name, str) or not isinstance(text, str):
                raise SearchSpaceError("A file has a name and a text.")
            file_name = PurePosixPath(name.replace("\\", "/")).name
            if (
                file_name in ("", "..")
                or not file_name.isprintable()
                or len(file_name) > _LONGEST_NAME
            ):
                raise SearchSpaceError(
                    f"A file's name has up to {_LONGEST_NAME} printable characters."
                )
            if "\0" in text:
                raise SearchSpaceError(f"{file_name}: is not text.")
            texts[file_name] = text
        stored = tuple(texts.items())
        token = hashlib.sha256(repr(stored).encode()).hexdigest()[:24]
        self._files[token] = stored
        self._files.move_to_end(token)
        while len(self._files) > 1 and self._size > self._limits.uploads_bytes:
            self._files.popitem(last=False)
        return f"{token}:{stored[0][0]}"

    @property
    def _size(self) -> int:
        return sum(len(text) for files in self._files.values() for _, text in files)

    def with_files(self, question: Question) -> Question:
        """The question with the uploaded files that it names, if they are still stored."""
        tokens = [text.partition(":")[0] for n, text in question.fields.items() if is_file(n)]
        files = tuple(file for token in tokens for file in self._files.get(token, ()))
        return replace(question, files=files) if files else question


_PARTS = ("name", "text")
