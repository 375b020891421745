"""A progress bar on stderr for searches that last."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from planner.base.interrupts import is_asked_to_stop, patient
from planner.optimize.exhaustive import StopSearch
from planner.show.terminal import make_console

_PATIENCE = 1.0


@contextmanager
def stoppable_bar(total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[int], None]]:
    """As `progress_bar`, for a search that gives up what it found so far on SIGINT.

    What is told the number done raises `planner.optimize.exhaustive.StopSearch` then.
    """
    with patient(), progress_bar(total, unit, quiet=quiet) as bar:

        def tell(done: int) -> None:
            if bar is not None:
                bar(done)
            if is_asked_to_stop():
                raise StopSearch

        yield tell


@contextmanager
def progress_bar(total: int, unit: str, *, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """A function to be told the number done; None where nobody would see the bar."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit),
        BarColumn(bar_width=None),
        TimeRemainingColumn(),
        console=make_console(stderr=True),
        transient=True,
    )
    task = bar.add_task("search", total=total)
    started = time.monotonic()

    def tell(done: int) -> None:
        bar.update(task, completed=done)
        if not bar.live.is_started and time.monotonic() - started > _PATIENCE:
            bar.start()

    try:
        yield tell
    finally:
        bar.stop()
