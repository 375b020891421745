"""What a program calls the options of another, whose tables know them.

A row of ``dialects/<name>.csv``:

``role``
    ``is``: the option with whatever value is ``into``; ``word``: with ``text`` it is ``into`` with
    ``word``, a flag where that is empty; ``written``: it is what ``into`` is called in changes
    alone; ``short``: another spelling of the option ``into``; ``config``: a key of a file beside;
    ``default``: what the program does without ``into``, the ``term`` that it decides and ``note``
    why, if the condition in ``text`` holds: ``unless`` options are there, ``if`` one has a value;
    ``used``: the program's module reads it; ``ignored``: no part of what is predicted
``option``
    as the program spells it, without hyphens before it
``text``, ``into``, ``word``, ``term``, ``note``
    see the roles
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from planner.base.records import record
from planner.launch.option_table import shipped_rows


@record(kw_only=True)
class Wording:
    """A row of a dialect; see the module."""

    role: str
    option: str
    text: str
    into: str
    word: str
    term: str
    note: str


@record()
class Dialect:
    """The rows of a program."""

    rows: tuple[Wording, ...]

    @classmethod
    @cache
    def load(cls, name: str) -> Dialect:
        """That of a program."""
        return cls(tuple(Wording(**row) for row in shipped_rows(f"dialects/{name}.csv")))

    @property
    def options(self) -> tuple[str, ...]:
        """Those that the program calls otherwise, in order."""
        return tuple(dict.fromkeys(row.option for row in self.rows if row.into and row.option))

    def of(self, role: str) -> dict[str, str]:
        """What options with a role become, by option."""
        return {row.option: row.into for row in self.rows if row.role == role}

    def names(self, role: str) -> frozenset[str]:
        """The options with a role."""
        return frozenset(self.of(role))

    def into(self, option: str, text: str | None) -> Iterator[tuple[str, str | None]]:
        """What an option with a text becomes, each with its word, None where the text stays."""
        for row in self.rows:
            if row.option == option and row.role == "is":
                yield row.into, None
            elif (row.option, row.text, row.role) == (option, text, "word"):
                yield row.into, row.word

    @property
    def defaults(self) -> tuple[Wording, ...]:
        """What the program does where nothing is said."""
        return tuple(row for row in self.rows if row.role == "default")
