"""The files of rows beside a module."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent


@cache
def read_table(name: str, folder: Path = FOLDER) -> tuple[Mapping[str, str], ...]:
    """The rows of a CSV file, of this package where no folder is given."""
    with (folder / name).open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))
