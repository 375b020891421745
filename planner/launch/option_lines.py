"""The options of a launch file, each with what was made of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from enum import StrEnum

from planner.base.records import record
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError, did_you_mean
from planner.launch.harmless import harmless_reason
from planner.launch.option_table import is_among
from planner.launch.parsed_launch import LaunchSettings, OptionReader, ParsedCommand
from planner.launch.target import LaunchTarget


class Status(StrEnum):
    """How far an option was understood."""

    UNDERSTOOD = "understood"
    OPEN = "cannot be told"
    NOT_MODELLED = "may change the result: not modelled"
    IGNORED = "no effect"
    UNKNOWN = "not understood: may change the result"


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


def lines_of(
    target: LaunchTarget, reading: OptionReader, answers: LaunchSettings
) -> tuple[Line, ...]:
    """All options of a command or document, in the order of the file."""
    options = {*reading.command.options, *(given.option for given in reading.command.unknown)}
    used = {option for option in options if is_among(option, target.table.used)}
    answers = replace(answers, used_options=answers.used_options | used)
    found = [_line(target, reading, answers, given) for given in reading.command.options.values()]
    for given in reading.command.unknown:
        if given.option in answers.used_options:
            found.append(_made(given, Status.UNDERSTOOD, ""))
        else:
            found.append(_unread(target, reading, answers, given))
    return tuple(sorted(found, key=lambda line: (line.line, line.option)))


_DECIDING = re.compile(
    r"adapter|lora|freez|frozen|trainable|(train|tuner|sft|finetuning)_type|fine_?tun|rlhf"
    r"|quant\w*_(bits?|method|algo\w*)|^stage$|lisa_activated"
)
_BESIDE_THEM = re.compile(
    r"alpha|dropout|bias|path|name|dir|seed|init|lr$|rate$|_output|merge|save|module|target|kwargs"
    r"|double|nested"
)
_SWITCHED_OFF = ("false", "none", "no", "0", "null", "")


def require_known_training(
    target: LaunchTarget, command: ParsedCommand, lines: Iterable[Line]
) -> None:
    """Refuse an option that decides what is trained and that nothing here knows.

    Raises LaunchError with the program whose option it is.
    """
    for line in lines:
        name = line.option.lstrip("-").replace("-", "_").lower()
        is_off = line.text.lower() in _SWITCHED_OFF and bool(line.text)
        is_other = not _DECIDING.search(name) or bool(_BESIDE_THEM.search(name))
        if line.status is not Status.UNKNOWN or is_off or is_other:
            continue
        words = [text for one in command.positional[:3] if (text := one.single)]
        program = next((word for word in words if word not in ("accelerate", "launch")), None)
        raise LaunchError(
            f"{command.name}:{line.line}: {line.option} of {program or 'the program'} decides what "
            f"is trained, and {target.tool} has no such option: leave it out to "
            "have the rest predicted, and say with --set what it means."
        )


def _line(
    target: LaunchTarget, reading: OptionReader, answers: LaunchSettings, option: ParsedOption
) -> Line:
    told = [one for one in reading.meanings.values() if option.option in one.options]
    rows = [row for row in target.table.rows if row.option == option.option]
    if not rows and not told and option.option not in answers.used_options:
        return _unread(target, reading, answers, option)
    if option.unknown or None in option.texts:
        status, meaning = Status.OPEN, option.unknown or "the file alone does not say"
    elif told:
        meaning = ", ".join(f"{one.parameter} = {one.value}" for one in told)
        status = Status.UNDERSTOOD
    elif option.option in answers.used_options:
        status, meaning = Status.UNDERSTOOD, ""
    elif any(row.role == "is" and row.parameter not in reading.meanings for row in rows):
        status, meaning = Status.OPEN, "a value unknown to planner"
    else:
        status, meaning = Status.UNDERSTOOD, "belongs to the others"
    return _made(option, status, meaning)


def _unread(
    target: LaunchTarget, reading: OptionReader, answers: LaunchSettings, option: ParsedOption
) -> Line:
    """The line of an option that nothing reads: harmless, unknown, or not modelled."""
    if option.option in answers.ignored_options or option.option in target.table.ignored:
        return _made(option, Status.IGNORED, "")
    accepted = target.options.find(option.option)
    default = "" if accepted is None else target.options.default(accepted.name)
    why = harmless_reason(option.option, option.texts, target.workloads, default)
    is_of_tool = option.option in answers.unread or is_among(option.option, target.table.unread)
    if accepted is not None or is_of_tool or (why and not target.accepted):
        status = Status.IGNORED if why else Status.NOT_MODELLED
        return _made(option, status, f"{status}: {why}" if why else "")
    if option.unknown and not option.option.startswith("-"):  # several options, or none
        return _made(option, Status.OPEN, option.unknown)
    hint = did_you_mean(option.option, target.table.options)
    meaning = f"{Status.UNKNOWN}, {target.tool} has no such option.{hint}"
    return _made(option, Status.UNKNOWN, meaning)


def _made(option: ParsedOption, status: Status, meaning: str) -> Line:
    text = " ".join("?" if one is None else one for one in option.texts)
    return Line(line=option.line, option=option.option, text=text, status=status, meaning=meaning)
