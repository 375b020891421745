"""How surely every row of results keeps the limits that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.units import to_si
from planner.confidence.intervals import chance_below
from planner.optimize.constraints import Constraint
from planner.optimize.result_columns import ends_of
from planner.optimize.source import Columns
from planner.question.terms import glossary, percentile_of, term_of_column

PROBABILITY = "limits_probability"
# Limits whose column is called otherwise.
_COLUMNS_OF = {"request_rate": ("capacity_requests_per_s", "requests_per_s")}
# A latency is the sum of these, each with errors of its own; of static batches the last two.
_PARTS = {
    "request_latency": (
        ("time_to_first_token_s", "time_per_output_token_s"),
        ("prefill_latency_s", "decode_latency_s"),
    )
}
_UNITLESS = ("1", "1/s", "count")


def with_limits(table: Columns, limits: Sequence[Constraint]) -> Columns:
    """Result columns in full with the probability that a row keeps all ``limits``.

    It is the least of those of each limit that published errors tell of, [1]; NaN where they tell
    of none. Without limits the table stays as it is.
    """
    found = [each for limit in limits if (each := _chances(table, limit)) is not None]
    if not found:
        return dict(table)
    with np.errstate(invalid="ignore"):
        return {**table, PROBABILITY: np.fmin.reduce(found)}


def _chances(table: Mapping[str, object], limit: Constraint) -> FloatArray | None:
    """The probability that each row keeps a limit; None where no errors are published of it."""
    column = _column(table, limit.name)
    if column is None:
        return None
    values = np.asarray(table[column], dtype=np.float64)
    ends = _ends(table, limit.name, column, values)
    if ends is None:
        return None
    term = glossary()[limit.name]
    scale = 1.0 if term.type in _UNITLESS else to_si(1.0, term.unit, term.type)
    rows = zip(values.tolist(), *(end.tolist() for end in ends), strict=True)
    bound = limit.bound / scale
    kept = np.array([chance_below(bound, value, (low, high)) for value, low, high in rows])
    return kept if limit.sign > 0 else 1 - kept


def _column(table: Iterable[str], name: str) -> str | None:
    if name in _COLUMNS_OF:
        columns = [*table]
        return next((column for column in _COLUMNS_OF[name] if column in columns), None)
    terms = ((column, term_of_column(column)) for column in table)
    return next((column for column, term in terms if term and term.term == name), None)


def _ends(
    table: Mapping[str, object], name: str, column: str, values: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """The ends of a column's intervals, which a percentile has from its mean."""
    mean = percentile_of(name)
    base = mean[0] if mean else name
    for first, rest in _PARTS.get(base, ()):
        ends = _ends_of_mean(table, first), _ends_of_mean(table, rest)
        if first in table and None not in ends:
            start = np.asarray(table[first], dtype=np.float64)
            (low, high), (low_rest, high_rest) = ends  # type: ignore[misc]
            others = values - start
            return start * low + others * low_rest, start * high + others * high_rest
    factors = _ends_of_mean(table, _column(table, base) or column)
    return None if factors is None else (values * factors[0], values * factors[1])


def _ends_of_mean(table: Mapping[str, object], column: str) -> tuple[FloatArray, FloatArray] | None:
    """The ends of a column's intervals over its values."""
    names = ends_of(column)
    if column not in table or not all(name in table for name in names):
        return None
    value = np.asarray(table[column], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = (np.asarray(table[name], dtype=np.float64) / value for name in names)
    return low, high
