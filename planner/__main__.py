"""The command line's entry: runs a command and turns what goes wrong into one message.

It imports little before it installs the signal handlers.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import sys
import warnings
from collections.abc import Callable, Sequence

from planner.base.install_conflicts import check_conflicts
from planner.base.signals import INTERRUPTED, install_handlers

_CLOSED_PIPE = 141
# Errors of standard streams; errors of files name the file.
_UNWRITABLE = (errno.ENOSPC, errno.EBADF, errno.EIO, errno.EFBIG)
# Imports make many lasting objects: collecting among them takes a tenth of a short command.
_OBJECTS_BETWEEN_COLLECTIONS = 200_000


def main() -> None:
    """Run the command of ``sys.argv`` and exit with its code."""
    install_handlers()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    _replace_closed_streams()
    warnings.formatwarning = lambda message, *_, **__: f"Warning: {message}\n"
    code = run(sys.argv[1:], check_conflicts)
    # Python flushes once more at exit and would report the same error again.
    _silence_broken_streams()
    # Skip the last garbage collection: it takes a tenth of a short command.
    gc.freeze()
    sys.exit(code)


def run(arguments: Sequence[str], before: Callable[[], None] = lambda: None) -> int:
    """Call ``before``, run a command, return its exit code; no exception leaves it."""
    from planner.errors import OutputError, PlannerError

    end = arguments.index("--") if "--" in arguments else len(arguments)
    debug = "--debug" in arguments[:end]
    options = [word for word in arguments[:end] if word != "--debug"]
    try:
        before()
        return _invoke([*options, *arguments[end:]])
    except BrokenPipeError:
        return _CLOSED_PIPE
    except KeyboardInterrupt as interrupt:
        return _fail(str(interrupt) or "Interrupted.", INTERRUPTED, debug)
    except PlannerError as error:
        return _fail(str(error), error.exit_code, debug)
    except MemoryError:
        return _fail("There is not enough memory for this; narrow it with --set.", 1, debug)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in _UNWRITABLE and not error.filename:
            name = _silence_broken_streams() or "stdout"
            reason = f"{name}: cannot be written ({error.strerror})."
            return _fail(reason, OutputError.exit_code, debug)
        return _fail(
            f"internal error: {type(error).__name__}: {error}\n"
            "This is a fault of planner: please report it. --debug shows the traceback.",
            1,
            debug,
        )


def _invoke(arguments: list[str]) -> int:
    from planner.cli.app import Interrupted, PipeClosed, command_line

    if "_PLANNER_COMPLETE" in os.environ:
        from planner.cli.completion import mend_words

        mend_words()
    try:
        command_line()(args=arguments, prog_name="planner", obj=arguments)
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 0
    except Interrupted as error:
        raise KeyboardInterrupt(*error.args) from error
    except PipeClosed as error:
        raise BrokenPipeError from error
    return 0


def _fail(message: str, exit_code: int, debug: bool) -> int:
    from planner.base.formatting import fix_plurals, printable

    if debug:
        import traceback

        message = f"{traceback.format_exc()}{message}"
    with contextlib.suppress(OSError):  # without a reader of stderr the exit code remains
        print(fix_plurals(printable(message)), file=sys.stderr, flush=True)
    return exit_code


def _replace_closed_streams() -> None:
    """Give every closed standard stream a descriptor that cannot be written.

    Otherwise a result file would get the descriptor and the printed text.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            unwritable = os.open(os.devnull, os.O_RDONLY)
            if name != "stdin":
                setattr(sys, name, os.fdopen(unwritable, "w", encoding="utf-8"))


def _silence_broken_streams() -> str:
    """Redirect output streams that cannot be flushed to the null device; return the first's
    name.
    """
    broken = [name for name in ("stdout", "stderr") if _silence(getattr(sys, name))]
    return broken[0] if broken else ""


def _silence(stream: io.TextIOBase) -> bool:
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return False


if __name__ == "__main__":
    main()
