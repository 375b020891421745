"""Select and sort the scenarios of a sweep with pandas."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from planner.base.csv_cells import Row, Value
from planner.errors import SearchSpaceError
from planner.question.parse_values import format_input
from planner.sweeps.columns import check_column, column_hint
from planner.sweeps.sweep_folder import Sweep

if TYPE_CHECKING:
    import pandas as pd

WHERE, SORT = "--where", "--sort"
_EXAMPLE = "gpu == 'h100-sxm-80gb' and num_gpus >= 512"
_SYNTAX = (
    ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.List, ast.Tuple, ast.Name,
    ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.BitAnd, ast.BitOr,
)  # fmt: skip
_EVALUATION_ERRORS = (
    ArithmeticError, AttributeError, LookupError, NameError, MemoryError, RuntimeError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip
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
    conditions = [_parse_condition(text, sweep.columns) for text in where]
    names = [name for _, columns in conditions for name in columns]
    frame = _read_frame(sweep.rows(), ["scenario", *names, *(name for name, _ in order)])
    selected = frame
    for expression, _ in conditions:
        selected = selected[_evaluate(expression, selected, sweep.columns)]
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


def _parse_condition(text: str, columns: Sequence[str]) -> tuple[str, list[str]]:
    """Check a condition; return it on one line, with the columns that it uses."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        expression = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or isinstance(tree.body, ast.Tuple):
        reason = (
            "is not an expression of pandas. planner 0.1.0 was the last version that read "
            "conditions such as gpu=h100,num_gpus>=512"
        )
        raise _invalid(text, reason, columns)
    nodes = [*ast.walk(tree)]
    if not all(_is_allowed(node) for node in nodes):
        reason = (
            "may only have columns, numbers, quoted texts, lists, comparisons, + - * / %, and, or, "
            "not, in"
        )
        raise _invalid(text, reason, columns)
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    for name in names:
        if name not in columns:
            reason = f"has no column {name!r}.{column_hint(name, columns)} Put texts in quotes"
            raise _invalid(text, reason, columns)
    return expression, names


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str)
    return isinstance(node, _SYNTAX)


def _evaluate(expression: str, frame: pd.DataFrame, columns: Sequence[str]) -> pd.Series:
    """Return a series with True for each row that meets the condition."""
    import pandas as pd

    try:
        mask = frame.eval(expression, engine="python")
        if isinstance(mask, pd.Series) and mask.dtype == bool:
            return mask
        reason = "it is not a condition"
    except _EVALUATION_ERRORS as error:
        reason = str(error)
    raise _invalid(expression, f"cannot be evaluated: {reason.rstrip('.')}", columns)


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


def _invalid(text: str, reason: str, columns: Sequence[str]) -> SearchSpaceError:
    return SearchSpaceError(
        f"{WHERE} {format_input(text)} {reason}. Write an expression such as {_EXAMPLE}.\n"
        f"Columns: {', '.join(columns)}."
    )
