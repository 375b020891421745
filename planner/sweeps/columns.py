"""The columns of scenarios, and the measures that compare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.base.csv_cells import Row, number_or_nan
from planner.base.units import DAY, GIB, HOUR
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.result_columns import distinguishing_interval, ends_of
from planner.question.renamed import current_name
from planner.question.terms import glossary, is_better_high, term_of_column, terms_about
from planner.show.presenters.format_results import ends_in
from planner.specs.catalogue import Catalogue

COST, TIME, VALUE = "cost", "time", "value"
"""Measures to choose scenarios by: ``value`` is cost times time; less is better for all three."""

PLACES = terms_about("run_conditions")
"""Columns of the hardware and the contract of scenarios."""


def _columns_of_objective(name: str) -> tuple[str, ...]:
    """Return the result columns of an objective, or of its value per million tokens."""
    result = glossary()[name].result
    if result:
        return tuple(dict.fromkeys((result, result.removeprefix("output_"))))
    return tuple(glossary()[term_name].column for term_name in (name, f"{name}_per_million_tokens"))


_CALENDAR, _TRAINING, _LATENCY = "calendar_time_days", "time_to_train_days", "request_latency_s"
# Columns by measure, for training and for token generation. The first with a value is used.
MEASURES: Mapping[str, tuple[str, ...]] = {
    COST: _columns_of_objective(COST),
    TIME: (_CALENDAR, _TRAINING, _LATENCY),
    **{name: _columns_of_objective(name) for name in terms_about("sweep_measures")},
}
# A latency is the first part plus a multiple of the second. Their errors are correlated.
_LATENCY_PARTS = (
    ("time_to_first_token_s", "time_per_output_token_s"),
    ("prefill_latency_s", "decode_latency_s"),
)
_SI_UNITS: Mapping[str, float] = {"_days": DAY, "_hours": HOUR, "_gib": GIB, "_kw": 1e3}
"""SI value of the unit, by suffix of a column's name."""


def column_of_measure(measure: str, row: Row) -> str:
    """Return the column of a measure that has a value in the row; empty: none has."""
    names = (name for name in MEASURES[measure] if row.get(name) is not None)
    return next(names, "")


def measured(measure: str, row: Row) -> float:
    """Return a measure or numeric column of a row, in the unit of its column; NaN: unknown."""
    if measure == VALUE:
        return measured(COST, row) * measured(TIME, row)
    return number_or_nan(
        row.get(column_of_measure(measure, row) if measure in MEASURES else measure)
    )


def measure_values(measure: str, row: Row) -> float:
    """Return a measure of a row in the unit of the measure's first column; times in days."""
    if measure == VALUE:
        return measure_values(COST, row) * measure_values(TIME, row)
    column = column_of_measure(measure, row) if measure in MEASURES else ""
    if not column:
        return measured(measure, row)
    return measured(measure, row) * _si_unit(column) / _si_unit(MEASURES[measure][0])


def measured_ends(measure: str, row: Row) -> tuple[float, float] | None:
    """The 90 % interval of a measure or column, in its unit; None if unknown.

    Intervals of costs hold at the price of the row, so that rows at one price can be compared.
    """
    column = column_of_measure(measure, row) if measure in MEASURES else measure
    if column in MEASURES[COST]:
        return distinguishing_interval(column, row)
    ends = ends_in(column, row)
    return _latency_ends(row) if ends is None and column == _LATENCY else ends


def _latency_ends(row: Row) -> tuple[float, float] | None:
    """Return the 90 % interval of the request latency from its parts [s]; None: unknown."""
    for first, second in _LATENCY_PARTS:
        names = (_LATENCY, first, second, *ends_of(first), *ends_of(second))
        if all(row.get(name) is not None for name in names):
            latency, start, per_token, *ends = (number_or_nan(row[name]) for name in names)
            rest = (latency - start) / per_token if per_token else 0.0
            return ends[0] + rest * ends[2], ends[1] + rest * ends[3]
    return None


def check_column(name: str, columns: Sequence[str], option: str) -> str:
    """Return the current name of an existing column.

    Raises SearchSpaceError if there is no such column; the message names similar ones.
    """
    name = current_name("column", name, columns)
    if name in columns:
        return name
    hint = column_hint(name, columns)
    raise SearchSpaceError(f"{option}: there is no column {name!r}.{hint}")


def check_columns(names: str, columns: Sequence[str], option: str) -> list[str]:
    """The names of columns in a text with commas; raises SearchSpaceError for unknown ones."""
    return [
        check_column(name.strip(), columns, option) for name in names.split(",") if name.strip()
    ]


def column_hint(name: str, columns: Sequence[str]) -> str:
    """Return a hint for an unknown column: columns of the measure, workloads, similar names."""
    of_measure = [column for column in MEASURES.get(name, ()) if column in columns]
    if of_measure:
        return f" Did you mean {' or '.join(of_measure)}?"
    if workloads := workloads_with_column(name):
        return f" It is for workload {' or '.join(workloads)}."
    return did_you_mean(name, columns)


def check_measure(name: str, columns: Sequence[str]) -> str:
    """The name of a measure or a column for ``--value``."""
    measures = (*MEASURES, VALUE)
    return name if name in measures else check_column(name, [*columns, *measures], "--value")


def only_column(measure: str, columns: Sequence[str]) -> str:
    """Return the only column of a measure among ``columns``; the measure if several exist.

    >>> only_column("cost", ["gpu", "cost_usd"]), only_column("gpu", ["gpu"])
    ('cost_usd', 'gpu')
    """
    names = [name for name in MEASURES.get(measure, ()) if name in columns]
    if _CALENDAR in names:
        names = [name for name in names if name != _TRAINING]
    return names[0] if len(names) == 1 else measure


def better(column: str) -> int:
    """Return 1 if a lower value of a column or measure is better, -1 if a higher one is.

    >>> better("time"), better("throughput"), better("tokens_per_s")
    (1, -1, -1)
    """
    term = term_of_column(column)
    if term is not None and term.better:
        return term.sign
    return -1 if is_better_high(column) else 1


def _si_unit(column: str) -> float:
    return next((unit for end, unit in _SI_UNITS.items() if column.endswith(end)), 1.0)


def workloads_with_column(column: str) -> tuple[str, ...]:
    """Return the workloads that have a column or measure; empty: all may have it."""
    workload_lists = [
        term.of for name in MEASURES.get(column, (column,)) if (term := term_of_column(name))
    ]
    if all(workload_lists):
        return tuple(
            dict.fromkeys(workload for workloads in workload_lists for workload in workloads)
        )
    return ()


def spec_name(catalogue: Catalogue, question: str, text: str) -> str | None:
    """Return the full name of a spec from its name or alias; None: no question about specs.

    Raises PlannerError if there is no such spec, or it has errors.

    >>> spec_name(Catalogue(), "gpu", "H100"), spec_name(Catalogue(), "num_gpus", "64")
    ('h100-sxm-80gb', None)
    """
    if question == "model":
        return catalogue.load_model(text).name
    if question == "gpu":
        return catalogue.load_gpu(text).spec.name
    if question in terms_about("software"):
        return str(catalogue.load_profile(question, text).spec.name)
    return None
