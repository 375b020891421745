"""Cache of results computed from files, until one of the files or folders changes."""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

from planner.base.user_cache import cache_file, read_lines, write_lines

P = ParamSpec("P")
T = TypeVar("T")
Stamp = tuple[int, ...]

_MOST_ENTRIES = 4096
# A file may change twice within one tick of its file system's clock: files that changed just now
# are not cached.
_SETTLED_AFTER_NS = 100_000_000
IDENTITY = slice(3, 5)
_TIMES = slice(0, 2)

_MOST_REMEMBERED = 1024
_SNAPSHOT = "specs-1"

_looked_at: ContextVar[dict[str, Stamp] | None] = ContextVar("looked_at", default=None)


@dataclass(slots=True)
class _FileStamps:
    """Stamps seen inside of `snapshot_files` by path, and the sets of stamps that are unchanged."""

    stamps: dict[str, Stamp] = field(default_factory=dict)
    holding: dict[int, Mapping[str, Stamp]] = field(default_factory=dict)


_steady: ContextVar[_FileStamps | None] = ContextVar("steady", default=None)


@contextmanager
def snapshot_files() -> Iterator[None]:
    """Within this context, look at each file only once, for many answers from the same specs."""
    token = _steady.set(_steady.get() or _FileStamps())
    try:
        yield
    finally:
        _steady.reset(token)


def stamp(path: Path | str) -> Stamp:
    """Return times, size and identity of a file or folder; empty if it does not exist.

    Functions of `cache_by_files` that call this depend on the file: call it before reading.

    Parameters
    ----------
    path : file or folder, which need not exist
    """
    full_path = os.path.join(_working_folder(), path)
    file_stamp = _stamp(full_path)
    _note({full_path: file_stamp})
    return file_stamp


def cache_by_files(function: Callable[P, T]) -> Callable[P, T]:
    """Cache a function until a file that it looked at (by `stamp`) changes.

    Its arguments are hashable; its results are shared and must not be changed. Errors are not
    cached. Relative paths refer to the working directory at the time of the call.

    Parameters
    ----------
    function : function of hashable arguments that reads files
    """
    entries: dict[object, tuple[T, Mapping[str, Stamp]]] = {}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        """Return the cached result if the files it used are unchanged; else call the function."""
        key = (_working_folder(), args, tuple(kwargs.items()))
        entry = entries.get(key)
        if entry is not None and _hold(entry[1]):
            _note(entry[1])
            return entry[0]
        stamps: dict[str, Stamp] = {}
        token = _looked_at.set(stamps)
        try:
            result = function(*args, **kwargs)
        finally:
            _looked_at.reset(token)
            _note(stamps)
        if _settled(stamps):
            if len(entries) >= _MOST_ENTRIES:
                entries.clear()
            entries[key] = result, stamps
        return result

    return call


def cache_on_disk(path: Path, parse: Callable[[Path], dict[str, object]]) -> dict[str, object]:
    """Return ``parse(path)``, from an earlier run's cache if the file is unchanged.

    Only results that JSON preserves are cached: no dates.

    Parameters
    ----------
    path : file to read
    parse : reads the file; its result must survive JSON
    """
    file_stamp, snapshot = [*stamp(path)], _snapshot()
    cache_key = json.dumps(os.path.join(_working_folder(), path))
    with suppress(KeyError, TypeError, ValueError):  # the cache file may be corrupt
        cached_stamp, table = json.loads(snapshot[cache_key])
        if cached_stamp == file_stamp and isinstance(table, dict):
            return table
    parsed = parse(path)
    if file_stamp and _settled({cache_key: tuple(file_stamp)}):
        with suppress(TypeError):
            snapshot[cache_key] = json.dumps([file_stamp, parsed])
            _save_at_exit()
    return parsed


@cache
def _snapshot() -> dict[str, str]:
    """Stamps and tables as JSON, by their file."""
    lines = read_lines(cache_file(_SNAPSHOT))
    return dict(zip(lines[::2], lines[1::2], strict=False))


@cache
def _save_at_exit() -> None:
    atexit.register(_save)


def _save() -> None:
    latest = [*_snapshot().items()][-_MOST_REMEMBERED:]
    write_lines(cache_file(_SNAPSHOT), [line for pair in latest for line in pair])


def _note(stamps: Mapping[str, Stamp]) -> None:
    recorded = _looked_at.get()
    if recorded is not None:
        for path, file_stamp in stamps.items():
            recorded.setdefault(path, file_stamp)  # the first look counts: reading came after it


def _hold(stamps: Mapping[str, Stamp]) -> bool:
    """Return whether all files are unchanged since their stamps."""
    looks = _steady.get()
    if looks is not None and id(stamps) in looks.holding:
        return True
    holds = all(_stamp(path) == was for path, was in stamps.items())
    if holds and looks is not None:
        looks.holding[id(stamps)] = stamps  # which keeps its identity
    return holds


def _stamp(path: str) -> Stamp:
    """Return the state of a file; inside a steady block, as first seen in the block."""
    looks = _steady.get()
    if looks is None:
        return _looked(path)
    if path not in looks.stamps:
        looks.stamps[path] = _looked(path)
    return looks.stamps[path]


def _looked(path: str) -> Stamp:
    """Return times, size and identity of a file as it is now; () if it cannot be read."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return ()
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_dev)


def _settled(stamps: Mapping[str, Stamp]) -> bool:
    latest = time.time_ns() - _SETTLED_AFTER_NS
    return all(max(file_stamp[_TIMES]) < latest for file_stamp in stamps.values() if file_stamp)


def _working_folder() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return ""
