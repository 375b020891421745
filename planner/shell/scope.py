"""Variables of a shell while its text is followed: branches may or may not have set them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from planner.shell.values import (
    NOT_GIVEN,
    Variable,
    computed,
    text_of,
    why_unknown,
)

_MOST_PLACES = 6


class Scope:
    """Variables by name; what a branch, a subshell or a function sets lies above the outer ones.

    None is a variable that was unset by the script, or that nothing set.
    """

    def __init__(self, outer: Scope | None = None, *, is_function: bool = False) -> None:
        self.outer = outer
        self.own: dict[str, Variable | None] = {}
        self.local: set[str] = set()
        self.is_function = is_function

    def get(self, name: str) -> Variable | None:
        """The variable as it is known here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.own:
                return scope.own[name]
            scope = scope.outer
        return None

    def put(self, name: str, variable: Variable | None) -> None:
        """Sets it, here alone."""
        self.own[name] = variable

    def keep(self, outer: Scope) -> None:
        """Hands on what was set here and is not local to a function."""
        for name, variable in self.own.items():
            if name not in self.local:
                outer.put(name, variable)
        if not self.is_function:
            outer.local |= self.local


def merge(scope: Scope, branches: Sequence[Scope], line: Callable[[int], int]) -> None:
    """Sets in ``scope`` what is known after one of ``branches`` was taken."""
    names = dict.fromkeys(name for branch in branches for name in branch.own)
    for name in names:
        values = [branch.get(name) for branch in branches]
        told = [value for value in values if value is not None]
        # A script without arguments keeps what it set before it looked at them.
        told = [value for value in told if not _is_argument(value)] or told
        scope.put(name, _common(name, told, line) if told else None)
    for branch in branches:
        scope.local |= branch.local


def _common(name: str, values: Sequence[Variable], line: Callable[[int], int]) -> Variable:
    first = values[0]
    if all(value is first for value in values):
        return first
    assigned = tuple(dict.fromkeys(place for value in values for place in value.assigned))
    if all(value.is_array == first.is_array for value in values) and not first.unknown:
        if all(value.elements == first.elements and not value.unknown for value in values):
            return replace(first, assigned=assigned)
        texts = {value.texts for value in values if not value.unknown}
        if len(texts) == 1 and None not in first.texts and not any(v.unknown for v in values):
            elements = tuple(
                replace(element, pieces=computed(text_of(element.pieces) or ""), regions=())
                for element in first.elements
            )
            return replace(first, elements=elements, assigned=assigned)
    return Variable((), assigned=assigned, unknown=_several(name, assigned, line))


def _is_argument(value: Variable) -> bool:
    reason = why_unknown(value.pieces)
    return reason.endswith(NOT_GIVEN)


def _several(name: str, assigned: Sequence[int], line: Callable[[int], int]) -> str:
    lines = list(dict.fromkeys(line(place) for place in sorted(assigned)))
    told = ", ".join(map(str, lines[:_MOST_PLACES]))
    where = f"line{'s' if len(lines) > 1 else ''} {told}" if lines else "the environment"
    if len(assigned) < 2:
        return f"${name} is changed in a branch or loop ({where})"
    return f"${name} is assigned in several branches ({where})"
