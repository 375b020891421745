"""Run one module of this folder on cases: `python main.py MODULE`, JSON in, JSON out.

Run by an interpreter of scripts/make_launch_environments.py, so nothing of planner is imported.
Every case runs in a process of its own, forked after the parser is imported, since parsers keep
global state; what they print goes to standard error. A result has "error" where the parser refused
the case, and what `answer(case)` of the module returned otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import tempfile
import traceback
import typing
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

Case = dict[str, Any]
Answer = Callable[[Case], Any]


class Refused(Exception):
    """An argument parser's message, which it prints before it exits."""


def refuse(parser: argparse.ArgumentParser, message: str) -> NoReturn:
    raise Refused(message)


def answered(answer: Answer, case: Case) -> Any:
    """What the parser says of a case, or why it refused it."""
    try:
        for name, value in case.get("environment", {}).items():
            os.environ[name] = str(value)
        return answer(case)
    except BaseException as fault:  # parsers raise anything, SystemExit among it
        message = f"{type(fault).__name__}: {fault}{printed(fault)}"
        traceback.print_exc()
        return {"error": message}


def printed(fault: BaseException) -> str:
    """What a parser that exits has printed before, of which the last lines tell why."""
    if not isinstance(fault, SystemExit):
        return ""
    sys.stderr.flush()
    with open(2, "rb", closefd=False) as file:
        file.seek(0)
        return "\n" + file.read().decode(errors="replace")[-4000:]


def answered_aside(answer: Answer, case: Case) -> Any:
    """The same with what is printed in a file, from where it goes to standard error after."""
    shown = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        found = answered(answer, case)
        sys.stderr.flush()
        said.seek(0)
        os.write(shown, said.read())
    return found


def in_a_process(answer: Answer, case: Case) -> Any:
    """The same in a forked process, whose global state ends with it."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(out)
        text = json.dumps(answered_aside(answer, case), default=str)
        with os.fdopen(into, "w") as pipe:
            pipe.write(text)
        sys.stderr.flush()
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as pipe:
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    return json.loads(text) if text else {"error": f"the parser died with status {status}"}


def prepare() -> None:
    """Let packages be imported that want Python 3.12."""
    warnings.simplefilter("ignore")
    argparse.ArgumentParser.error = refuse  # type: ignore[method-assign, assignment]
    if not hasattr(typing, "override"):
        typing.override = lambda method: method  # type: ignore[attr-defined]


def main() -> None:
    module = sys.argv[1]
    cases = json.load(sys.stdin)
    prepare()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.redirect_stdout(sys.stderr):
        answer = import_module(module).answer
        results = [in_a_process(answer, case) for case in cases]
    json.dump(results, out)
    out.close()


if __name__ == "__main__":
    main()
