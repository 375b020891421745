"""Words of commands that the text of a script does not determine, as options that are not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from planner.documents.shell import Script, Word
from planner.documents.shell.edits import ParsedOption, implied_option
from planner.documents.shell.scope import ONLY_AT_RUN_TIME
from planner.launch.read.parsed_launch import ParsedCommand
from planner.launch.wrappers.read_programs import StartedProgram


def run_time_words(name: str, line: int) -> ParsedOption:
    """Return an option for words of a command in a line that are known only when it runs."""
    option = implied_option(name, "", line)
    return replace(option, texts=(None,), unknown=f"{name}: {ONLY_AT_RUN_TIME}")


EDITORS = ("sed", "yq", "perl")
"""Programs that change files in place."""
_IN_PLACE = re.compile(r"-\w*i|--inplace|--in-place")


def report_edits(command: ParsedCommand, script: Script) -> ParsedCommand:
    """Return a command with the changes that its script makes in files that it names, as unread."""
    edits = {
        (Path(word.text or "").name, each.line): each.words[0].text
        for each in script.commands
        if each.words and each.words[0].text in EDITORS
        and any(_IN_PLACE.fullmatch(word.text or "") for word in each.words)
        for word in each.words[1:]
    }  # fmt: skip
    on_disk = {Path(name).name for name, document in command.files.items() if document.path}
    lost = [
        run_time_words(f"the changes of {editor} in {name}", line)
        for (name, line), editor in edits.items()
        if name in on_disk
    ]
    return replace(command, unknown=(*command.unknown, *lost))


def with_cut_options(
    commands: Iterable[StartedProgram],
) -> Iterator[tuple[StartedProgram, tuple[Word, ...]]]:
    """Yield each command with the options that its last continued line cuts off.

    A blank behind a backslash, or a comment between continued lines, ends a command for the shell:
    the lines that follow are commands of their own, whose program is an option.
    """
    held: StartedProgram | None = None
    cut_off: tuple[Word, ...] = ()
    for command in commands:
        if held is not None and command.words and command.words[0].begins.startswith("--"):
            cut_off += command.words
            continue
        if held is not None:
            yield held, cut_off
        held, cut_off = command, ()
    if held is not None:
        yield held, cut_off


def report_cut_options(command: ParsedCommand, cut_off: Sequence[Word]) -> ParsedCommand:
    """Return a command whose options behind a broken continuation are listed as not understood."""
    if not cut_off:
        return command
    line = cut_off[0].line
    option = implied_option(f"the options from line {line} on", cut_off[0].begins, line)
    note = (
        f"The shell does not pass the options from line {line} on: a blank behind the backslash, "
        "or a comment, ends the command before them."
    )
    return replace(command, unknown=(*command.unknown, option), notes=(*command.notes, note))
