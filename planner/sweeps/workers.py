"""Where parts of a sweep are run: in this process, on all cores, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import TypeAlias

from planner.errors import PlannerError
from planner.interrupts import is_asked_to_stop
from planner.optimize.exhaustive import StopSearch
from planner.sweeps.parts import Part, run_part
from planner.sweeps.plan import SweepPlan

Done: TypeAlias = tuple[Part, bytes]
Run: TypeAlias = Callable[[SweepPlan, Iterable[Part]], Iterator[Done]]
"""Runs parts of a plan, in any order."""

_WAITING = 3
_TRIES = 3
_LOOK_S = 0.2


class WorkersLost(PlannerError):
    """Workers ended again and again: there is not enough memory, or somebody kills them."""


def in_this_process(plan: SweepPlan, parts: Iterable[Part]) -> Iterator[Done]:
    """One part after the other."""
    for part in parts:
        yield part, run_part(plan, part)


def on_cores(workers: int) -> Run:
    """One process for each of so many cores."""

    def run(plan: SweepPlan, parts: Iterable[Part]) -> Iterator[Done]:
        left, tries = [*parts], 0
        while left:
            done = set()
            try:
                for part, content in _once(plan, left, workers):
                    done.add(part)
                    tries = 0
                    yield part, content
            except BrokenProcessPool as error:
                tries += 1
                if tries == _TRIES:
                    first = min(left, key=lambda part: part.number)
                    raise WorkersLost(
                        f"Workers ended {_TRIES} times without a result, at scenario {first.first} "
                        "or soon behind it: give them more memory, or --workers 1. What is done "
                        "is kept: the same command goes on."
                    ) from error
            left = [part for part in left if part not in done]

    return run


def _once(plan: SweepPlan, parts: Iterable[Part], workers: int) -> Iterator[Done]:
    """Few parts wait at a time, so that memory does not grow with the plan."""
    methods = multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    ends, alive = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(
        workers, mp_context=context, initializer=_begin, initargs=(plan, ends, alive)
    )
    waiting: dict[Future[bytes], Part] = {}
    try:
        todo = iter(parts)
        while True:
            while len(waiting) < _WAITING * workers and (part := next(todo, None)) is not None:
                waiting[pool.submit(_run, part)] = part
            if not waiting:
                return
            for future in _ended(waiting):
                yield waiting.pop(future), future.result()
    finally:
        alive.close()  # what is still being worked on is not waited for
        pool.shutdown(wait=False, cancel_futures=True)
        ends.close()


def _ended(waiting: Iterable[Future[bytes]]) -> set[Future[bytes]]:
    """At least one that has ended; the user may have asked for an end before."""
    while not (ended := wait(waiting, _LOOK_S, FIRST_COMPLETED).done):
        if is_asked_to_stop():
            raise StopSearch
    return ended


_plan: SweepPlan | None = None


def _begin(plan: SweepPlan, ends: Connection, alive: Connection) -> None:
    """A worker leaves signals of the terminal to its parent, and ends with it."""
    global _plan
    _plan = plan
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    alive.close()
    threading.Thread(target=_end_with, args=(ends,), daemon=True).start()


def _end_with(ends: Connection) -> None:
    """Wait until the other end of a pipe is closed, as it is when its process is killed."""
    with suppress(OSError, EOFError):
        ends.poll(None)
    os._exit(1)


def _run(part: Part) -> bytes:
    if _plan is None:
        raise RuntimeError("The worker was not begun.")
    return run_part(_plan, part)
