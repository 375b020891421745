"""Blocks of code in texts for people: Markdown and reStructuredText."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from planner.base.read_files import MEBIBYTE
from planner.errors import LaunchError

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
