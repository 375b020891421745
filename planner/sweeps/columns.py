"""The columns of scenarios by the names that people call them, and values as they write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.base.cells import Row, number
from planner.base.units import DAY, GIB, HOUR, parse_quantity
from planner.decide.explaining.against import is_better_high
from planner.errors import SearchSpaceError, did_you_mean
from planner.optimize.result_columns import ends_of
from planner.question.inputs import full_name
from planner.question.terms import ending_of, glossary, term_of_column, terms_about
from planner.show.views.told import ends_in
from planner.specs.catalogue import Catalogue

COST, TIME, VALUE = "cost", "time", "value"
"""What scenarios are chosen by: ``value`` is cost times time, both all the better the less."""

PLACES = terms_about("terms")
"""Where scenarios run, and on what terms: their columns."""


def _columns_of(name: str) -> tuple[str, ...]:
    """Those that tell an objective, or what it is for a million tokens."""
    told = glossary()[name].tells
    if told:
        return tuple(dict.fromkeys((told, told.removeprefix("output_"))))
    return tuple(glossary()[of].column for of in (name, f"{name}_per_million_tokens"))


_CALENDAR, _TRAINING, _LATENCY = "calendar_time_days", "time_to_train_days", "request_latency_s"
# By measure its columns, the first one that a row has a value in counts: those of training, and
# those of what generates tokens.
MEASURES: Mapping[str, tuple[str, ...]] = {
    COST: _columns_of(COST),
    TIME: (_CALENDAR, _TRAINING, _LATENCY),
    **{name: _columns_of(name) for name in terms_about("measure")},
}
# A latency is the first of these and what is in proportion to the second: they err together.
_PARTS_OF_LATENCY = (
    ("time_to_first_token_s", "time_per_output_token_s"),
    ("prefill_latency_s", "decode_latency_s"),
)
# By the end of a column's name what its values are, and how many SI units its unit is.
_UNITS: Mapping[str, tuple[str, float]] = {
    "_per_s": ("number", 1.0),
    "_usd": ("usd", 1.0),
    "_days": ("second", DAY),
    "_hours": ("second", HOUR),
    "_gib": ("byte", GIB),
    "_kw": ("watt", 1e3),
    "_s": ("second", 1.0),
}
_DEFAULT_UNITS = {"usd": "USD"}


def column_of_measure(measure: str, row: Row) -> str:
    """The column that a measure is read from in a row; empty where it has none."""
    known = (name for name in MEASURES[measure] if row.get(name) is not None)
    return next(known, "")


def measured(measure: str, row: Row) -> float:
    """A measure of a row in its column's unit, or any column of numbers; NaN where unknown."""
    if measure == VALUE:
        return measured(COST, row) * measured(TIME, row)
    return number(row.get(column_of_measure(measure, row) if measure in MEASURES else measure))


def measured_alike(measure: str, row: Row) -> float:
    """The same in the unit of the measure's first column, whatever the work: times in days."""
    if measure == VALUE:
        return measured_alike(COST, row) * measured_alike(TIME, row)
    column = column_of_measure(measure, row) if measure in MEASURES else ""
    if not column:
        return measured(measure, row)
    return measured(measure, row) * _dimension(column)[1] / _dimension(measure)[1]


def measured_ends(measure: str, row: Row) -> tuple[float, float] | None:
    """The ends of the 90 % interval of a measure or column, in its unit; None: there are none."""
    column = column_of_measure(measure, row) if measure in MEASURES else measure
    ends = ends_in(column, row)
    return _latency_ends(row) if ends is None and column == _LATENCY else ends


def _latency_ends(row: Row) -> tuple[float, float] | None:
    """Those of a latency, whose parts have them."""
    for first, each in _PARTS_OF_LATENCY:
        names = (_LATENCY, first, each, *ends_of(first), *ends_of(each))
        if all(row.get(name) is not None for name in names):
            whole, start, one, *ends = (number(row[name]) for name in names)
            rest = (whole - start) / one if one else 0.0
            return ends[0] + rest * ends[2], ends[1] + rest * ends[3]
    return None


def find_column(word: str, columns: Sequence[str], said: str = "") -> str:
    """The column of a name, with its unit or without; a measure is itself.

    Raises SearchSpaceError if there is none; near names are told.

    >>> find_column("cost", ["gpu", "cost_usd"]), find_column("--gpus", ["num_gpus"])
    ('cost_usd', 'num_gpus')
    """
    name = word.strip().lower().lstrip("-").replace("-", "_")
    own = full_name(word.strip().lstrip("-"), glossary())
    for wanted in (name, own):
        if wanted in columns:
            return wanted
    of_measure = [column for column in MEASURES.get(name, ()) if column in columns]
    if _CALENDAR in of_measure:
        of_measure = [column for column in of_measure if column != _TRAINING]
    if name == VALUE or len(of_measure) > 1:
        return name
    if of_measure:
        return of_measure[0]
    for wanted in (name, own):
        found = [column for column in columns if _stem(column) == wanted]
        if found:
            return found[0]
    if name in MEASURES:
        return name
    names = {_stem(column): None for column in columns}
    hint = did_you_mean(name, [*columns, *(one for one in names if one not in columns)])
    hint = f" It is for workload {' or '.join(of)}." if (of := workloads_of(own)) else hint
    raise SearchSpaceError(f"{said + ': ' if said else ''}there is no column {name!r}.{hint}")


def find_columns(words: str, columns: Sequence[str], said: str = "") -> list[str]:
    """Several, with commas between them."""
    return [find_column(word, columns, said) for word in words.split(",") if word.strip()]


def read_value(column: str, text: str, said: str = "") -> float | str | bool | None:
    """What a column is compared with, in the column's own unit where it has one.

    Raises SearchSpaceError if a unit is wrong.

    >>> read_value("cost_usd", "2M"), read_value("time_to_train_days", "12h")
    (2000000.0, 0.5)
    """
    words = text.strip()
    if words.lower() in ("true", "yes", "false", "no"):
        return words.lower() in ("true", "yes")
    if words.lower() in ("", "none", "unknown"):
        return None
    dimension, scale = _dimension(column)
    try:
        return float(words)
    except ValueError:
        pass
    try:
        return parse_quantity(words, dimension, _DEFAULT_UNITS.get(dimension)) / scale
    except ValueError as error:
        if words[0].isdigit() and dimension != "number":
            raise SearchSpaceError(f"{said or column} {words}: {error}.") from error
        return words


def better(column: str) -> int:
    """1 where less of a column or measure is better, -1 where more is.

    >>> better("time"), better("throughput"), better("tokens_per_s")
    (1, -1, -1)
    """
    term = term_of_column(column)
    if term is not None and term.better:
        return term.sign
    return -1 if is_better_high(column) else 1


def _dimension(column: str) -> tuple[str, float]:
    name = MEASURES[column][0] if column in MEASURES else column
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), ("number", 1.0))


def _stem(column: str) -> str:
    """A column's name without its unit."""
    term = term_of_column(column)
    if term is not None and column.startswith(term.term):
        return term.term
    return column.removesuffix(ending_of(column))


def workloads_of(column: str) -> tuple[str, ...]:
    """The workloads that have a column or measure; none where all may have it."""
    of = [term.of for name in MEASURES.get(column, (column,)) if (term := term_of_column(name))]
    return tuple(dict.fromkeys(one for some in of for one in some)) if all(of) else ()


def name_of(catalogue: Catalogue, question: str, word: str) -> str | None:
    """The name of the spec that a word means; None where a question is not about specs.

    Raises PlannerError if there is no such spec, or it has faults.

    >>> name_of(Catalogue(), "gpu", "H100"), name_of(Catalogue(), "num_gpus", "64")
    ('h100-sxm-80gb', None)
    """
    if question == "model":
        return catalogue.load_model(word).name
    if question == "gpu":
        return catalogue.load_gpu(word).spec.name
    if question in terms_about("software"):
        return str(catalogue.load_profile(question, word).spec.name)
    return None
