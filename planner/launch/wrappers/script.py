"""A shell script for each kind of process; on several nodes it is run on each of them."""

from __future__ import annotations

from planner.launch.job import Job
from planner.launch.quoting import shell_word
from planner.launch.target import Argument, Draft, File, Process, Target, Variable


def wrapped(target: Target, job: Job, draft: Draft) -> tuple[File, ...]:
    """A script for each kind of process, and the files beside it."""
    scripts = [
        File(name=f"{process.name}.sh", text=_script(process), is_executable=True)
        for process in (*draft.processes, *draft.benchmark)
    ]
    return (*scripts, *draft.files)


def _script(process: Process) -> str:
    lines = ["#!/usr/bin/env bash", "set -euo pipefail", ""]
    lines += [f"export {name}={shell_word(value)}" for name, value in process.environment.items()]
    lines += ["", "ARGUMENTS=("]
    lines += [f"  {_line(argument)}" for argument in process.arguments]
    lines += [")", "", f'exec {process.launcher} "${{ARGUMENTS[@]}}"']
    return "\n".join(lines) + "\n"


def _word(word: str | Variable) -> str:
    return f'"${{{word.name}:?}}"' if isinstance(word, Variable) else shell_word(word)


def _line(argument: Argument) -> str:
    words = [
        f'"${{{word.name}:?}}"' if isinstance(word, Variable) else shell_word(word)
        for word in argument.words
    ]
    return " ".join(words) + (f"  # {argument.note}" if argument.note else "")
