"""What became of each option of a user's file."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from planner.base.records import record
from planner.errors import did_you_mean
from planner.launch.option_table import Meaning
from planner.launch.target import Target
from planner.launch.text import Given
from planner.launch.understood import Answers, Reading


class Status(StrEnum):
    """How far an option was understood."""

    UNDERSTOOD = "understood"
    OPEN = "cannot be told"
    IGNORED = "ignored"
    UNKNOWN = "unknown"


@record(kw_only=True)
class Line:
    """One option: where it stands, what it says, and what was made of it."""

    line: int
    option: str
    text: str
    status: Status
    meaning: str

    def __str__(self) -> str:
        words = f"{self.option} {self.text}".strip()
        return f"line {self.line}: {words}: {self.meaning or self.status}"


def lines_of(target: Target, reading: Reading, answers: Answers) -> tuple[Line, ...]:
    """All options of a command or document, in the order of the file."""
    found = [_line(target, reading, answers, given) for given in reading.found.options.values()]
    found += [_of_no_table(target, reading, answers, given) for given in reading.found.unknown]
    return tuple(sorted(found, key=lambda line: (line.line, line.option)))


def _line(target: Target, reading: Reading, answers: Answers, given: Given) -> Line:
    told = list(_meanings(reading, given.option))
    rows = [row for row in target.table.rows if row.option == given.option]
    if not rows and not told and given.option not in answers.used:
        is_known = given.option in answers.ignored
        if not is_known and target.options.find(given.option) is None:
            return _unknown(target, reading, given)
        status, meaning = Status.IGNORED, "no part of what is predicted"
    elif given.unknown or None in given.texts:
        status, meaning = Status.OPEN, given.unknown or "text alone does not tell it"
    elif told:
        meaning = ", ".join(f"{one.parameter} = {one.value}" for one in told)
        status = Status.UNDERSTOOD
    elif given.option in answers.used:
        status, meaning = Status.UNDERSTOOD, ""
    elif any(row.role == "is" and row.parameter not in reading.meanings for row in rows):
        status, meaning = Status.OPEN, "a value that planner knows nothing of"
    else:
        status, meaning = Status.UNDERSTOOD, "goes with the others"
    return _made(given, status, meaning)


def _of_no_table(target: Target, reading: Reading, answers: Answers, given: Given) -> Line:
    if given.option in answers.used:
        return _made(given, Status.UNDERSTOOD, "")
    if given.option in answers.ignored:
        return _made(given, Status.IGNORED, "no part of what is predicted")
    return _unknown(target, reading, given)


def _meanings(reading: Reading, option: str) -> Iterator[Meaning]:
    return (one for one in reading.meanings.values() if option in one.options)


def _unknown(target: Target, reading: Reading, given: Given) -> Line:
    if given.unknown and not given.option.startswith("-"):  # several options, or none
        return _made(given, Status.OPEN, given.unknown)
    hint = did_you_mean(given.option, target.table.options)
    meaning = f"{target.title} {target.version} has no such option.{hint}"
    return _made(given, Status.UNKNOWN, meaning)


def _made(given: Given, status: Status, meaning: str) -> Line:
    text = " ".join("?" if one is None else one for one in given.texts)
    return Line(line=given.line, option=given.option, text=text, status=status, meaning=meaning)
