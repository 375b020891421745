"""Every option of a command works for every caller, but for the exceptions in one table."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import planner
from planner.cli.app import command_line
from planner.commands.options import (
    OPTIONS,
    PYTHON,
    SERVER,
    exceptions,
    field_names,
    form_fields,
    option_name,
)
from planner.confidence.profile_rules import read_table
from planner.question.terms import glossary
from planner.ui.form import field_groups
from planner.ui.mcp_server import COMMANDS as TOOLS
from planner.ui.mcp_server import _argument_name, _field_schemas, _option_descriptions
from planner.ui.question import COMMANDS as FORMS
from planner.ui.question import PLACED, Question, is_file
from planner.workloads.registry import workload_names

FUNCTIONS = {
    "max-batch": "max_batch", "max-length": "max_length", "launch": "write_launch",
}  # fmt: skip
# What Python calls by another name: the things of `compare` and the operators are positional.
PYTHON_NAMES = {"operators": "operator", "things": "things", "sweep_plan": "plan"}


def taken(command: str, caller: str) -> set[str]:
    """The options that a caller takes: terms, and others by the name of their field."""
    return {*field_names(command, caller), *OPTIONS[command].terms}


@pytest.mark.parametrize("command", OPTIONS)
def test_the_command_line_has_every_option(command: str) -> None:
    group = command_line().commands[command].built
    params = (group.commands["run"] if command == "sweep" else group).params
    options = {*OPTIONS[command].names, *OPTIONS[command].terms}
    assert options == {param.name for param in params} - {"context", "help"}


@pytest.mark.parametrize("command", FORMS)
def test_the_form_and_the_tool_have_every_option(command: str) -> None:
    names = taken(command, SERVER) - {"workload", *exceptions(command, SERVER)}
    fields = {name for workload in workload_names() for name in form_fields(command, workload)}
    assert fields == names
    for workload in workload_names():
        question = Question(command=command, workload=workload, fields={})
        shown = {field.name for group in field_groups(question) for field in group.fields}
        assert shown == {*form_fields(command, workload)}
    if command in TOOLS:
        options = {*_field_schemas(command), *_option_descriptions(command)}
        assert {_argument_name(name) for name in names if not is_file(name)} <= options


@pytest.mark.parametrize("command", OPTIONS)
def test_python_has_every_option(command: str) -> None:
    function = getattr(planner, FUNCTIONS.get(command, command))
    parameters = {*inspect.signature(function).parameters}
    names = {PYTHON_NAMES.get(name, name) for name in field_names(command, PYTHON)}
    if command != "sweep":  # its plan has the terms
        names |= {*OPTIONS[command].terms}
        parameters |= {*planner.Request.__annotations__}
    others = {
        name
        for name in names
        if name in glossary() and {"limit", "operator"} & {*glossary()[name].kind}
    }  # in constraints; the sizes of operators are keyword arguments
    assert names - others - {*exceptions(command, PYTHON)} <= parameters


def test_every_exception_is_of_an_option_and_has_a_reason() -> None:
    import planner.commands

    rows = read_table("exceptions.csv", Path(planner.commands.__file__).parent)
    assert all(row["reason"] and row["caller"] in (SERVER, PYTHON) for row in rows)
    assert len({(row["command"], row["option"], row["caller"]) for row in rows}) == len(rows)
    for row in rows:
        commands = [row["command"]] if row["command"] else [*OPTIONS]
        options = {name for c in commands for name in (*OPTIONS[c].names, *OPTIONS[c].terms)}
        assert row["option"] in options, row


@pytest.mark.parametrize("command", FORMS)
def test_the_line_of_a_form_is_one_of_the_command_line(command: str) -> None:
    for workload in workload_names():
        for name in form_fields(command, workload):
            assert name in PLACED or option_name(name).startswith("--")
