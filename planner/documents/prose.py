"""Blocks of code in texts for people: Markdown and reStructuredText."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

_FENCED = re.compile(
    r"^ *(?P<fence>```+|~~~+) *(?P<language>[\w+-]*)[^\n]*\n(?P<body>.*?)^ *(?P=fence)",
    re.MULTILINE | re.DOTALL,
)
_DIRECTIVE = re.compile(
    r"^\.\. code(?:-block)?:: *(?P<language>[\w+-]*)[^\n]*\n(?P<body>(?: *\n|[ \t]+[^\n]*\n)+)",
    re.MULTILINE,
)
_PROMPT = re.compile(r"^( *)[$#>] (?=\S)", re.MULTILINE)
_INDENTED = ("python", "py", "python3")


def blocks_of(text: str, languages: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The blocks in one of these languages, with blanks in place of the text before.

    Places in the code are those in the text. Python, whose indentation counts, begins in the first
    column, so that its lines alone are those of the text.
    """
    for block in (*_FENCED.finditer(text), *_DIRECTIVE.finditer(text)):
        language, body = block["language"].lower(), block["body"]
        if language in languages:
            code = textwrap.dedent(body) if language in _INDENTED else body
            yield language, re.sub(r"[^\n]", " ", text[: block.start("body")]) + code


def without_prompts(code: str) -> str:
    """Commands of a shell with blanks in place of its prompts."""
    return _PROMPT.sub(r"\1  ", code)
