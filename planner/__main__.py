"""The command line's entry: runs a command and turns what goes wrong into one message."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Sequence

from planner.errors import PlannerError

_INTERRUPTED = 130
_CLOSED_PIPE = 141
# Imports make many objects that stay: looking through them takes a tenth of a short command.
_OBJECTS_BETWEEN_COLLECTIONS = 200_000


def main() -> None:
    """Run the command of ``sys.argv`` and exit with its code."""
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return its exit code; no exception leaves it."""
    debug = "--debug" in arguments
    try:
        return _invoke([word for word in arguments if word != "--debug"])
    except BrokenPipeError:
        _silence_stdout()
        return _CLOSED_PIPE
    except KeyboardInterrupt:
        return _fail("Interrupted.", _INTERRUPTED, debug)
    except PlannerError as error:
        return _fail(str(error), error.exit_code, debug)
    except MemoryError:
        return _fail("There is not enough memory for this; narrow it with --set.", 1, debug)
    except Exception as error:
        return _fail(
            f"internal error: {type(error).__name__}: {error}\n"
            "This is a fault of planner: please report it. --debug shows the traceback.",
            1,
            debug,
        )


def _invoke(arguments: list[str]) -> int:
    from planner.cli.app import Interrupted, PipeClosed, app

    try:
        app(args=arguments, prog_name="planner", obj=arguments)
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 0
    except Interrupted as error:
        raise KeyboardInterrupt from error
    except PipeClosed as error:
        raise BrokenPipeError from error
    return 0


def _fail(message: str, exit_code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    with contextlib.suppress(OSError):  # where nobody reads, the exit code still tells
        print(message, file=sys.stderr, flush=True)
    return exit_code


def _silence_stdout() -> None:
    # Python flushes stdout once more at exit and would complain about the closed pipe.
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
