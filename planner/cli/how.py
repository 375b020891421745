"""Options that the command line has beside those of the table of terms: the rows of `options.csv`.

``command`` is the one whose options they are, empty where several take them; a row without a kind
is of those, or of a term with a text of its own. ``kind`` says what typer makes of a value, of an
``argument:`` too, ``usual`` the one where none is given, ``names`` what they are called where that
is not the name, ``range`` the ends of numbers, ``completed`` what their completions are.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from planner.base.enums import TemplateKind
from planner.cli import complete
from planner.confidence.software import read_table
from planner.launch import WRAPPERS
from planner.show.page import PICTURES, USUAL_WIDTH
from planner.workloads.given import DRIVERS, SAMPLERS, TRIALS
from planner.workloads.registry import workload_names

Taken: TypeAlias = tuple[object, object]
"""What typer reads of an option: its annotation, and the value where it is not given."""

_KINDS: Mapping[str, Any] = {
    "text": str, "texts": list[str], "file": Path, "flag": bool, "whole": int, "number": float,
    "template": TemplateKind,
}  # fmt: skip
_WORDS = {
    "workloads": "|".join(workload_names()),
    "drivers": "|".join(DRIVERS),
    "driver": DRIVERS[0],
    "samplers": "|".join(SAMPLERS),
    "sampler": SAMPLERS[0],
    "trials": TRIALS,
    "wrappers": "|".join(WRAPPERS),
    "pictures": ", ".join(dict.fromkeys(name for names in PICTURES.values() for name in names)),
    "width": USUAL_WIDTH,
}


def _taken(row: Mapping[str, str]) -> Taken:
    at, _, name = row["kind"].rpartition(":")
    kind, usual = _KINDS[name], row["usual"].format(**_WORDS)
    least, _, most = row["range"].partition("..")
    word, names = row["completed"], row["names"].split()
    extra: dict[str, Any] = {
        "help": row["help"].format(**_WORDS),
        "metavar": row["metavar"].format(**_WORDS) or None,
        "min": int(least) if least else None,
        "max": int(most) if most else None,
        "autocompletion": (complete.for_words(word) or getattr(complete, word)) if word else None,
    }
    if name == "flag":
        names = names or ["--" + row["name"].replace("_", "-")]
    option = typer.Argument(**extra, show_default=False) if at else typer.Option(*names, **extra)
    if usual == "needed":
        return Annotated[kind, option], inspect.Parameter.empty
    if name == "flag" or usual:
        return Annotated[kind, option], kind(usual)
    return Annotated[kind | None, option], None


_ROWS: dict[str, dict[str, Mapping[str, str]]] = {}
for _row in read_table("options.csv", Path(__file__).parent):
    _ROWS.setdefault(_row["command"], {})[_row["name"]] = _row

HOW: Mapping[str, tuple[str, object, object]] = {
    name: (row["group"], *_taken(row)) for name, row in _ROWS[""].items()
}
"""Those that several commands take, by name: their group, their type and their usual value.

Numbers are text here: `planner.question.inputs` reads them.
"""


def texts_of(command: str) -> dict[str, str]:
    """What a command says of terms in place of their descriptions, by name."""
    return {name: row["help"] for name, row in _ROWS[command].items()}


def of_command(command: str) -> dict[str, Taken]:
    """The options that a command has for itself, by name."""
    rows = _ROWS[command].items()
    return {name: _taken(row) if row["kind"] else HOW[name][1:] for name, row in rows}
