"""Make planner/question/names.py, a constant for each term that code imports, and all groups.

Run it after a change of the tables of terms or groups, or where a module imports another constant;
a test fails while the file is not what it makes:

    python scripts/make_terms.py
"""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "planner" / "question"
FILE = FOLDER / "names.py"

_HEAD = '''"""A constant for each term that code imports, and a type of all groups, for `mypy`.

Made by `python scripts/make_terms.py` from `terms.csv` and `groups.csv`.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

'''
_WIDTH = 100


def names() -> str:
    """The text of the module."""
    imported = {name for path in ROOT.glob("planner/**/*.py") for name in _imported(path)}
    terms = [term for term in _column("terms.csv", "term") if term.upper() in imported]
    constants = [f'{term.upper()}: Final = "{term}"\n' for term in terms]
    return _HEAD + "".join(constants) + _literal("GroupName", _column("groups.csv", "group"))


def _imported(path: Path) -> Iterator[str]:
    """The constants of `planner.question.names` that a module imports."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)) if "question.names import" in text else ():
        if isinstance(node, ast.ImportFrom) and node.module == "planner.question.names":
            yield from (alias.name for alias in node.names)


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
