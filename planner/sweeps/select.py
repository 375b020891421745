"""Select and sort the scenarios of a sweep with pandas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from planner.base.csv_cells import Row, Value
from planner.errors import SearchSpaceError
from planner.question.conditions import WHERE, evaluate_condition, parse_condition
from planner.sweeps.columns import check_column, column_hint
from planner.sweeps.sweep_folder import Sweep

if TYPE_CHECKING:
    import pandas as pd

SORT = "--sort"
_EXAMPLE = "gpu == 'h100-sxm-80gb' and num_gpus >= 512"
_REMOVED = (
    ". planner 0.1.0 was the last version that read conditions such as gpu=h100,num_gpus>=512"
)
_MAX_VALUES = 20


def select_scenarios(
    sweep: Sweep, where: Sequence[str] = (), order: Sequence[tuple[str, bool]] = ()
) -> list[int]:
    """Return the numbers of the scenarios that meet all conditions, sorted.

    Only the columns of the conditions and of the order are read into memory.
    Raises SearchSpaceError if an expression is invalid, a column does not exist, or no scenario
    meets the conditions.

    Parameters
    ----------
    where : pandas expressions over the columns of `Sweep.scenarios`
    order : columns and whether each ascends; unknown values come last
    """
    conditions = [
        parse_condition(text, sweep.columns, _EXAMPLE, column_hint, _REMOVED) for text in where
    ]
    names = [name for _, columns in conditions for name in columns]
    frame = _read_frame(sweep.rows(), ["scenario", *names, *(name for name, _ in order)])
    selected = frame
    for expression, _ in conditions:
        selected = selected[evaluate_condition(expression, selected, sweep.columns, _EXAMPLE)]
    if where and not len(selected):
        values = [
            f"{name} has {text}"
            for name in dict.fromkeys(names)
            if (text := _list_values(frame, name))
        ]
        raise SearchSpaceError(
            " ".join([f"No scenario meets {WHERE}.", *(f"{v}." for v in values)])
        )
    if order:
        selected = selected.sort_values(
            [name for name, _ in order],
            ascending=[ascends for _, ascends in order],
            kind="stable",
            key=lambda column: (
                column.map(str, na_action="ignore") if column.dtype == object else column
            ),
        )
    return [int(number) for number in selected["scenario"]]


def select_rows(sweep: Sweep, where: Sequence[str] = ()) -> Iterator[Row]:
    """Return the rows of the scenarios that meet all conditions, in the order of the sweep."""
    if not where:
        return sweep.rows()
    numbers = {*select_scenarios(sweep, where)}
    return (row for row in sweep.rows() if row["scenario"] in numbers)


def parse_order(text: str, columns: Sequence[str]) -> list[tuple[str, bool]]:
    """Parse columns to sort by, each with True for ascending; a minus sorts descending.

    >>> parse_order("cost_usd,-num_gpus", ["cost_usd", "num_gpus"])
    [('cost_usd', True), ('num_gpus', False)]
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    return [
        (check_column(name.removeprefix("-"), columns, SORT), not name.startswith("-"))
        for name in names
    ]


def _read_frame(rows: Iterable[Row], columns: Sequence[str]) -> pd.DataFrame:
    """Return columns of rows as a data frame; unknown values are NaN."""
    import pandas as pd

    values: dict[str, list[Value]] = {name: [] for name in columns}
    for row in rows:
        for name, column in values.items():
            value = row.get(name)
            column.append(math.nan if value is None else value)
    return pd.DataFrame(values)


def _list_values(frame: pd.DataFrame, column: str) -> str:
    """The first texts of a column; empty for numbers."""
    values = dict.fromkeys(value for value in frame[column] if isinstance(value, str))
    return ", ".join([*values][:_MAX_VALUES])
