"""Write files atomically, completely or not at all; lock open files until their process ends.

Windows has no ``flock``: there the first byte is locked, and an open file cannot be removed.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar

from planner.base.signals import remove_on_exit
from planner.errors import OutputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FLOCK = fcntl is not None
"""Whether a lock leaves the file readable, and it can be replaced while it is open."""

STDOUT = Path("-")
TEMPORARY = ".planner-*.tmp"
"""What files are called until they are whole; while their writer lives, they are locked."""

Stream = TypeVar("Stream", TextIO, BinaryIO)
_cleaned_folders: set[Path] = set()


def manifest_path(path: Path) -> Path:
    """Path of the manifest of a CSV file."""
    return path.with_name(f"{path.stem}.manifest.json")


def check_outputs(csv: Path | None, json: Path | None, *others: Path | None) -> None:
    """Raise OutputError for paths that cannot be written, before any work is done.

    Raises OutputError if two outputs are the same file, or a path is a folder, is in none, or is
    protected.
    """
    if csv is not None and csv == json:
        raise OutputError(f"--csv and --json both name {csv}: give two different files.")
    for path in (csv, json, *others):
        if path is not None:
            check_path(path)
    if csv is not None and json is not None and manifest_path(csv) == json:
        raise OutputError(f"{json}: the manifest of {csv.name} goes there; give --json another.")


def check_path(path: Path) -> None:
    """Raise OutputError, with the reason and what to do, if a path cannot be written."""
    if path == STDOUT:
        return
    folder = path.parent
    try:
        if os.path.islink(os.path.realpath(path)):
            raise OutputError(f"{path}: is a link that leads back to itself; give another file.")
        if os.path.isdir(path):
            raise OutputError(f"{path}: is a folder; give a file in it.")
        if not os.path.isdir(folder):
            raise OutputError(f"{path}: there is no folder {folder}; create it first.")
        target = folder
        with suppress(FileNotFoundError):
            os.stat(path)  # a name that is too long fails here
            target = path
        if not os.access(target, os.W_OK) or not os.access(folder, os.X_OK):
            raise OutputError(f"{path}: {target} may not be written to; choose another place.")
    except (OSError, ValueError) as error:
        raise _output_error(path, error) from error


@contextmanager
def write_atomically(path: Path) -> Iterator[TextIO]:
    """Open a text stream that replaces ``path`` once all of it is on the disk.

    ``-`` is stdout. Devices and pipes are written directly. Raises OutputError if writing fails; an
    earlier file then stays unchanged.
    """
    try:
        if path == STDOUT:
            yield sys.stdout
            sys.stdout.flush()
            return
        target = Path(os.path.realpath(path))
        writer = _open_text(target) if _is_ordinary(target) else target.open("w", encoding="utf-8")
        with writer as stream:
            yield stream
            stream.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise _output_error(path, error) from error


@contextmanager
def write_bytes_atomically(path: Path) -> Iterator[BinaryIO]:
    """Open a byte stream that replaces ``path`` once all of it is on the disk.

    Raises OutputError if writing fails; an earlier file then stays unchanged.
    """
    try:
        with _replace_file(path, lambda temporary: temporary.open("xb")) as stream:
            yield stream
    except OSError as error:
        raise _output_error(path, error) from error


def _open_text(target: Path) -> AbstractContextManager[TextIO]:
    return _replace_file(
        target, lambda temporary: temporary.open("x", encoding="utf-8", newline="")
    )


@contextmanager
def _replace_file(target: Path, open_temporary: Callable[[Path], Stream]) -> Iterator[Stream]:
    """Yield a temporary file that replaces ``target`` on success, and is removed on an error."""
    if target.parent not in _cleaned_folders:
        _cleaned_folders.add(target.parent)
        remove_unfinished(target.parent)
    with ExitStack() as stack:
        while True:
            temporary = target.with_name(TEMPORARY.replace("*", os.urandom(6).hex()))
            stack.enter_context(remove_on_exit(str(temporary)))
            stream = open_temporary(temporary)
            if _lock_file(stream, temporary):
                break
            stream.close()
        try:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if not FLOCK:
                stream.close()  # Windows replaces no open file
            os.replace(temporary, target)  # before its lock goes
            stream.close()
        except BaseException:
            with suppress(OSError):
                stream.close()
            temporary.unlink(missing_ok=True)
            raise


def _lock_file(stream: TextIO | BinaryIO, path: Path) -> bool:
    """Lock a new temporary file; return False if another process removed it meanwhile."""
    if not FLOCK:
        return True  # Windows removes no open file
    try:
        lock_file(stream.fileno(), waits=True)
    except OSError:
        return True  # no locks on this file system: no process removes the file
    try:
        return os.path.samestat(os.fstat(stream.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def remove_unfinished(folder: Path) -> None:
    """Remove the unlocked, half-written files of killed writers from a folder."""
    for path in folder.glob(TEMPORARY):
        with suppress(OSError):  # another user's, or locked
            if not FLOCK:
                path.unlink()  # Windows refuses it for an open file
                continue
            number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                lock_file(number)
                path.unlink()
            finally:
                os.close(number)


def _is_ordinary(target: Path) -> bool:
    try:
        return stat.S_ISREG(target.stat().st_mode)
    except (OSError, ValueError):  # the file is missing; writing reports other errors
        return True


def is_device(path: Path) -> bool:
    """Whether a path is stdout, a device or a pipe, which have no files in the same folder."""
    return path == STDOUT or not _is_ordinary(Path(os.path.realpath(path)))


def _output_error(path: Path, error: OSError | ValueError) -> OutputError:
    """Return the user's error message for a file (or stdout) that cannot be written."""
    reason = getattr(error, "strerror", None) or error
    if path == STDOUT:
        return OutputError(f"stdout: cannot be written ({reason}).")
    return OutputError(
        f"{path}: cannot be written ({reason}). "
        "Make room or choose another path; a file that was there is unchanged."
    )


def lock_file(number: int, *, waits: bool = False) -> None:
    """Lock the open file with this descriptor.

    Raises BlockingIOError if another process has locked it and ``waits`` is false; OSError if the
    file system has no locks.
    """
    if fcntl is not None:
        fcntl.flock(number, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        return
    import msvcrt

    try:
        msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EDEADLK):
            raise BlockingIOError(error.errno, error.strerror) from error
        raise
