"""Options for a scheduler in comments of a script."""

from __future__ import annotations

import re

from planner.shell.script import Directive
from planner.shell.syntax import Source
from planner.shell.text import Span

_LINE = re.compile(r"^#(SBATCH|PBS|BSUB)[ \t]+([^\n]*)", re.M)
_WORD = re.compile(r"(?:[^\s'\"]|'[^'\n]*'|\"[^\"\n]*\")+")


def directives(source: Source) -> tuple[Directive, ...]:
    """Every ``#SBATCH``, ``#PBS`` and ``#BSUB`` line, an entry for each option."""
    found: list[Directive] = []
    for line in _LINE.finditer(source.text):
        words = list(_WORD.finditer(source.text, line.start(2), line.end(2)))
        for index, word in enumerate(words):
            if word[0].startswith("#"):
                break
            if not word[0].startswith("-"):
                continue
            after = words[index + 1] if index + 1 < len(words) else None
            found.append(_directive(line[1], word, after, source))
    return tuple(found)


def _directive(
    kind: str, word: re.Match[str], after: re.Match[str] | None, source: Source
) -> Directive:
    option, equals, _ = word[0].partition("=")
    start, end = word.end(), word.end()
    if word[0].startswith("--") and equals:
        start = word.start() + len(option) + 1
    elif not word[0].startswith("--") and len(word[0]) > 2 and kind != "BSUB":
        option, start = word[0][:2], word.start() + 2
        start += source.text[start] == "="
    else:
        option = word[0]
        if after is not None and not after[0].startswith(("-", "#")):
            start, end = after.span()
    if end - start > 1 and source.text[start] in "'\"" and source.text[end - 1] in "'\"":
        start, end = start + 1, end - 1
    return Directive(
        kind=kind, option=option, text=source.text[start:end], span=Span(start, end),
        line=source.line(word.start()), whole=Span(word.start(), max(word.end(), end)),
    )  # fmt: skip
