"""Programs in Python as text: which functions they call with which values; nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from planner.base.records import record
from planner.documents.python_scopes import Assigned, Program, Scope, read_program
from planner.documents.python_values import (
    IS_BF16,
    Call,
    UnknownValue,
    Value,
    call_of,
    evaluate,
    is_run,
    to_shell_word,
    value_of,
)
from planner.errors import LaunchError

__all__ = [
    "IS_BF16",
    "Call",
    "Function",
    "UnknownValue",
    "Value",
    "argument_defaults",
    "parse_calls",
    "parse_functions",
    "to_shell_word",
]

ReadFile = Callable[[str], str | None]
"""Returns the text of a file near a program by its path; None without one."""


@record(kw_only=True)
class Function:
    """A function: the ``calls`` in it, and its assignments to attributes.

    ``changes`` are the assigned values by the path after the name: ``steps`` of
    ``config.steps = 9``.
    """

    name: str
    line: int
    calls: tuple[Call, ...]
    changes: Mapping[str, Value]


def parse_calls(
    text: str,
    name: str,
    command_line: Mapping[str, str] | None = None,
    read_file: ReadFile | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Call, ...]:
    """Return the calls of a Python program in the order of its lines, with values of arguments.

    Known values are constants, names that a function or the module assigns once, the defaults of
    parameters, of ``add_argument`` and of environment variables, results of the program's own
    functions, and simple expressions of them. Calls in branches that are known not to run are
    left out. Values of the ``command_line`` replace those defaults, also for the classes of
    HfArgumentParser and for the function that Fire calls. Modules and configurations that
    ``read_file`` finds near the program are read with it; what they hold has the line of the
    import. ``environment`` has the variables that are set as the program starts.
    Raises LaunchError if it is no Python, or nested too deeply.
    """
    with _read(text, name, read_file, environment) as program:
        _take_options(program, command_line or {})
        calls = [
            replace(
                call_of(program_call.node, program_call.scope, program), is_sure=is_sure is True
            )
            for program_call in program.calls
            if (is_sure := is_run(program_call, program)) is not False
        ]
    return tuple(sorted(calls, key=lambda call: call.line))


def argument_defaults(text: str, name: str, read_file: ReadFile | None = None) -> dict[str, Value]:
    """Return the defaults of a program's command-line options by name, if its text has them.

    They are those of ``add_argument`` and of the classes given to HfArgumentParser; elements of
    lists are texts.
    Raises LaunchError as `parse_calls`.
    """
    with _read(text, name, read_file) as program:
        _take_options(program, {})
        defaults = {
            option: evaluate(default.value, default.scope, program)
            for option, default in program.arguments.items()
            if default.value is not None
        }
    return {
        option: [*map(str, value)] if isinstance(value, list) else value
        for option, value in defaults.items()
        if isinstance(value, bool | int | float | str)
        or (isinstance(value, list) and value and all(isinstance(part, str) for part in value))
    }


def parse_functions(text: str, file_name: str) -> tuple[Function, ...]:
    """Return the functions of a program in order; reads values and raises as `parse_calls`."""
    with _read(text, file_name) as program:
        functions = []
        for name, (_, function_scope) in program.functions.items():
            calls = [
                call_of(program_call.node, program_call.scope, program)
                for program_call in program.calls
                if program_call.scope.is_within(function_scope)
            ]
            changes = {
                path: value_of(assigned, program)
                for assignments in function_scope.changed.values()
                for path, assigned in assignments
            }
            line = program.lines[name]
            functions.append(Function(name=name, line=line, calls=tuple(calls), changes=changes))
    return tuple(functions)


@contextmanager
def _read(
    text: str,
    name: str,
    read_file: ReadFile | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Program]:
    """Parse a Python text to names, calls and functions; raise LaunchError if that fails."""
    program = Program(
        name=name, read_file=read_file or (lambda _: None), environment=environment or {}
    )
    try:
        read_program(program, text)
        yield program
    except SyntaxError as error:
        raise LaunchError(
            f"{name}: line {error.lineno}: is not Python that can be parsed ({error.msg})."
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise LaunchError(f"{name}: is not Python that can be parsed.") from None


def _take_options(program: Program, command_line: Mapping[str, str]) -> None:
    """Replace defaults of arguments, dataclass fields and functions by command-line options."""
    values = {name: Assigned(_constant(text), Scope()) for name, text in command_line.items()}
    for program_call in program.calls:
        node = program_call.node
        kind = program.dotted(node.func).rpartition(".")[2]
        nodes = (
            inner
            for argument in (*node.args, *(keyword.value for keyword in node.keywords))
            for inner in ast.walk(argument)
        )
        named = [program.dotted(inner) for inner in nodes if isinstance(inner, ast.Name)]
        if kind in ("HfArgumentParser", "TrlParser"):
            for members in (program.members[name] for name in named if name in program.members):
                for name, assigned in members.names.items():
                    program.arguments.setdefault(name, assigned[0])
            program.arguments.update(values)
        elif kind == "Fire":
            for _, scope in (
                program.functions[name] for name in named if name in program.functions
            ):
                scope.names.update({
                    name: [value] for name, value in values.items() if name in scope.names
                })  # fmt: skip
    set_options = {name: value for name, value in values.items() if name in program.arguments}
    program.arguments.update(set_options)


def _constant(text: str) -> ast.Constant:
    """Convert a word of a command line to a boolean, None, number or text."""
    constants = {"true": True, "false": False, "none": None}
    if text.lower() in constants:
        return ast.Constant(value=constants[text.lower()])
    for kind in (int, float):
        try:
            return ast.Constant(value=kind(text))
        except ValueError:
            continue
    return ast.Constant(value=text)
