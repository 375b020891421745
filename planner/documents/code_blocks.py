"""Code in texts for people: blocks of Markdown and reStructuredText, cells of notebooks."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator, Sequence

from planner.base.read_files import MEBIBYTE, parse_json
from planner.errors import LaunchError, PlannerError

_FENCE = re.compile(
    r"^ *(?P<fence>```+|~~~+) *(?P<language>[\w+-]*)(?P<more>[^\n]*)\n?", re.MULTILINE
)
_DIRECTIVE = re.compile(
    r"^\.\. code(?:-block)?:: *(?P<language>[\w+-]*)[^\n]*\n(?P<body>(?: *\n|[ \t]+[^\n]*\n)+)",
    re.MULTILINE,
)
_PROMPT = re.compile(r"^( *)[$#>] (?=\S)", re.MULTILINE)
# Each block is read with all text before it as blanks.
_MOST_CHARACTERS = 10 * MEBIBYTE
_INDENTED = ("python", "py", "python3")


def blocks_of(text: str, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield language and code of each block in ``languages``; blanks replace the text before.

    Positions in the code are those in the text. Python is dedented to the first column: only its
    line numbers are those of the text.
    """
    blanks = re.sub(r"[^\n]", " ", text)
    number = len(_FENCE.findall(text)) // 2 + len(_DIRECTIVE.findall(text))
    if number * len(text) > _MOST_CHARACTERS:
        raise LaunchError(
            f"{number:,} blocks of code in {len(text):,} characters are too many to read: give "
            "the part that starts the job."
        )
    directives = (
        (match["language"], match.start("body"), match.end("body"))
        for match in _DIRECTIVE.finditer(text)
    )
    for word, start, end in (*_fenced(text), *directives):
        language, body = word.lower(), text[start:end]
        if language in languages:
            if language in _INDENTED:
                code = textwrap.dedent(body)
            else:  # indented documents: their separators move to the first column
                indent = body[: len(body) - len(body.lstrip(" "))]
                code = re.sub(rf"^{indent}---(?=\s*$)", f"---{indent}", body, flags=re.MULTILINE)
            yield language, blanks[:start] + code


def _fenced(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the language of each fenced block, with start and end of its code in the text.

    A fence with a language begins a block, even if the block before it was never closed.
    """
    opening: re.Match[str] | None = None
    for fence in _FENCE.finditer(text):
        if opening is not None and not fence["fence"].startswith(opening["fence"]):
            continue
        begins = bool(fence["language"] or fence["more"].strip())
        if opening is not None and (opening["language"] or not begins):
            yield opening["language"], opening.end(), fence.start()
        opening = fence if begins or opening is None else None


def without_prompts(code: str) -> str:
    """Commands of a shell with blanks in place of its prompts."""
    return _PROMPT.sub(r"\1  ", code)


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
