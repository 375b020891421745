"""Cache of results computed from files, until one of the files or folders changes."""

from __future__ import annotations

import atexit
import os
import pickle
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, wraps
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import ParamSpec, TypeVar, cast
from zlib import crc32

from planner.base.user_cache import cache_file, read_bytes, write_bytes

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
_STARTED = time.time_ns()
_IMPORTS_TAKE_NS = 10_000_000_000
_PROTOCOL = 5
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Installations side by side have a file each: a snapshot counts for the code that made it.
SNAPSHOT = f"specs-2-{crc32(os.fsencode(_PACKAGE)):08x}"
_ALLOWED = {
    "pathlib.Path", "pathlib.PosixPath", "pathlib.WindowsPath", "pathlib._local.PosixPath",
    "pathlib._local.WindowsPath", "numpy.dtype", "numpy.ndarray",
    "numpy._core.multiarray._reconstruct", "numpy._core.numeric._frombuffer",
}  # fmt: skip

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
    name = os.fspath(path)
    file_stamp = _stamp(name)
    _note({name: file_stamp})
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
        key = (args, tuple(kwargs.items()))
        entry = entries.get(key)
        if entry is not None and _hold(entry[1]):
            _note(entry[1])
            return entry[0]
        with _recorded_stamps() as stamps:
            result = function(*args, **kwargs)
        if _settled(stamps):
            if len(entries) >= _MOST_ENTRIES:
                entries.clear()
            entries[key] = result, stamps
        return result

    return call


def cache_between_runs(function: Callable[P, T]) -> Callable[P, T]:
    """Cache a function as `cache_by_files` does, and in the user's cache folder for later runs.

    A result counts until a file that it used, or the code of planner, changes. Results are those
    that `pickle` keeps: specs, arrays, and collections of them.

    Parameters
    ----------
    function : function of arguments with a distinct repr that reads files
    """

    @cache_by_files
    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        """Return the result of an earlier run while its files are unchanged; else a new one."""
        snapshot, key = _snapshot(), f"{function.__module__}.{function.__name__} {args} {kwargs}"
        with suppress(Exception):  # missing, or written by something else
            stamps, earlier = _Unpickler(BytesIO(snapshot[key])).load()
            if _hold(stamps):
                _note(stamps)
                return cast(T, earlier)
        with _recorded_stamps() as new_stamps:
            result = function(*args, **kwargs)
        if _settled(new_stamps):
            snapshot.pop(key, None)  # the latest are the last
            snapshot[key] = pickle.dumps((new_stamps, result), _PROTOCOL)
            _save_at_exit()
        return result

    return call


class _Unpickler(pickle.Unpickler):
    """Reads results of `cache_between_runs`; refuses all functions and foreign classes."""

    def find_class(self, module: str, name: str) -> object:
        """Return a class of planner, or what paths and arrays consist of."""
        return _allowed_class(module, name)


@cache
def _allowed_class(module: str, name: str) -> object:
    is_outside = f"{module}.{name}" in _ALLOWED
    if is_outside or module.startswith("planner."):
        kind: object = getattr(import_module(module), name, None)
        if is_outside or isinstance(kind, type):
            return kind
    raise pickle.UnpicklingError(f"{module}.{name} is not allowed")


@cache
def _snapshot() -> dict[str, bytes]:
    """Return the results of earlier runs with the same code, pickled with their stamps."""
    current = _code_stamps()
    with suppress(Exception):  # missing, or written by something else
        code, entries = _Unpickler(BytesIO(read_bytes(cache_file(SNAPSHOT)))).load()
        if code == current:
            return {str(key): bytes(value) for key, value in entries.items()}
    return {}


@cache
def _code_stamps() -> dict[str, Stamp]:
    """Return the state of each file of planner that decides what is made of a spec file."""
    folders = [os.path.join(_PACKAGE, name) for name in ("base", "question", "specs")]
    files = [entry.path for folder in folders for entry in os.scandir(folder) if entry.is_file()]
    return {path: _looked(path) for path in (*files, os.path.join(_PACKAGE, "errors.py"))}


@cache
def _save_at_exit() -> None:
    atexit.register(_save)


def _save() -> None:
    code = _code_stamps()
    edited = max(max(code_stamp[_TIMES]) for code_stamp in code.values())
    if edited > _STARTED - _IMPORTS_TAKE_NS:
        return  # it may not be the code that made the results
    latest = dict([*_snapshot().items()][-_MOST_REMEMBERED:])
    write_bytes(cache_file(SNAPSHOT), pickle.dumps((code, latest), _PROTOCOL))


@contextmanager
def _recorded_stamps() -> Iterator[dict[str, Stamp]]:
    """Yield the stamps that are looked at within this context; the caller depends on them too."""
    stamps: dict[str, Stamp] = {}
    token = _looked_at.set(stamps)
    try:
        yield stamps
    finally:
        _looked_at.reset(token)
        _note(stamps)


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
