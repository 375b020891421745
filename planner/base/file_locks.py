"""Locks of open files, which end with their process.

Windows has no ``flock``: there the first byte is locked, and an open file cannot be removed.
"""

from __future__ import annotations

import errno

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FLOCK = fcntl is not None
"""Whether a lock leaves the file readable, and it can be replaced while it is open."""


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
