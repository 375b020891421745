"""Cache between runs in the user's cache folder; missing entries are computed again."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable


def cache_file(name: str) -> str:
    """Path of a file or folder in the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(home, "planner", name)


def read_bytes(file: str) -> bytes:
    """Return the content of a file; empty if it cannot be read."""
    try:
        with open(file, "rb") as stream:
            return stream.read()
    except OSError:
        return b""


def read_lines(file: str) -> list[str]:
    """Return the lines of a file; none if it cannot be read."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            return stream.read().split("\n")
    except OSError:
        return []


def write_bytes(file: str, content: bytes) -> None:
    """Replace a file atomically; errors are ignored.

    Drafts of others are removed: their writers were killed, or keep nothing this time.
    """
    home, draft = os.path.dirname(file), f"{file}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(home, exist_ok=True)
        for name in os.listdir(home):
            if name.startswith(f"{os.path.basename(file)}."):
                os.unlink(os.path.join(home, name))
        with open(draft, "wb") as stream:
            stream.write(content)
        os.replace(draft, file)


def write_lines(file: str, lines: Iterable[str]) -> None:
    """Replace a text file atomically; errors are ignored."""
    with contextlib.suppress(UnicodeError):
        write_bytes(file, ("\n".join(lines) + "\n").encode())
