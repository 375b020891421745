"""The options of a launch file, each with its status and meaning."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum

from planner.base.records import record
from planner.documents.shell.edits import ParsedOption
from planner.errors import LaunchError, PlannerError, did_you_mean
from planner.launch.option_table import VALUE, OptionRole, OptionRow, matches_option
from planner.launch.read.harmless import harmless_reason, vouches
from planner.launch.read.parsed_launch import LaunchSettings, OptionReader, ParsedCommand
from planner.launch.target import LaunchTarget
from planner.launch.targets import readers


class Status(StrEnum):
    """How planner understood an option."""

    UNDERSTOOD = "understood"
    OPEN = "value not readable"
    NOT_MODELLED = "may change the result: not modelled"
    IGNORED = "no effect"
    UNKNOWN = "not understood: may change the result"


@record(kw_only=True)
class Line:
    """One option: line, text, status and meaning; ``file`` if the launch file only names it."""

    line: int
    option: str
    text: str
    status: Status
    meaning: str
    file: str = ""

    def __str__(self) -> str:
        inputs = f"{self.option} {self.text}".strip()
        return f"{self.place}: {inputs}: {self.meaning or self.status}"

    @property
    def place(self) -> str:
        """The line, with the name of its file if that is another one."""
        return f"{self.file} line {self.line}".strip()


def describe_options(
    target: LaunchTarget, reading: OptionReader, answers: LaunchSettings
) -> tuple[Line, ...]:
    """Return a line with the meaning of each option of a command, in the order of the file."""
    options = {*reading.command.options, *(option.option for option in reading.command.unknown)}
    used = {option for option in options if matches_option(option, target.table.used)}
    answers = replace(answers, used_options=answers.used_options | used)
    lines = [
        _line_of(target, reading, answers, option) for option in reading.command.options.values()
    ]
    for unknown_option in reading.command.unknown:
        if unknown_option.option in answers.used_options:
            status = Status.OPEN if unknown_option.unknown else Status.UNDERSTOOD
            lines.append(_make_line(unknown_option, status, unknown_option.unknown))
        else:
            lines.append(_unread_line(target, reading, answers, unknown_option))
    workloads = target.workloads
    for name, variable in reading.command.environment.items():
        is_unread = _ENGINE_VARIABLE.match(name) and name not in _READ_VARIABLES
        reason = harmless_reason(name, variable.texts, workloads) if is_unread else ""
        if is_unread and not reason:
            variable = replace(variable, option=name)
            lines.append(_make_line(variable, Status.NOT_MODELLED, ""))
    return tuple(sorted(lines, key=lambda line: (line.line, line.option)))


_ENGINE_VARIABLE = re.compile(r"(?:VLLM|SGLANG|SGL|TRTLLM|TLLM|NVTE)_")
_READ_VARIABLES = ("VLLM_PP_LAYER_PARTITION", "VLLM_ADDITIONAL_ARGS")


def describe_documents(
    target: LaunchTarget, command: ParsedCommand, answers: LaunchSettings
) -> Iterator[Line]:
    """Yield the lines of the configurations that a command names, with the name of each.

    A document is a configuration if a target has such documents, or knows most of its keys.
    """
    for name, document in command.files.items():
        is_other = document.target not in ("", target.name)
        reader = readers().get(document.target, target) if is_other else target
        section = next((o.option for o in command.options.values() if name in o.texts), "")
        options = {}
        for key, option in document.options.items():
            full = f"{section.lstrip('-')}.{key}"
            is_of_section = not _has_key(reader, key) and full in reader.options.options
            key = full if is_of_section else key
            options[key] = replace(option, option=key)
        reading = reader.make_reader(replace(document, options=options))
        settings = answers
        with suppress(PlannerError):  # it may be complete only together with the command
            settings = reader.answers(reading)
        used = {name.lstrip("-") for name in answers.used_options}
        used_options = settings.used_options | {name for name in options if name in used}
        lines = describe_options(reader, reading, replace(settings, used_options=used_options))
        unknown = [line for line in lines if line.status is Status.UNKNOWN]
        if not document.target and 2 * len(unknown) >= len(lines):
            continue
        for line in lines:
            is_replaced = {line.option, f"--{line.option}"} & {*command.options}
            line = replace(line, meaning="the command has another value") if is_replaced else line
            yield replace(line, file=document.name)


def _has_key(target: LaunchTarget, key: str) -> bool:
    return target.options.find(key) is not None or matches_option(key, target.table.used)


_TRAINING_OPTION = re.compile(
    r"adapter|lora|freez|frozen|trainable|(train|tuner|sft|finetuning)_type|fine_?tun|rlhf"
    r"|quant\w*_(bits?|method|algo\w*)|^stage$|lisa_activated"
)
_HARMLESS_PART = re.compile(
    r"alpha|dropout|bias|path|name|dir|ckpt|checkpoint|seed|^pretrain_|init|lr$|rate$|_output|merge|save|module|target|kwargs"
    r"|double|nested|^(ref_)?adapters$"
)
_SWITCHED_OFF = ("false", "none", "no", "0", "null", "auto", "")


def refuse_unknown_training(
    target: LaunchTarget, command: ParsedCommand, lines: Iterable[Line]
) -> None:
    """Raise LaunchError if an unknown option decides which weights or objective are trained.

    Raises LaunchError with the option and its program.
    """
    for line in lines:
        name = line.option.lstrip("-").replace("-", "_").lower()
        is_off = line.text.lower() in _SWITCHED_OFF and bool(line.text)
        is_harmless = not _TRAINING_OPTION.search(name) or bool(_HARMLESS_PART.search(name))
        if line.status is not Status.UNKNOWN or is_off or is_harmless:
            continue
        starters = ("accelerate", "launch")
        program = next((word for word in command.words[:3] if word not in starters), None)
        raise LaunchError(
            f"{command.name}:{line.line}: {line.option} of {program or 'the program'} decides what "
            f"is trained, but {target.tool} has no such option. Leave it out to predict the rest, "
            "and set its meaning with --set."
        )


def _line_of(
    target: LaunchTarget, reading: OptionReader, answers: LaunchSettings, option: ParsedOption
) -> Line:
    """Return the line about one option: its status (understood, open or unread) and meaning."""
    parameters = [
        parameter for parameter in reading.meanings.values() if option.option in parameter.options
    ]
    rows = [row for row in target.table.rows if row.option == option.option]
    is_read = any(row.role in _READ_ROLES or _is_as_written(row, option) for row in rows)
    if not is_read and not parameters and option.option not in answers.used_options:
        return _unread_line(target, reading, answers, option)
    if option.unknown or None in option.texts:
        status, meaning = Status.OPEN, option.unknown or "the file alone does not specify it"
    elif parameters:
        meaning = ", ".join(
            f"{parameter.parameter} = {parameter.value}" for parameter in parameters
        )
        status = Status.UNDERSTOOD
    elif option.option in answers.used_options:
        status, meaning = Status.UNDERSTOOD, ""
    elif any(row.role == "is" and row.parameter not in reading.meanings for row in rows):
        status, meaning = Status.OPEN, "a value unknown to planner"
    else:
        status, meaning = Status.UNDERSTOOD, "read together with other options"
    return _make_line(option, status, meaning)


_WORDS = re.compile(r"[^-\w]|the ")
"""Several words of a command, or none."""
_DECIDES = re.compile(
    r"parallel|batch_size|(seq|sequence|max)_len|zero_stage|offload|quantiz|precision|recompute"
    r"|n_gpus|num_gpus|lora_rank"
)


_READ_ROLES = (OptionRole.IS, OptionRole.READS)


def _is_as_written(row: OptionRow, option: ParsedOption) -> bool:
    """Whether an option has the fixed text that plans are written with."""
    return VALUE not in row.text and row.read(option.joined) is not None


def _unread_line(
    target: LaunchTarget, reading: OptionReader, answers: LaunchSettings, option: ParsedOption
) -> Line:
    """Return the line of an option that planner does not read: harmless, unknown, not modelled."""
    if option.option in answers.ignored_options or option.option in target.table.ignored:
        return _make_line(option, Status.IGNORED, "")
    accepted = target.options.find(option.option)
    if accepted is None and option.unknown and _WORDS.match(option.option):
        return _make_line(option, Status.OPEN, option.unknown)
    default = "" if accepted is None else target.options.default(accepted.name)
    reason = harmless_reason(option.option, option.texts, target.workloads, default)
    is_of_tool = option.option in answers.unread or vouches(
        target.table.unread, option.option, option.texts, target.workloads
    )
    if (option.unknown or None in option.texts) and accepted is not None and not reason:
        return _make_line(option, Status.OPEN, option.unknown)
    # An option that only a pattern has may be one of a fork, or a misspelt one.
    is_stated = option.option in target.table.unread
    is_of_tool &= is_stated or bool(reason) or not _DECIDES.search(option.option.rpartition(".")[2])
    if accepted is not None or is_of_tool or (reason and not target.accepted):
        status = Status.IGNORED if reason else Status.NOT_MODELLED
        return _make_line(option, status, f"{status}: {reason}" if reason else "")
    hint = did_you_mean(option.option, target.table.options)
    meaning = f"{Status.UNKNOWN}, {target.tool} has no such option.{hint}"
    return _make_line(option, Status.UNKNOWN, meaning)


def _make_line(option: ParsedOption, status: Status, meaning: str) -> Line:
    text = " ".join("?" if part is None else part for part in option.texts)
    return Line(line=option.line, option=option.option, text=text, status=status, meaning=meaning)
