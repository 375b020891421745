"""The glossary: one word per thing, with its unit and what it means."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True, kw_only=True)
class Term:
    """A word of the glossary; ``unit`` is the one it is shown in, 1 for plain numbers."""

    term: str
    unit: str
    description: str


@cache
def glossary() -> dict[str, Term]:
    """All terms by name, in the order of ``terms.csv``."""
    text = files("planner").joinpath("terms.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {row["term"]: Term(**row) for row in rows}


def term_of_column(column: str) -> Term | None:
    """The term of a result column, which is the term with a unit suffix; None if unknown.

    >>> term_of_column("peak_memory_gib").term
    'peak_memory'
    """
    terms = glossary()
    stem = column.rpartition("_")[0]
    return terms.get(column) or terms.get(stem)
