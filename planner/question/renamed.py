"""Old names of options, columns and keys, which are read with a warning for one release.

``renamed.csv`` has a row for each name that changed:

``kind``
    ``option`` of a command, ``column`` of a CSV file or of a result, ``key`` of a TOML or JSON
    file, of ``--set`` or of a Python call
``old``, ``new``
    both names; of a key in one table of a file with the name of the table: ``memory.block_size``
``since``, ``until``
    the version that renamed it, and the version that no longer reads the old name
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from planner.base.read_files import JsonObject, UncheckedTable, packaged_rows
from planner.errors import SpecError

Kind = Literal["option", "column", "key"]

_SOURCES = "sources"
"""The table of a spec file whose keys the user chooses."""


@cache
def renamed_names() -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Rows of ``renamed.csv`` by kind and old name."""
    rows = packaged_rows(Path(__file__).with_name("renamed.csv"))
    return {(row["kind"], row["old"]): row for row in rows}


def current_name(kind: Kind, name: str, valid_names: Container[str] | None = None) -> str:
    """The new name of a renamed option, column or key, with a warning; else ``name``.

    Parameters
    ----------
    valid_names
        The names that are valid in this place, any if None. A valid name and a name whose new
        name is not valid are returned unchanged.
    """
    row = renamed_names().get((kind, name))
    if row is None or (
        valid_names is not None and (name in valid_names or row["new"] not in valid_names)
    ):
        return name
    _warn(kind, name)
    return row["new"]


def current_keys(table: UncheckedTable, where: str, table_name: str = "") -> JsonObject:
    """A table of a TOML or JSON file with renamed keys replaced, in nested tables too.

    Raises SpecError if the table has a key under both of its names.

    Parameters
    ----------
    where
        The file, for the error.
    table_name
        The name of the table in the file, empty for the outermost table.
    """
    current: JsonObject = {}
    prefix = f"{table_name}."
    for key, value in table.items():
        new = current_name("key", current_name("key", f"{prefix}{key}").removeprefix(prefix))
        if new != key and new in table:
            raise SpecError(f"{where}: {key} is the old name of {new}, which is set too.")
        if isinstance(value, Mapping) and key != _SOURCES:
            value = current_keys(value, where, key)
        elif isinstance(value, list):
            value = [
                current_keys(item, where, key) if isinstance(item, dict) else item for item in value
            ]
        current[new] = value
    return current


@cache
def _warn(kind: str, old: str) -> None:
    """Warn that an option, column or key has a new name, once per process."""
    row = renamed_names()[kind, old]
    warnings.warn(
        f"The {kind} {old} is now {row['new']}; planner {row['until']} will not read the old name.",
        FutureWarning,
        stacklevel=3,
    )
