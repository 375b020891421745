"""What is to be changed in a file, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from planner.base.records import record

Texts = tuple[str | None, ...]
Changes = Mapping[str, tuple[str, ...] | None]
"""Options with their new texts, none for a flag; None takes the option out."""


@record(kw_only=True)
class Edited:
    """A file after changes; ``unwritten`` are those whose place text alone does not tell."""

    text: str
    unwritten: Changes = field(default_factory=dict)


def first_that_reads(
    candidates: Iterable[str],
    wanted: Mapping[str, Texts],
    read: Callable[[str], Mapping[str, Texts]],
) -> str | None:
    """The first text that reads as wanted; None if there is none."""
    from planner.errors import LaunchError

    for candidate in candidates:
        try:
            found = read(candidate)
        except LaunchError:
            continue
        if dict(found) == dict(wanted):
            return candidate
    return None


def after_change(
    options: Mapping[str, Texts], name: str, texts: tuple[str, ...] | None
) -> dict[str, Texts]:
    """The options that a change asks for; all others stay."""
    rest = {option: old for option, old in options.items() if option != name}
    return rest if texts is None else {**rest, name: texts}
