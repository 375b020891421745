"""A pool of worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any, TypeVar

TRIES = 3
"""How many times in a row workers may end without a result."""

_WAITING = 3
_LOOK_S = 0.2

Task = TypeVar("Task")
Result = TypeVar("Result")


def num_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkersEnded(Exception):
    """Workers ended repeatedly without a result; ``tasks`` are the remaining ones."""

    def __init__(self, tasks: Sequence[object]) -> None:
        super().__init__(tasks)
        self.tasks = tasks


def run_on_workers(
    work: Callable[[Task], Result],
    tasks: Iterable[Task],
    workers: int,
    look: Callable[[], object] = lambda: None,
) -> Iterator[tuple[Task, Result]]:
    """Yield tasks and their results, in any order, from processes that end with this one.

    If a process ends, another one repeats its task. ``look`` is called a few times per second while
    no task finishes; an exception that it raises ends the work. Tasks are hashable and distinct.
    Raises WorkersEnded if workers ended `TRIES` times in a row without a result.
    """
    left, tries = [*tasks], 0
    while left:
        done = set()
        try:
            for task, result in _run_pool(work, left, workers, look):
                done.add(task)
                tries = 0
                yield task, result
        except BrokenProcessPool as error:
            tries += 1
            if tries == TRIES:
                raise WorkersEnded([task for task in left if task not in done]) from error
        left = [task for task in left if task not in done]


def _run_pool(
    work: Callable[[Task], Result], tasks: Iterable[Task], workers: int, look: Callable[[], object]
) -> Iterator[tuple[Task, Result]]:
    """Yield tasks and results from one pool of processes; few tasks wait at a time."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    ends, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers,
        mp_context=context,
        initializer=_start_worker,
        initargs=(work, ends, alive, os.getpid()),
    )
    waiting: dict[Future[Result], Task] = {}
    try:
        todo = iter(tasks)
        while True:
            for task in islice(todo, _WAITING * workers - len(waiting)):
                waiting[pool.submit(_run, task)] = task
            if not waiting:
                return
            while not (ended := wait(waiting, _LOOK_S, FIRST_COMPLETED).done):
                look()
            for future in ended:
                yield waiting.pop(future), future.result()
    finally:
        alive.close()  # do not wait for running tasks
        pool.shutdown(cancel_futures=True)
        ends.close()


_work: Callable[[Any], Any] | None = None
_is_working = False
_is_over = False
_working = threading.Lock()
"""Held where a worker begins or ends a task, and where it ends in the middle of one."""


def _start_worker(
    work: Callable[[Any], Any], ends: Connection, alive: Connection, parent: int
) -> None:
    """Initialize a worker process: ignore terminal signals, exit when process ``parent`` exits.

    The parent may have ended before this is called: `os.getppid` would then be another process.
    """
    global _work
    _work = work
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    alive.close()
    threading.Thread(target=_exit_with_parent, args=(ends, parent), daemon=True).start()


def _exit_with_parent(ends: Connection, parent: int) -> None:
    """Exit when the other end of a pipe closes, as it does when its process is killed.

    A result that is cut off while it is sent would be waited for without end, so a worker that
    sends one ends in the middle of it only if its parent has ended.
    """
    global _is_over
    with suppress(OSError, EOFError):
        ends.poll(None)
    with _working:
        if _is_working:
            os._exit(1)
        _is_over = True
    while os.getppid() == parent:
        time.sleep(_LOOK_S)
    os._exit(1)


def _run(task: object) -> Any:
    """Run the worker's function on one task; mark the worker as busy meanwhile."""
    if _work is None:
        raise RuntimeError("The worker was not begun.")
    _set_working(True)
    try:
        return _work(task)
    finally:
        _set_working(False)


def _set_working(is_working: bool) -> None:
    """Mark this worker as busy or idle; exit the process if the pool is over."""
    global _is_working
    with _working:
        if _is_over:
            os._exit(1)
        _is_working = is_working
