"""Commands embedded in Python programs, notebooks and Markdown texts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from planner.base import read_files
from planner.documents.code_blocks import blocks_of, cells_of, program_and_shell, without_prompts
from planner.documents.python_calls import Call, parse_calls
from planner.documents.shell.edits import LARGEST
from planner.errors import LaunchError
from planner.launch.option_table import option_aliases
from planner.launch.read.parsed_launch import (
    ParsedCommand,
    suffix_of,
)
from planner.launch.read.python_programs import (
    modal_concurrency,
    process_commands,
    program_resources,
    servers_of_program,
)
from planner.launch.read.removed import name_removed_program
from planner.launch.read.script_commands import (
    PYTHON_SUFFIX,
    YAML_SUFFIXES,
    empty_script,
    find_files,
    merge_resources,
    parse_script,
    parse_yaml,
    program_files,
)
from planner.launch.wrappers.read_helm_charts import (
    without_positions,
)

_DOCSTRING = re.compile(r'(?:[ \t]*(?:#[^\n]*)?\n)*[rR]?"""(?P<body>.*?)"""', re.DOTALL)
_TRUSS = ("model", "model.py")
"""The program of a Truss, whose settings are in config.yaml above it."""
_PYTHON_LANGUAGES = ("python", "py", "python3")
_SHELL_LANGUAGES = ("", "bash", "sh", "shell", "console", "shell-session", "zsh", "text")


def parse_prose(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield the commands in the code blocks of Markdown; skip blocks that cannot be parsed.

    Python blocks are read only if no shell or YAML block starts anything.
    """
    commands = [
        *_parse_blocks(
            path, text, (*_SHELL_LANGUAGES, *(suffix.lstrip(".") for suffix in YAML_SUFFIXES))
        )
    ]
    yield from commands or _parse_blocks(path, text, _PYTHON_LANGUAGES)


def _parse_blocks(path: Path, text: str, languages: Sequence[str]) -> Iterator[ParsedCommand]:
    """Yield commands in Markdown code blocks of ``languages``; skip blocks that do not parse."""
    for language, code in blocks_of(text, languages):
        try:
            if language in _PYTHON_LANGUAGES:
                commands = [*servers_of_program(parse_calls(code, path.name), code, path.name)]
            elif language in _SHELL_LANGUAGES:
                commands = [*parse_script(path, without_prompts(code))]
            else:
                commands = [*parse_yaml(path, code)]
        except LaunchError:
            continue
        yield from (
            replace(command, text=text) if command.path is None else command for command in commands
        )


def parse_program(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield servers and trainings in the calls of a program, and commands in notebook cells.

    If no call starts anything, the commands in its docstring.
    """
    config = path.absolute().parents[1] / "config.yaml"
    if path.parts[-2:] == _TRUSS and config.is_file():
        commands = [*parse_yaml(config, read_files.read_text(config, LARGEST, LaunchError))]
        yield from (replace(command, path=config) for command in commands)
        if commands:
            return
    calls, code, shell = read_calls(path, text)
    for call in calls:
        if name := name_removed_program(call=call.name):
            yield ParsedCommand(target=name, name=path.name, text=code, line=call.line)
            return
    script = empty_script(path, code)
    surrounding = program_resources(calls)
    docstring_commands = [*_parse_docstring(path, text)] if suffix_of(path) == PYTHON_SUFFIX else []
    try:
        servers = [*servers_of_program(calls, code, path.name)]
    except LaunchError:  # its options come from the command line: see its docstring
        if not docstring_commands:
            raise
        servers = []
    for command in servers:
        files = find_files(path, script, command.options.values())
        resources = merge_resources(command.resources, surrounding, path.name)
        yield replace(command, files={**files, **command.files}, resources=resources)
    yield from () if servers else docstring_commands
    if not servers and any(call.name.startswith("bentoml.") for call in calls):
        yield from _parse_bento(path)
    if shell.strip():
        yield from (replace(launched, text=code) for launched in parse_script(path, shell))
    for line, shell_command in process_commands(calls):
        for command in parse_script(path, "\n" * (line - 1) + shell_command):
            resources = merge_resources(command.resources, surrounding, path.name)
            options = {**modal_concurrency(calls), **without_positions(command.options)}
            yield replace(command, text=code, resources=resources, options=options)


def _parse_bento(path: Path) -> Iterator[ParsedCommand]:
    """Yield the vLLM command of a BentoML service by the arguments in its ``pyproject.toml``.

    As the services of bentoml/BentoVLLM at 1.4.27 use them.
    """
    project = path.parent / "pyproject.toml"
    try:
        table: Any = read_files.read_toml(project, LaunchError)
        arguments = table["tool"]["bentoml"]["build"]["args"]
        words = ["vllm", "serve", arguments["model_id"]]
    except (LaunchError, KeyError, TypeError):
        return
    for name, option in option_aliases("bentoml").items():
        words += [option, str(arguments[name])] if arguments.get(name) else []
    words += map(str, arguments.get("cli_args") or ())
    for command in parse_script(path, shlex.join(words)):
        resources = replace(command.resources, gpu=arguments.get("gpu_type"))
        options = without_positions(command.options)
        yield replace(
            command, path=project, name=project.name, resources=resources, options=options
        )


def _parse_docstring(path: Path, text: str) -> Iterator[ParsedCommand]:
    """Yield the commands in the module docstring of a program, as in the examples of TRL."""
    if (head := _DOCSTRING.match(text)) is not None:
        prose = re.sub(r"[^\n]", " ", text[: head.start("body")]) + head["body"]
        commands = [*parse_prose(path, prose)]
        if not commands:
            with suppress(LaunchError):  # prose that no shell reads
                commands = [*parse_script(path, prose)]
        yield from (replace(command, text=text) for command in commands)


def read_calls(path: Path, text: str) -> tuple[tuple[Call, ...], str, str]:
    """Return the calls of a Python program or notebook, its text, and its shell commands."""
    if suffix_of(path) == PYTHON_SUFFIX:
        return parse_calls(text, path.name, read_file=program_files(path)), text, ""
    code, shell = program_and_shell([*cells_of(text, path.name)])
    lines = zip(code.split("\n"), shell.split("\n"), strict=True)
    full_text = "\n".join(
        code_line or shell_line for code_line, shell_line in lines
    )  # versions stand in both
    return parse_calls(code, path.name, read_file=program_files(path)), full_text, shell
