"""Variables of a script by scope, and their values after a branch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from planner.documents.shell.syntax import (
    MISSING_ARGUMENT,
    Element,
    TextPiece,
    Variable,
    computed_text,
    text_of,
    unknown_text,
    why_unknown,
)

_MOST_PLACES = 6
_MOST_COMPARED = 10**6
_LONGEST_SPLIT = 50_000
ONLY_IN_SOME = "is set only in some branches"
IN_BRANCHES = "assigned in several branches"
READ_AT_RUN_TIME = "is read when it runs"
ONLY_AT_RUN_TIME = "known only when it runs"
ALL_ARGUMENTS = "@"
"""Variable that is set if all arguments of a script are known: they are ``1``, ``2``, ..."""
_MOST_CHOICES = 4


class Scope:
    """Variables by name; those of a branch, a subshell or a function hide the outer ones.

    None: the script unset the variable, or never set it.
    """

    def __init__(self, outer: Scope | None = None, *, is_function: bool = False) -> None:
        self.outer = outer
        self.variables: dict[str, Variable | None] = {}
        self.local: set[str] = set()
        self.is_function = is_function

    def get(self, name: str) -> Variable | None:
        """Return the variable from this scope or the nearest outer one; None if not set."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return None

    def put(self, name: str, variable: Variable | None) -> None:
        """Sets a variable in this scope only."""
        self.variables[name] = variable

    def keep(self, outer: Scope) -> None:
        """Set variables that are not local to a function in the outer scope."""
        for name, variable in self.variables.items():
            if name not in self.local:
                outer.put(name, variable)
        if not self.is_function:
            outer.local |= self.local


def merge(scope: Scope, branches: Sequence[Scope], line: Callable[[int], int]) -> None:
    """Set in ``scope`` the variables after one of ``branches`` ran."""
    names = dict.fromkeys(name for branch in branches for name in branch.variables)
    for name in names:
        values = [branch.get(name) for branch in branches]
        specified = [value for value in values if value is not None]
        # A script without arguments keeps the values from before it read them.
        specified = [
            value for value in specified if not why_unknown(value.pieces).endswith(MISSING_ARGUMENT)
        ] or specified
        scope.put(name, _common(name, specified, line) if specified else None)
    for branch in branches:
        scope.local |= branch.local


def _common(name: str, values: Sequence[Variable], line: Callable[[int], int]) -> Variable:
    """Return the variable after branches: what all branches agree on, else unknown."""
    first = values[0]
    if all(value is first for value in values):
        return first
    assigned = tuple(dict.fromkeys(place for value in values for place in value.assigned))
    choices = dict.fromkeys(text_of(value.pieces) for value in values if not value.is_array)
    several = _several(name, assigned, line, [*choices] if len(choices) > 1 else ())
    if all(value.is_array == first.is_array and not value.unknown for value in values):
        if all(value.elements == first.elements for value in values):
            return replace(first, assigned=assigned)
        if len({value.texts for value in values}) == 1 and None not in first.texts:
            return replace(first, elements=_without_places(first.elements), assigned=assigned)
        length = sum(len(piece.text) for value in values for piece in value.pieces)
        if length < _LONGEST_SPLIT and (
            shared := _shared_words([value.words for value in values], several)
        ):
            return first.of_words(shared, assigned)
    return Variable((), assigned=assigned, unknown=several)


def _without_places(elements: Iterable[Element]) -> tuple[Element, ...]:
    """Elements that several positions set: no single position can be changed."""
    return tuple(Element(computed_text(text_of(element.pieces) or "")) for element in elements)


def _shared_words(lists: Sequence[Sequence[Element]], reason: str) -> Sequence[Element]:
    """Return the elements common to all lists; unknown where some lists add words.

    They are the shortest list if all others contain it, else the common beginning and end.
    """
    contents = [[_content(word) for word in words] for words in lists]
    least = min(contents, key=len)
    starts = [_start_of(least, words) for words in contents]
    before, after = len(least), 0
    if None in starts:
        before = _num_shared(contents)
        after = _num_shared([words[before:][::-1] for words in contents])
        starts = [0] * len(lists)
    inner = [words[start or 0 :] for words, start in zip(lists, starts, strict=True)]
    head = [_of_all(words) for words in zip(*(words[:before] for words in inner), strict=True)]
    ends = [words[len(words) - after :] for words in inner]
    tail = [_of_all(words) for words in zip(*ends, strict=True)]
    if least and not head and not tail:
        return ()
    common = {*least}
    added = [
        word
        for words, content in zip(lists, contents, strict=True)
        for word, key in zip(words, content, strict=True)
        if key not in common
    ]
    texts = dict.fromkeys(text_of(word.pieces) or "" for word in added)
    options = ", ".join(text for text in texts if text.startswith("-"))
    gap = Element(unknown_text(f"{options} {ONLY_IN_SOME}; {reason}" if options else reason))
    is_led = any(starts)
    is_followed = any(len(words) > before + after for words in inner)
    return [*([gap] if is_led else []), *head, *([gap] if is_followed else []), *tail]


def _start_of(part: Sequence[object], words: Sequence[object]) -> int | None:
    """Return the index where ``words`` contains ``part`` in a row; None: nowhere."""
    starts = range(len(words) - len(part) + 1)
    if len(starts) * len(part) > _MOST_COMPARED:
        starts = range(1)
    return next((at for at in starts if words[at : at + len(part)] == part), None)


def _num_shared(lists: Sequence[Sequence[object]]) -> int:
    """Return how many first words all lists have in common."""
    number = 0
    for words in zip(*lists, strict=False):
        if len({*words}) > 1:
            break
        number += 1
    return number


def _content(element: Element) -> tuple[tuple[str, str], ...]:
    return tuple((piece.text, piece.unknown) for piece in element.pieces if piece != TextPiece(""))


def _of_all(words: Sequence[Element]) -> Element:
    """Return one of several equal words; without a position if their positions differ."""
    places = {tuple((piece.start, piece.end) for piece in word.pieces) for word in words}
    if len(places) == 1 or text_of(words[0].pieces) is None:
        return words[0]
    return _without_places(words[:1])[0]


def _several(
    name: str, assigned: Sequence[int], line: Callable[[int], int], choices: Sequence[str | None]
) -> str:
    """Return the reason why a variable set in branches is unknown, with its line numbers.

    ``choices`` are its values in the branches; they are named if all of them are known and few.
    """
    lines = list(dict.fromkeys(line(place) for place in sorted(assigned)))
    places = ", ".join(map(str, lines[:_MOST_PLACES]))
    where = f"line{'s' if len(lines) > 1 else ''} {places}" if lines else "the environment"
    if len(assigned) < 2:
        return f"${name} is changed in a branch or loop ({where})"
    literals = [choice for choice in choices if choice and re.fullmatch(r"[\w./:-]{1,60}", choice)]
    if literals and len(literals) == len(choices) <= _MOST_CHOICES:
        return f"${name} is {' or '.join(literals)}, {IN_BRANCHES} ({where})"
    return f"${name} is {IN_BRANCHES} ({where})"
