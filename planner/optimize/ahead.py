"""Results of a function in order, several of them computed at the same time."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """``function`` of every item, in their order, on as many threads as there are cores.

    numpy works without Python's lock, so threads share what the processes of a pool would copy.
    No more results than threads are waiting at a time. An iterator that is left early ends
    the work that was begun.
    """
    number = _cores()
    with ThreadPoolExecutor(max_workers=number, thread_name_prefix="planner") as threads:
        waiting: deque[Future[Result]] = deque()
        try:
            for item in items:
                waiting.append(threads.submit(function, item))
                if len(waiting) > number:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
