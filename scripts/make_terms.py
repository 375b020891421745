"""Make planner/question/names.py, a constant for each term, from the tables of terms and groups.

Run it after a change of either; a test fails while the file is not what it makes:

    python scripts/make_terms.py
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "planner" / "question"
FILE = FOLDER / "names.py"

_HEAD = '''"""A constant for each term and a type of all groups, so `mypy` finds misspelt names.

Made by `python scripts/make_terms.py` from `terms.csv` and `groups.csv`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

'''
_WIDTH = 100


def names() -> str:
    """The text of the module."""
    constants = [f'{term.upper()}: Final = "{term}"\n' for term in _column("terms.csv", "term")]
    return _HEAD + "".join(constants) + _literal("GroupName", _column("groups.csv", "group"))


def _column(file: str, name: str) -> list[str]:
    text = (FOLDER / file).read_text(encoding="utf-8")
    return [row[name] for row in csv.DictReader(text.splitlines())]


def _literal(alias: str, values: Iterable[str]) -> str:
    lines = ["   "]
    for value in values:
        if len(lines[-1]) + len(value) + 4 > _WIDTH:
            lines.append("   ")
        lines[-1] += f' "{value}",'
    return "\n".join([f"{alias}: TypeAlias = Literal[", *lines, "]  # fmt: skip", ""])


if __name__ == "__main__":
    FILE.write_text(names(), encoding="utf-8")
