"""Notebooks: the code of their cells, and the lines that a shell runs."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence

from planner.base.read_files import parse_json
from planner.errors import LaunchError, PlannerError

_SHELL_CELL = re.compile(r"%%(?:bash|sh|script +bash|script +sh)\b")
_MAGIC = re.compile(r"\s*[%!?]")
_COMMAND = re.compile(r"\s*(?:!|%(?=pip\b))")
_WITH_CODE = re.compile(r"%%(?:capture|time|timeit)\b")


def cells_of(text: str, name: str) -> Iterator[str]:
    """Yield the code cells of a notebook as text; raise LaunchError if it is no notebook."""
    try:
        book = parse_json(text, name)
    except PlannerError as error:
        raise LaunchError(str(error)) from error
    cells = book.get("cells") if isinstance(book, dict) else None
    if not isinstance(cells, list):
        raise LaunchError(f"{name}: is not a notebook: it has no list of cells.")
    for cell in cells:
        if isinstance(cell, dict) and cell.get("cell_type") == "code":
            source = cell.get("source") or ""
            yield "".join(map(str, source)) if isinstance(source, list) else str(source)


def program_and_shell(cells: Sequence[str]) -> tuple[str, str]:
    """Return two texts of a notebook's lines: the lines in Python, and the lines for a shell.

    Both have the lines of all cells in a row, blank where they are the other's. A cell that is
    no Python is left out.

    >>> program_and_shell(["x = 1\\n!vllm serve m"])
    ('x = 1\\n', '\\nvllm serve m')
    """
    programs: list[str] = []
    shells: list[str] = []
    for cell in cells:
        lines = cell.split("\n")
        python_lines, shell = [""] * len(lines), [""] * len(lines)
        if _SHELL_CELL.match(cell):
            shell[1:] = lines[1:]
        elif not cell.startswith("%%") or _WITH_CODE.match(cell):
            is_continued = False
            for index, line in enumerate(lines):
                is_shell = is_continued or bool(_COMMAND.match(line))
                if is_shell:
                    shell[index] = line if is_continued else _COMMAND.sub("", line, count=1)
                elif not _MAGIC.match(line):
                    python_lines[index] = line
                is_continued = is_shell and line.endswith("\\")
        programs.append(
            "\n".join(python_lines if _is_python("\n".join(python_lines)) else [""] * len(lines))
        )
        shells.append("\n".join(shell))
    return "\n".join(programs), "\n".join(shells)


def _is_python(text: str) -> bool:
    """Return whether the text parses as Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
