"""Text of launch files: where a value stands, what changes there, and the difference as a patch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import unified_diff

from planner.base.reading import MEBIBYTE
from planner.base.records import record
from planner.errors import LaunchError

LARGEST = 4 * MEBIBYTE
"""Bytes of a file, or characters of a text, up to which it is read."""

_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_NO_NEWLINE = "\\ No newline at end of file\n"


@dataclass(frozen=True, order=True)
class Span:
    """Characters ``start`` up to ``end`` of a file's text; empty where something can be put in."""

    start: int
    end: int


@record(kw_only=True)
class Given:
    """One option of a user's file, as text alone tells it.

    ``option`` is spelt as in the target's table: ``--tensor-model-parallel-size``,
    ``zero_optimization.stage``.
    """

    option: str
    texts: tuple[str | None, ...]
    """Its values as text; empty for a flag; None where text alone does not tell the value."""
    line: int
    """The first line of a file is 1."""
    spans: tuple[Span | None, ...]
    """Of each value; through a variable, where that got it; None if composed of several parts."""
    whole: Span | None
    """Option and values, where they stand together: what is removed to remove the option."""
    unknown: str = ""
    """Why a value cannot be told: ``$WORLD_SIZE is set by nothing in this file``."""

    @property
    def single(self) -> str | None:
        """Its one value; None of a flag, of several, and of one that cannot be told."""
        return self.texts[0] if len(self.texts) == 1 else None

    @property
    def joined(self) -> str | None:
        """Its values with blanks between; None of a flag, and where one cannot be told."""
        known = [text for text in self.texts if text is not None]
        return " ".join(known) if len(known) == len(self.texts) and known else None

    def saying(self, text: str) -> Given:
        """The option with another value, which does not stand in the file."""
        return replace(self, texts=(text,), spans=(None,))


def stated(option: str, text: str, line: int = 1) -> Given:
    """An option that a program has by itself: it stands nowhere in the file."""
    return Given(option=option, texts=(text,), line=line, spans=(None,), whole=None)


def edited(text: str, edits: Mapping[Span, str]) -> str:
    """``text`` with each span replaced; an empty span puts something in.

    Raises ValueError if two edits overlap or one lies outside the text.

    >>> edited("tp=2 pp=4", {Span(3, 4): "8", Span(9, 9): " cp=2"})
    'tp=8 pp=4 cp=2'
    """
    parts, done = [], 0
    for span in sorted(edits):
        if not done <= span.start <= span.end <= len(text):
            raise ValueError(f"The edit {span} overlaps another or lies outside the text.")
        parts += [text[done : span.start], edits[span]]
        done = span.end
    return "".join([*parts, text[done:]])


def diff(before: str, after: str, name: str) -> str:
    """A unified diff that ``patch`` takes; empty if nothing changed.

    >>> print(diff("tp=2\\npp=4\\n", "tp=8\\npp=4\\n", "run.sh"), end="")
    --- run.sh
    +++ run.sh
    @@ -1,2 +1,2 @@
    -tp=2
    +tp=8
     pp=4
    """
    lines = unified_diff(list(_lines(before)), list(_lines(after)), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _lines(text: str) -> Iterator[str]:
    """Lines end at a line feed alone; ``str.splitlines`` also ends them at other characters."""
    start = 0
    while start < len(text):
        end = text.find("\n", start) + 1 or len(text)
        yield text[start:end]
        start = end


Texts = tuple[str | None, ...]
Changes = Mapping[str, tuple[str, ...] | None]
"""Options with their new texts, none for a flag; None takes the option out."""


@record(kw_only=True)
class Edited:
    """A file after changes; ``unwritten`` are those whose place text alone does not tell."""

    text: str
    unwritten: Changes = field(default_factory=dict)


def first_that_reads(
    candidates: Iterable[str],
    wanted: Mapping[str, Texts],
    read: Callable[[str], Mapping[str, Texts]],
) -> str | None:
    """The first text that reads as wanted; None if there is none."""
    for candidate in candidates:
        try:
            found = read(candidate)
        except LaunchError:
            continue
        if dict(found) == dict(wanted):
            return candidate
    return None


def after_change(
    options: Mapping[str, Texts], name: str, texts: tuple[str, ...] | None
) -> dict[str, Texts]:
    """The options that a change asks for; all others stay."""
    rest = {option: old for option, old in options.items() if option != name}
    return rest if texts is None else {**rest, name: texts}


def shell_word(text: str) -> str:
    """``text`` as one argument of a command of a POSIX shell, whatever it holds.

    Raises LaunchError for a NUL character, which no argument of a command can hold.

    >>> print(shell_word("bf16"), shell_word("a b"), shell_word("it's $(rm -rf ~)"))
    bf16 'a b' 'it'"'"'s $(rm -rf ~)'
    """
    if "\0" in text:
        raise LaunchError(f"{text!r} holds a NUL character, which no argument of a command can.")
    if _PLAIN_WORD.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\"'\"'") + "'"
