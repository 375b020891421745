"""Conditions of ``--where``: pandas expressions over the columns of a table."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from planner.errors import SearchSpaceError, did_you_mean
from planner.question.parse_values import format_input

if TYPE_CHECKING:
    import pandas as pd

WHERE = "--where"
_MOST_COLUMNS = 40
"""Columns that a message lists."""
_SYNTAX = (
    ast.Expression, ast.BoolOp, ast.UnaryOp, ast.BinOp, ast.Compare, ast.List, ast.Tuple, ast.Name,
    ast.boolop, ast.unaryop, ast.cmpop, ast.expr_context,
    ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod, ast.BitAnd, ast.BitOr,
)  # fmt: skip
_EVALUATION_ERRORS = (
    ArithmeticError, AttributeError, LookupError, NameError, MemoryError, RuntimeError, SyntaxError,
    TypeError, ValueError,
)  # fmt: skip


def parse_condition(
    text: str,
    columns: Sequence[str],
    example: str,
    hint: Callable[[str, Sequence[str]], str] = did_you_mean,
    removed: str = "",
) -> tuple[str, list[str]]:
    """Check a condition; return it on one line, with the columns that it uses.

    Raises SearchSpaceError if it is no expression, or a column does not exist.

    Parameters
    ----------
    example : a valid condition, for messages
    hint : returns a sentence with columns similar to an unknown one
    removed : what to add where a text is no expression: which version read other ones
    """
    try:
        tree = ast.parse(text.strip(), mode="eval")
        expression = ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    if tree is None or isinstance(tree.body, ast.Tuple):
        raise _invalid(text, f"is not an expression of pandas{removed}", columns, example)
    nodes = [*ast.walk(tree)]
    if not all(_is_allowed(node) for node in nodes):
        reason = (
            "may only have columns, numbers, quoted texts, lists, comparisons, + - * / %, and, or, "
            "not, in"
        )
        raise _invalid(text, reason, columns, example)
    names = [node.id for node in nodes if isinstance(node, ast.Name)]
    for name in names:
        if name not in columns:
            reason = f"has no column {name!r}.{hint(name, columns)} Put texts in quotes"
            raise _invalid(text, reason, columns, example)
    return expression, names


def _is_allowed(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, bool | int | float | str)
    return isinstance(node, _SYNTAX)


def evaluate_condition(
    expression: str, frame: pd.DataFrame, columns: Sequence[str], example: str
) -> pd.Series[bool]:
    """Return a series with True for each row that meets a parsed condition.

    Raises SearchSpaceError if the expression cannot be evaluated, or is no condition.
    """
    import pandas as pd

    try:
        mask = frame.eval(expression, engine="python")
        if isinstance(mask, pd.Series) and mask.dtype == bool:
            return mask
        reason = "it is not a condition"
    except _EVALUATION_ERRORS as error:
        reason = str(error)
    reason = f"cannot be evaluated: {reason.rstrip('.')}"
    raise _invalid(expression, reason, columns, example)


def _invalid(text: str, reason: str, columns: Sequence[str], example: str) -> SearchSpaceError:
    more = len(columns) - _MOST_COLUMNS
    names = ", ".join(columns[:_MOST_COLUMNS]) + (f" and {more} more" if more > 0 else "")
    return SearchSpaceError(
        f"{WHERE} {format_input(text)} {reason}. Write an expression such as {example}.\n"
        f"Columns: {names}."
    )
