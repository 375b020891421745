"""Files that are written as texts with holes: ``texts/``.

``{{name}}`` is a value; alone in a line it may be several lines, or none, as far to the right.
``%if name``, ``%else`` and ``%end`` keep lines where a value is something, ``%each name`` repeats
them for each of several tables of values. Blank lines that follow each other are one, or as many
as ``blank_lines``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from planner.launch.option_table import shipped_text

Value: TypeAlias = "str | int | Sequence[str] | Sequence[Mapping[str, Value]]"
Values: TypeAlias = Mapping[str, Value]

_HOLE = re.compile(r"\{\{(\w+)\}\}")
_ALONE = re.compile(r"( *)\{\{(\w+)\}\}")


def filled(name: str, values: Values, blank_lines: int = 1) -> str:
    """The text of this name with its holes filled."""
    return fill(tuple(shipped_text(f"texts/{name}").splitlines()), values, blank_lines)


def fill(template: Sequence[str], values: Values, blank_lines: int = 1) -> str:
    """The lines of a text with their holes filled.

    >>> print(fill(["%each names", "say {{word}}", "%end", "", "", "  {{more}}"],
    ...     {"names": [{"word": "a"}, {"word": "b"}], "more": ["c", "d"]}), end="")
    say a
    say b
    <BLANKLINE>
      c
      d
    """
    text: list[str] = []
    for line in _lines(template, values):
        if line or any(text[-blank_lines:]):
            text.append(line)
    while not text[-1]:
        text.pop()
    return "\n".join(text) + "\n"


def _lines(template: Sequence[str], values: Values) -> Iterator[str]:
    at = 0
    while at < len(template):
        line = template[at]
        if line.startswith("%"):
            other, end = _branches(template, at)
            word, name = line[1:].split()
            value = values[name]
            if word == "each":
                for each in value if isinstance(value, Sequence) else ():
                    own = each if isinstance(each, Mapping) else {}
                    yield from _lines(template[at + 1 : end], {**values, **own})
            else:
                kept = template[at + 1 : other] if value else template[other + 1 : end]
                yield from _lines(kept, values)
            at = end
        elif (alone := _ALONE.fullmatch(line)) and not isinstance(values[alone[2]], str):
            value = values[alone[2]]
            several = value if isinstance(value, Sequence) else (value,)
            yield from (f"{alone[1]}{one}" if one else "" for one in several)
        else:
            yield _HOLE.sub(lambda hole: str(values[hole[1]]), line)
        at += 1


def _branches(template: Sequence[str], start: int) -> tuple[int, int]:
    """The lines of ``%else``, or of the end without one, and of ``%end``."""
    depth, other = 0, 0
    for at in range(start, len(template)):
        word = template[at].split(" ")[0]
        depth += (word in ("%if", "%each")) - (word == "%end")
        if word == "%else" and depth == 1:
            other = at
        if not depth:
            return other or at, at
    raise ValueError(f"{template[start]} has no %end.")
