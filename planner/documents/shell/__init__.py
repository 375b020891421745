"""Shell scripts read as text: the commands that they would run, with the positions of words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from planner.documents.shell.control_flow import Follower, variable_word
from planner.documents.shell.edits import LARGEST
from planner.documents.shell.parser import MOST_COMMANDS, Parser, too_many
from planner.documents.shell.syntax import Command as Command
from planner.documents.shell.syntax import Directive as Directive
from planner.documents.shell.syntax import HereDocument as HereDocument
from planner.documents.shell.syntax import Script as Script
from planner.documents.shell.syntax import Source, directives
from planner.documents.shell.syntax import Word as Word
from planner.errors import LaunchError

_NOTHING: Mapping[str, str] = MappingProxyType({})


def read_shell(
    text: str,
    environment: Mapping[str, str] = _NOTHING,
    name: str = "the script",
    read_sourced: Callable[[str], str | None] | None = None,
) -> Script:
    """Read a script's commands, variables and files; nothing is run.

    Raises LaunchError if it is longer than 4 MB or no text, a quote or branch is never closed, or
    its variables expand to too much text.

    Parameters
    ----------
    text : text of the script
    environment : variables that the user sets; ``"1"`` is the script's first argument
    name : name of the file, for messages
    read_sourced : returns the text of a file that the script sources, None if it cannot be read;
        default: none is read
    """
    refuse_unreadable(text, name)
    source = Source(text, name)
    nodes = Parser(source).script()
    follower = Follower(source, environment, read_sourced)
    follower.script(nodes)
    if len(follower.commands) > MOST_COMMANDS:
        raise LaunchError(f"{name}: {too_many('commands', MOST_COMMANDS)}")
    variables = {
        name_of_variable: variable_word(
            follower.expander, variable, (variable.assigned or (0,))[-1]
        )
        for name_of_variable, variable in follower.scope.variables.items()
        if variable is not None
    }
    return Script(
        name=name,
        text=text,
        commands=tuple(follower.commands),
        variables=variables,
        directives=directives(source),
        files=follower.files,
    )


def refuse_unreadable(text: str, name: str) -> None:
    """Raises LaunchError if the text is too long, or no text."""
    if len(text) > LARGEST:
        raise LaunchError(
            f"{name} has {len(text):,} characters; launch files of up to {LARGEST:,} "
            "are read. Give the part that starts the job."
        )
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise LaunchError(f"{name}:{line}: there is a NUL character: this is not a text file.")
