"""Result columns row by row, as launch files, reports and JSON take them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.optimize.collector import known_value, plain, rows_of
from planner.optimize.result_columns import full_columns
from planner.optimize.source import Columns, Source


def full_rows(table: Columns, sources: Sequence[Source]) -> list[dict[str, Any]]:
    """The rows of `full_columns`, each by column; a number that is not known is None."""
    columns = full_columns(table, sources)
    return [*rows_of({name: [*map(known_value, plain(each))] for name, each in columns.items()})]
