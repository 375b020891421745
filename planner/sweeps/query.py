"""Which scenarios of a sweep are asked for, and in which order."""

from __future__ import annotations

import heapq
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TypeGuard

from planner.base.cells import Row, Value, number
from planner.base.records import record
from planner.errors import PlannerError, SearchSpaceError
from planner.question.inputs import shown
from planner.specs.catalogue import Catalogue
from planner.sweeps.columns import (
    MEASURES,
    VALUE,
    find_column,
    measured_alike,
    name_of,
    read_value,
)

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CONDITION = re.compile(r"\s*([^<>=!]+?)\s*(<=|>=|!=|==|=|<|>)\s*(.*?)\s*")
_MOST_SEEN = 20
_WHERE = "--where"


@record(kw_only=True)
class Condition:
    """What a column must be: one of ``values`` (=, !=), or less or more than the one."""

    column: str
    operator: str
    values: tuple[Value, ...]

    def holds(self, row: Row) -> bool:
        """Whether a scenario is asked for; what is unknown is only ever equal to none."""
        value = cell(self.column, row)
        if self.operator in ("=", "!="):
            return any(_equal(value, one) for one in self.values) == (self.operator == "=")
        return _is_number(value) and _OPERATORS[self.operator](value, number(self.values[0]))


@record(kw_only=True)
class Where:
    """Conditions that all hold; ``seen`` are values that a scenario had where one did not."""

    conditions: tuple[Condition, ...]
    seen: dict[str, dict[str, None]] = field(default_factory=dict)

    def rows(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Those that are asked for.

        Raises
        ------
        SearchSpaceError
            There is none; it tells what the columns have.
        """
        found = False
        for row in rows:
            if all(self._holds(one, row) for one in self.conditions):
                found = True
                yield row
        if self.conditions and not found:
            known = [f"{name} has {', '.join(values)}" for name, values in self.seen.items()]
            more = f" {'; '.join(known)}." if known else ""
            raise SearchSpaceError(f"No scenario is as {_WHERE} says.{more}")

    def _holds(self, one: Condition, row: Row) -> bool:
        holds = one.holds(row)
        if not holds and one.operator == "=":
            seen = self.seen.setdefault(one.column, {})
            if len(seen) < _MOST_SEEN:
                seen[str(cell(one.column, row))] = None
        return holds


def read_where(texts: Sequence[str], columns: Sequence[str], specs: Path | None = None) -> Where:
    """Conditions such as ``gpu=h100,b200,num_gpus>=512,cost<2M``.

    A text without a sign is another value of the column before it.

    Raises
    ------
    SearchSpaceError
        A column is unknown, or a value is none of that column.
    """
    found: list[Condition] = []
    for text in ",".join(texts).split(","):
        if not text.strip():
            continue
        match = _CONDITION.fullmatch(text)
        if match is None:
            if not found or found[-1].operator not in ("=", "!="):
                raise SearchSpaceError(
                    f"{_WHERE} {shown(text)}: write NAME=VALUE, NAME<VALUE and so on."
                )
            more = _values(found[-1].column, text.strip(), specs)
            found[-1] = replace(found[-1], values=(*found[-1].values, *more))
            continue
        name, sign, value = match.groups()
        column, sign = find_column(name, columns, _WHERE), "=" if sign == "==" else sign
        read = _values(column, value, specs)
        if sign not in ("=", "!=") and not _is_number(read[0]):
            raise SearchSpaceError(f"{_WHERE} {text.strip()}: {shown(value)} is no number.")
        found.append(Condition(column=column, operator=sign, values=read))
    return Where(conditions=tuple(found))


def read_order(text: str, columns: Sequence[str]) -> list[tuple[str, int]]:
    """Columns to sort by, each with 1 for the least first or -1 for the most first.

    >>> read_order("cost,-num_gpus", ["cost_usd", "num_gpus"])
    [('cost_usd', 1), ('num_gpus', -1)]
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [
        (find_column(word.lstrip("-+"), columns, "--sort"), -1 if word.startswith("-") else 1)
        for word in words
    ]


def ordered(
    rows: Iterable[Row], order: Sequence[tuple[str, int]], columns: Sequence[str], top: int | None
) -> Iterator[tuple[Value, ...]]:
    """The cells of ``columns`` of the first ``top`` rows, of all where it is None.

    Of rows no more than these cells and what they are sorted by is held. What is unknown comes
    last; equal rows keep their order.
    """
    found = (
        (
            tuple(_key(cell(column, row), sign) for column, sign in order),
            number,
            tuple(cell(column, row) for column in columns),
        )
        for number, row in enumerate(rows)
    )
    if not order:
        for number, (_, _, cells) in enumerate(found):
            if number == top:
                return
            yield cells
        return
    best = sorted(found) if top is None else heapq.nsmallest(top, found)
    yield from (cells for _, _, cells in best)


def cell(column: str, row: Row) -> Value:
    """A column or measure of a row; None where it is unknown."""
    if column in MEASURES or column == VALUE:
        found = measured_alike(column, row)
        return None if found != found else found
    return row.get(column)


def _key(value: object, sign: int) -> tuple[int, float, str | tuple[int, ...]]:
    """What is unknown behind texts behind numbers."""
    if isinstance(value, bool | int | float):
        return (0, sign * value, "")
    if value is None:
        return (2, 0, "")
    text = str(value)
    return (1, 0, text if sign > 0 else (*(-ord(letter) for letter in text), 1))


def _values(column: str, text: str, specs: Path | None) -> tuple[Value, ...]:
    """A value; of what specs describe its own name and the one that was written."""
    try:
        name = name_of(Catalogue(specs), column, text)
    except PlannerError:
        return (text,)
    return (read_value(column, text, _WHERE),) if name is None else (text, name)


def _equal(value: object, other: object) -> bool:
    if value is None or other is None:
        return value is other
    if _is_number(value) and _is_number(other):
        return bool(value == other)
    return str(value).casefold() == str(other).casefold()


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
