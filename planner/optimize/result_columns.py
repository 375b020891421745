"""Result columns in full: predictions, ends of their 90 % intervals, and the question."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from planner.base.arrays import FloatArray, IndexArray, Numeric, rank_values, sorted_unique
from planner.base.csv_cells import Row, Value, number_of_row, number_or_nan
from planner.confidence.intervals import BAD_CASE, FIXED, Confidence, quantile
from planner.confidence.ranking import RankedPlan, evidence_rank
from planner.formulas.power import ranges_of_products
from planner.optimize.source import Candidates, Column, Columns, Source, first_row
from planner.question.terms import column_ending, error_columns, glossary, terms_about

COLUMNS_BY_ERROR = error_columns()
"""By the quantity whose published errors they share: columns that are in proportion to it, and
those that are in proportion to its inverse."""
_CAPACITY = "capacity_requests_per_s"
_CAPACITIES = (_CAPACITY, f"{_CAPACITY}_per_gpu")
_OF_RATES = {name for names in COLUMNS_BY_ERROR["throughput"] for name in names} - {*_CAPACITIES}
_END = "makespan_s"
_UTILIZATION = "model_flops_utilization"
_FOLLOWERS = {name for same, inverse in COLUMNS_BY_ERROR.values() for name in (*same, *inverse)}
_MONEY = {term.column for term in glossary().values() if term.type == "usd"} & _FOLLOWERS
_OF_STEPS = ("step_time", "calendar_time")
RUNS, BASIS, TIE_FACTOR = "evidence_runs", "basis", "tie_factor"
# Columns that decide with which rows a row shares its errors.
_ERROR_KEYS = terms_about("error_key")
_UNKNOWN = (np.nan, np.nan)


def ends_of(column: str) -> tuple[str, str]:
    """The names of the two columns with the interval ends of a column.

    >>> ends_of("step_time_s"), ends_of("tokens_per_s")[0]
    (('step_time_low_s', 'step_time_high_s'), 'tokens_per_s_low')
    """
    unit = "" if column.endswith("_per_s") else column_ending(column)
    stem = column.removesuffix(unit)
    return f"{stem}_low{unit}", f"{stem}_high{unit}"


_CALENDAR, _STEPS = "calendar_time", "time_to_train_days"


def distinguishing_interval(column: str, row: Row) -> tuple[float, float] | None:
    """The 90 % interval of a column without errors that all plans share; None: unknown.

    Excludes the calendar time beyond the steps and the price range of sellers.
    """
    logs = _plan_specific_logs(column, row)
    if logs is None:
        return None
    value = number_of_row(row, column)
    low, high = (abs(log) for log in logs)
    return float(value * math.exp(-low)), float(value * math.exp(high))


def rank_row(column: str, row: Row, sign: int = 1) -> RankedPlan:
    """The rank data of a row by a column, to find ties; ``sign`` 1: low is better."""
    low, high = distinguishing_interval(column, row) or _UNKNOWN
    return RankedPlan(
        value=number_or_nan(row.get(column)),
        low=low,
        high=high,
        bad=bad_case_value(column, row, sign) if row.get(column) is not None else math.nan,
        error_group=tuple(row.get(name) for name in _ERROR_KEYS),
        tie_factor=number_or_nan(row.get(TIE_FACTOR) or 1.0),
        evidence_rank=evidence_rank_of(row),
    )


def evidence_rank_of(row: Row) -> int:
    """The evidence rank of a row; higher with less evidence."""
    return evidence_rank(str(row.get(BASIS) or ""), number_or_nan(row.get(RUNS)))


def bad_case_value(column: str, row: Row, sign: int) -> float:
    """The value of a column in the bad case: 9 of 10 similar runs are better.

    ``sign`` 1: low is better. Errors that all plans share do not count. The prediction itself if
    its errors are unknown.
    """
    logs, value = _plan_specific_logs(column, row), number_of_row(row, column)
    if logs is None:
        return float(value)
    factor = quantile((math.exp(logs[0]), math.exp(logs[1])), BAD_CASE, sign)
    return float(value if factor is None else value * factor)


def _plan_specific_logs(column: str, row: Row) -> list[float] | None:
    """Log factors of the interval ends, without errors that all plans share; None: unknown."""
    if column in COLUMNS_BY_ERROR[_CALENDAR][0]:
        return _interval_logs(_STEPS, row)
    if column not in _MONEY:
        return _interval_logs(column, row)
    # Errors of money are errors of the rate that it follows; errors of the price do not count.
    for same, inverse in COLUMNS_BY_ERROR.values():
        rates = (name for name in same if name in _OF_RATES and name not in _MONEY)
        logs = next(filter(None, (_interval_logs(name, row) for name in rates)), None)
        if column in inverse and logs is not None:
            return [-log for log in reversed(logs)]
    return None


def _interval_logs(column: str, row: Row) -> list[float] | None:
    """Logarithms of both interval ends divided by the value; None: no interval."""
    if any(row.get(name) is None for name in (column, *ends_of(column))):
        return None
    value, *ends = (float(number_of_row(row, name)) for name in (column, *ends_of(column)))
    if not all(math.isfinite(number) and number > 0 for number in (value, *ends)):
        return None
    return [math.log(end / value) for end in ends]


def full_columns(table: Columns, sources: Sequence[Source]) -> Columns:
    """Result columns with 90 % interval ends, number of runs, workload and prices."""
    if not table:
        return {}
    which = _source_numbers(table, sources)
    return {**_with_intervals(table, sources, which), **_question_columns(table, sources, which)}


def full_row(candidates: Candidates, sources: Sequence[Source]) -> dict[str, Value]:
    """The first row of `full_columns` of candidates; the candidates are predicted once."""
    table = {name: [value] for name, value in candidates.row.items()}
    return first_row(full_columns(table, sources))


def intervals(row: Row, confidence: Confidence | None) -> dict[str, tuple[float, float]]:
    """The (low, high) ends of the 90 % intervals of a row, by column."""
    ends_by_column: dict[str, tuple[float, float]] = {}
    for quantity, (low, high) in (confidence.factors if confidence else {}).items():
        same, inverse = COLUMNS_BY_ERROR.get(quantity, ((), ()))
        end = _cap_at_peak(
            row, quantity, low, confidence.max_utilization if confidence else math.inf
        )
        for name in (name for name in (*same, *inverse) if name in row):
            min_factor, max_factor = _cap_at_load(row, name, end, high)
            value = number_of_row(row, name)
            ends = value * min_factor, value * max_factor
            low_end, high_end = (
                ends if name in same else _inverse_ends(value, min_factor, max_factor)
            )
            if name in _MONEY and confidence is not None and value:
                factors = float(low_end / value), float(high_end / value)
                low_end, high_end = (
                    value * factor for factor in confidence.money_interval(factors)
                )
            ends_by_column[name] = float(low_end), float(high_end)
    return ends_by_column


def _cap_at_load(
    table: Columns | Row, column: str, low: Numeric, high: Numeric
) -> tuple[Numeric, Numeric]:
    """The interval factors, capped so that the served rate does not exceed the load.

    The capacity has errors, the load has none; less is served if the capacity is too low.
    The rate of a fixed number of requests ends with the last answer, whose latency has errors.
    """
    if _CAPACITY not in table or column not in _OF_RATES:
        return low, high
    with np.errstate(divide="ignore", invalid="ignore"):
        spare = _floats(table, _CAPACITY) / _floats(table, "requests_per_s")
        last = _floats(table, "request_latency_s") / _floats(table, _END) if _END in table else 0.0
        last = np.where(np.isfinite(last), np.clip(last, 0.0, 1.0), 0.0)
        low, high = (np.minimum(end * spare, 1 / (1 + last * (1 / end - 1))) for end in (low, high))
    return low, high


def _cap_at_peak(
    table: Columns | Row, quantity: str, low: Numeric, max_utilization: Numeric
) -> Numeric:
    """The low factor of a time, raised so that kernels do not exceed their highest MFU.

    ``max_utilization`` is the highest MFU. The factor is 1 if the prediction exceeds that MFU.
    """
    if quantity not in _OF_STEPS or _UTILIZATION not in table:
        return low
    return np.maximum(low, np.minimum(_floats(table, _UTILIZATION) / max_utilization, 1.0))


def _inverse_ends(value: Numeric, low: Numeric, high: Numeric) -> tuple[Numeric, Numeric]:
    with np.errstate(divide="ignore"):
        return np.divide(value, high), np.divide(value, low)


def _floats(table: Columns | Row, name: str) -> FloatArray:
    return np.asarray(table[name], dtype=np.float64)


def _source_numbers(table: Columns, sources: Sequence[Source]) -> int | IndexArray:
    """The index of each row's source; one number if all rows have the same source."""
    if len(sources) == 1:
        return 0
    source_numbers = {tuple(source.named.values()): number for number, source in enumerate(sources)}
    keys = [*zip(*(table[name] for name in sources[0].named), strict=True)]
    distinct = set(keys)
    if len(distinct) == 1:
        return source_numbers[keys[0]]
    return np.fromiter((source_numbers[key] for key in keys), dtype=np.intp, count=len(keys))


def _question_columns(
    table: Columns, sources: Sequence[Source], which: int | IndexArray
) -> Columns:
    """Columns of the workload and the prices of each row's source."""
    number = len(table["num_gpus"])
    each = [source.question_columns for source in sources]
    if isinstance(which, int):
        return {
            name: np.broadcast_to(np.array(value), number) for name, value in each[which].items()
        }
    return {name: np.array([columns[name] for columns in each])[which] for name in each[0]}


def _with_intervals(table: Columns, sources: Sequence[Source], which: int | IndexArray) -> Columns:
    """The table with columns for the ends of 90 % intervals and the number of published runs."""
    counts, of_count = rank_values(np.asarray(table["num_gpus"]))
    groups, of_group = rank_values(_evidence_groups(table, sources, which))
    keys = (which * len(counts) + of_count) * len(groups) + of_group
    pairs, of_row = rank_values(keys)
    confidences = [_confidence_of_key(int(pair), sources, counts, groups) for pair in pairs]
    limits = [each.max_utilization if each else math.inf for each in confidences]
    max_utilization = np.array(limits)[of_row]
    columns: dict[str, Column] = dict(table)
    if any(confidences):
        runs = [confidence.runs if confidence else None for confidence in confidences]
        columns[RUNS] = [runs[number] for number in of_row.tolist()]
    for quantity, (same, inverse) in COLUMNS_BY_ERROR.items():
        factors = [
            confidence.factors.get(quantity, _UNKNOWN) if confidence else _UNKNOWN
            for confidence in confidences
        ]
        if all(ends is _UNKNOWN for ends in factors):
            continue
        low, high = np.array(factors)[of_row].T
        low = _cap_at_peak(table, quantity, low, max_utilization)
        for column in (name for name in (*same, *inverse) if name in table):
            values = _floats(table, column)
            is_same = column in same
            min_factor, max_factor = _cap_at_load(table, column, low, high)
            ends = (
                (values * min_factor, values * max_factor)
                if is_same
                else _inverse_ends(values, min_factor, max_factor)
            )
            if column in _MONEY:
                ends = _with_prices(values, ends, [confidences[number] for number in of_row])
            columns.update(zip(ends_of(column), map(np.asarray, ends), strict=True))
    return columns


def _evidence_groups(
    table: Columns, sources: Sequence[Source], which: int | IndexArray
) -> IndexArray:
    """The group of evidence of each row, as its source tells it."""
    if isinstance(which, int):
        return sources[which].evidence_groups_of(table)
    groups = np.zeros(len(table["num_gpus"]), dtype=np.intp)
    for number in sorted_unique(which).tolist():
        rows = which == number
        groups[rows] = sources[number].evidence_groups_of(table)[rows]
    return groups


def _confidence_of_key(
    key: int, sources: Sequence[Source], counts: FloatArray, groups: IndexArray
) -> Confidence | None:
    """The intervals for one combination of source, number of GPUs and group of evidence."""
    rest, group = divmod(key, len(groups))
    source, count = divmod(rest, len(counts))
    return sources[source].confidence(float(counts[count]), int(groups[group]))


def _with_prices(
    values: FloatArray, ends: tuple[Numeric, Numeric], confidences: Sequence[Confidence | None]
) -> tuple[Numeric, Numeric]:
    """The interval ends of costs, widened by the range of the price."""
    is_fixed = np.array(
        [confidence is not None and confidence.cost_is_fixed for confidence in confidences]
    )
    prices = np.array([confidence.price if confidence else FIXED for confidence in confidences]).T
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = [np.where(is_fixed, 1.0, end / values) for end in ends]
        low, high = ranges_of_products((factors[0], factors[1]), (prices[0], prices[1]))
    return values * low, values * high


def fit_probability(row: Row) -> float:
    """Fit probability of a row: the probability that its memory is enough; NaN: unknown."""
    has_probability = row.get("fit_probability") is not None
    return float(number_of_row(row, "fit_probability")) if has_probability else math.nan
