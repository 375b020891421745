"""Handle SIGINT and SIGTERM: a command ends at once and leaves no half-written file.

Imports almost nothing, so that handlers are installed before large imports.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
_WORDS = {signal.SIGINT: "Interrupted.\n", signal.SIGTERM: "Terminated.\n"}
_SHOW_CURSOR = "\x1b[?25h"


class _State:
    """The process that the handlers belong to, its unfinished files, and a wish to end."""

    def __init__(self) -> None:
        self.owner = 0
        self.unfinished: set[str] = set()
        self.is_patient = False
        self.is_asked = False


_state = _State()


def install_handlers() -> None:
    """End the process cleanly on SIGINT and SIGTERM; an ignored signal stays ignored."""
    _state.owner = os.getpid()
    for number in _WORDS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _handle)


@contextlib.contextmanager
def remove_on_exit(path: str) -> Iterator[None]:
    """Remove a file if the process ends within this context."""
    _state.unfinished.add(path)
    try:
        yield
    finally:
        _state.unfinished.discard(path)


@contextlib.contextmanager
def defer_interrupt() -> Iterator[None]:
    """Note the first SIGINT for `is_stop_requested`; the second one ends the process."""
    _state.is_patient, _state.is_asked = True, False
    try:
        yield
    finally:
        _state.is_patient = False


def is_stop_requested() -> bool:
    """Whether a SIGINT arrived since `defer_interrupt` began."""
    return _state.is_asked


def _handle(number: int, frame: FrameType | None) -> None:
    """Remove unfinished files and exit with 128 + ``number``; if patient, ignore one Ctrl-C."""
    if number == signal.SIGINT and _state.is_patient and not _state.is_asked:
        _state.is_asked = True
        return
    if os.getpid() == _state.owner:  # a worker process has its own end, and no files
        for path in _state.unfinished:
            with contextlib.suppress(OSError):
                os.unlink(path)
        _write_to_stderr(_WORDS[signal.Signals(number)])
    # An exception could be swallowed by the code it is raised in, an import above all.
    os._exit(128 + number)


def _write_to_stderr(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None and sys.stderr.isatty():
            text = _SHOW_CURSOR + "\n" + text  # after the bar of a search
        os.write(2, text.encode())
