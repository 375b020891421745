"""Evaluate the rows of an option table that have expressions, for a file or for a plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import filter as matching
from typing import Any

from planner.documents.shell.edits import ParsedOption, implied_option
from planner.errors import LaunchError
from planner.launch.expressions import Expression, ExpressionValue, ValueLookup, attribute
from planner.launch.option_table import (
    MutableQuantities,
    OptionAliasTable,
    OptionRole,
    OptionRow,
    OptionTable,
    ParameterNote,
    ParameterReading,
    Quantities,
    format_option_value,
)
from planner.launch.read.parsed_launch import (
    OptionReader,
    ParsedCommand,
    SettingsBuilder,
    flag,
    has_unknown_value,
    number,
    option_text,
    parse_int,
    total_gpus,
    version_of,
)
from planner.launch.read.training_values import DEGREES, read_adapter_targets, set_training_value
from planner.question.terms import terms_of
from planner.specs.model import ModelSpec
from planner.specs.software_profile import is_before

_LAUNCHER_GPUS, _LAUNCHER_NODES, _PROGRAM = "launcher_gpus", "launcher_nodes", "program"
"""Names in expressions: GPUs of the job, nodes that the launcher starts, words that are no options.
"""


def apply_read_rows(
    reading: OptionReader,
    table: OptionTable,
    settings: SettingsBuilder,
    quantities: MutableQuantities,
    workload: str = "train",
    sizes: MutableQuantities | None = None,
    model: ModelSpec | None = None,
) -> MutableQuantities | None:
    """Set what the rows of a table compute; return the sizes of the model, None if it has none.

    ``quantities`` are names that expressions use besides settings and the table's parameters; those
    that rows compute are added. ``sizes`` collects those of the model, complete or not; ``model``
    is the one that the file names, if planner knows it.
    Raises LaunchError if a row refuses the file.
    """
    terms = terms_of(workload, "parameter", "question")
    resources = reading.command.resources
    quantities |= {_LAUNCHER_GPUS: total_gpus(resources)}
    quantities |= {_LAUNCHER_NODES: parse_int(resources.num_nodes)}
    # Some launchers take the module as an option.
    words = (*reading.command.words, reading.text("--module") or "")
    quantities.setdefault(_PROGRAM, " ".join(words).strip())
    sizes = {} if sizes is None else sizes

    def lookup(name: str) -> ExpressionValue:
        """Return a size, a quantity, a setting or a parameter that the table reads."""
        if name.startswith("model."):
            return attribute(model, name.removeprefix("model."))  # type: ignore[no-any-return]
        for values in (sizes, quantities):
            if values.get(name) is not None:
                return values[name]
        if settings.values.get(name) is not None:
            return parse_text(settings.values[name])
        return 1 if name in DEGREES else None if name in terms else parse_text(reading.value(name))

    functions = _option_functions(reading)
    for row in table.expressions:
        if row.role in _ROLES_OF_PLANS or not _holds(row, lookup, functions):
            continue
        if row.role is OptionRole.REQUIRED:
            if settings.values.get(row.parameter) is None:
                settings.mark_missing(row.parameter)
            continue
        if row.role is OptionRole.UNSET:
            for unset in (settings.values, settings.defaults):
                unset.pop(row.parameter, None)
            continue
        values = (
            sizes
            if row.role is OptionRole.SIZE
            else settings.values
            if row.parameter in terms
            else quantities
        )
        replaces = row.role in (OptionRole.SET, OptionRole.FALLBACK)
        if row.parameter and values.get(row.parameter) is not None and not replaces:
            continue
        value = row.expression.evaluate(lookup, functions)
        if isinstance(value, bool) and row.parameter in terms:
            value = None if terms[row.parameter].type == "count" else value
        if row.parameter in _SPLIT and isinstance(parse_text(value), str):
            settings.mark_missing(row.parameter)  # no number
            continue
        if row.role is OptionRole.SIZE:
            sizes[row.parameter] = value
        elif row.role in (OptionRole.READ, OptionRole.SET) and value is not None:
            if values is quantities:
                quantities[row.parameter] = value
            else:
                set_training_value(settings, row.parameter, value)
                if replaces:
                    settings.defaults.pop(row.parameter, None)
                if row.note:
                    settings.defaults[row.parameter] = _fill(row.note, lookup)
        elif row.role is OptionRole.FALLBACK:
            settings.fallbacks[row.parameter] = value, _fill(row.note, lookup)
        elif row.role is OptionRole.NOTED and value:
            settings.notes.append(_fill(row.note, lookup))
        elif row.role is OptionRole.REFUSED and value:
            raise LaunchError(f"{reading.position}: {_fill(row.note, lookup)}")
    return sizes if all(sizes.get(name) for name in _NEEDED_SIZES) else None


def derive_options(
    options: dict[str, ParsedOption], table: OptionAliasTable, **quantities: ExpressionValue
) -> dict[str, str]:
    """Add options that the rows ``derive`` of a program compute from others, or remove them.

    ``quantities`` are further names of their expressions. Return the reasons of rows by term.
    """
    reasons: dict[str, str] = {}
    functions = _functions_of(options)
    for row in table.rows:
        if row.role != "derive" or (
            row.text and not Expression.parse(row.text).evaluate(quantities.get, functions)
        ):
            continue
        value, source = Expression.parse(row.word).evaluate(quantities.get, functions), row.option
        if value is False:
            options.pop(row.into, None)
        elif value is True:
            options[row.into] = replace(
                options.get(source) or implied_option("", ""),
                option=row.into, texts=(), spans=(),
            )  # fmt: skip
        elif value is not None:
            text = format_option_value(value)
            option = options.get(source) or implied_option(row.into, text)
            is_same = option.single == text
            option = option if is_same else option.with_value(text)
            options[row.into] = replace(option, option=row.into)
        if row.term and value is not None:
            reasons[row.term] = row.note
    return reasons


def holds_for_options(
    condition: str, options: Mapping[str, ParsedOption], words: Sequence[str]
) -> bool:
    """Whether a condition on options and the words that start a program is true, or empty."""
    quantities = {_PROGRAM: " ".join(words)}
    return not condition or bool(
        Expression.parse(condition).evaluate(quantities.get, _functions_of(options))
    )


def _functions_of(options: Mapping[str, ParsedOption]) -> Mapping[str, Callable[..., Any]]:
    command = ParsedCommand(target="", name="", text="", options=options)
    return _option_functions(OptionReader(command=command, meanings={}))


_WRITING = (OptionRole.WRITE, OptionRole.IMPOSSIBLE)
_ROLES_OF_PLANS = (
    *(*_WRITING, OptionRole.UNEXPRESSED, OptionRole.ADVICE, OptionRole.USER),
    OptionRole.ENVIRONMENT,
)
_SPLIT = (*DEGREES, "num_gpus")
_NEEDED_SIZES = ("num_hidden_layers", "hidden_size", "num_attention_heads")


def parse_parameters(
    meanings: Mapping[str, ParameterReading], workload: str = "train"
) -> dict[str, str]:
    """Return the values of a workload's terms by term; leave out texts that are no numbers."""
    terms = terms_of(workload, "parameter", "question")
    return {
        name: meaning.value
        for name, meaning in meanings.items()
        if name in terms
        if terms[name].type not in _NUMBERS or _NUMBERS[terms[name].type].fullmatch(meaning.value)
    }


_NUMBERS = {"count": re.compile(r"[\d_]+"), "number": re.compile(r"\d*\.?\d+")}


def write_quantities(table: OptionTable, plan_value: ValueLookup) -> Quantities:
    """Return the quantities that the rows of a table compute from the values of a plan.

    Raises LaunchError if a row makes the plan impossible.
    """
    quantities: MutableQuantities = {}

    def lookup(name: str) -> ExpressionValue:
        return quantities[name] if name in quantities else plan_value(name)

    functions = {"before": lambda release: is_before(plan_value("engine_version"), release)}
    for row in table.expressions:
        if row.role in _WRITING and _holds(row, lookup, functions):
            value = row.expression.evaluate(lookup, functions)
            if row.role is OptionRole.WRITE:
                quantities[row.parameter] = value
            elif value:
                raise LaunchError(_fill(row.note, lookup))
    return quantities


def plan_notes(
    table: OptionTable, role: OptionRole, plan_value: ValueLookup
) -> tuple[ParameterNote, ...]:
    """Return the notes of a plan from the rows of a role: ``unexpressed`` or ``advice``."""
    return tuple(
        ParameterNote(
            parameter=row.parameter,
            value=format_option_value(row.expression.evaluate(plan_value)) if row.text else "",
            note=_fill(row.note, plan_value),
        )
        for row in table.expressions
        if row.role is role and _holds(row, plan_value, {})
    )


def plan_environment(table: OptionTable, plan_value: ValueLookup) -> dict[str, str]:
    """Return the variables of the environment of a plan's processes: rows ``environment``."""
    return {
        row.option: format_option_value(row.expression.evaluate(plan_value))
        for row in table.expressions
        if row.role is OptionRole.ENVIRONMENT and _holds(row, plan_value, {})
    }


def user_rows(
    table: OptionTable, plan_value: ValueLookup
) -> Iterator[tuple[OptionRow, str | None]]:
    """Yield the rows of options that the user sets for a plan, each with the default or text."""
    for row in table.expressions:
        if row.role is OptionRole.USER and _holds(row, plan_value, {}):
            value = row.expression.evaluate(plan_value) if row.text else None
            text = None if value is None else format_option_value(value)
            yield replace(row, note=_fill(row.note, plan_value)), text


def parse_text(value: Any) -> ExpressionValue:
    """Return a text of a file as a number or boolean, if it is one; other values unchanged.

    >>> parse_text("1_024"), parse_text("0.5"), parse_text("true"), parse_text("full")
    (1024, 0.5, True, 'full')
    """
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    if value in ("true", "false"):
        return value == "true"
    if _INTEGER.fullmatch(value):
        return int(value)
    return float(value) if _DECIMAL.fullmatch(value) else value


_INTEGER, _DECIMAL = re.compile(r"\d[\d_]{0,17}"), re.compile(r"\d{0,17}\.\d{1,17}")


def _holds(
    row: OptionRow, lookup: ValueLookup, functions: Mapping[str, Callable[..., Any]]
) -> bool:
    """Whether the condition of a row is true."""
    condition = row.condition
    return condition is None or bool(condition.evaluate(lookup, functions))


def _fill(note: str, lookup: ValueLookup) -> str:
    """Return a note with the values of its names in braces, as ``{tokens:,}`` or ``{share:g}``."""

    def text_of(match: re.Match[str]) -> str:
        value = lookup(match[1])
        return f"{value:{match[2]}}" if match[2] and isinstance(value, int | float) else str(value)

    return _NAME_IN_BRACES.sub(text_of, note)


_OFF = ("false", "0", "none")
_NAME_IN_BRACES = re.compile(r"\{([\w.]+)(?::([,g]))?\}")


def _option_functions(reading: OptionReader) -> Mapping[str, Callable[..., Any]]:
    """Return the functions of options in expressions; see `planner.launch.expressions`."""

    def amount(*options: str) -> float | None:
        amounts = map(reading.amount, options)
        return next((value for value in amounts if value is not None), None)

    def name(*options: str) -> str | None:
        texts = (reading.text(option) for option in options if option_text(reading, option))
        return next(texts, None)

    def on(*options: str) -> bool:
        parsed = filter(None, map(reading.command.options.get, options))
        return any((option.joined or "").lower() not in _OFF for option in parsed)

    def has(*patterns: str) -> bool:
        names = reading.command.options
        return any(matching(names, pattern) if "*" in pattern else pattern in names
                   for pattern in patterns)  # fmt: skip

    def lists(pattern: str, *words: str) -> str | None:
        names = matching(reading.command.options, pattern)
        texts = {text for name in names for text in reading.command.options[name].texts}
        return next((word for word in words if word in texts), None)

    def count(option: str) -> int | None:
        parsed = reading.command.options.get(option)
        return None if parsed is None else len(parsed.texts)

    def joined(*options: str) -> str | None:
        parsed = next(filter(None, map(reading.command.options.get, options)), None)
        return " ".join(filter(None, parsed.texts)).lower() or None if parsed else None

    def before(release: str) -> bool:
        stated = version_of(reading.command.target, reading.command)
        return is_before(stated and stated.number, release)

    def modules(*options: str) -> str:
        return read_adapter_targets(joined(*options) or "")

    return {
        "number": lambda *options: number(reading, *options),
        "amount": amount,
        "text": lambda *options: option_text(reading, *options),
        "name": name,
        "joined": joined,
        "modules": modules,
        "flag": lambda *options, default=False: flag(reading, *options, default=default),
        "on": on,
        "has": has,
        "lists": lists,
        "count": count,
        "before": before,
        "unknown": lambda *options: has_unknown_value(reading, *options),
    }
