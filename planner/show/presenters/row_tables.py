"""Tables and files of rows of results; tables have the columns that differ, in one unit."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path, PurePath
from types import NoneType
from typing import Any, TextIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from planner.base.arrays import FloatArray, rank_values
from planner.base.atomic_write import is_device, manifest_path, write_atomically
from planner.base.csv_cells import Row, Value
from planner.base.formatting import (
    format_count,
    format_parameter,
    format_probability,
    format_significant,
    printable,
)
from planner.base.units import to_si
from planner.confidence.intervals import probability_below
from planner.optimize.goals import Constraint
from planner.optimize.problem import joint_probability, with_rate_limit
from planner.optimize.result_columns import ends_of, full_columns
from planner.optimize.source import Columns
from planner.question.names import LIMITS_PROBABILITY
from planner.question.parse_values import limit_column
from planner.question.terms import glossary, parse_percentile, term_of_column, terms_about, terms_of
from planner.show.output_blocks import Cell, Column, Table, fit_table
from planner.show.presenters.format_results import (
    SHORT_WORDS,
    description_of,
    label,
    layout_of,
    number_of,
)
from planner.workloads.make_plan import Plan
from planner.workloads.workload import Workload

Rows = Sequence[Row]

Manifest: TypeAlias = Mapping[str, object]
"""What made a result: version, command, question, defaults and digests of specs."""

MOST_ROWS = 1000
"""Maximum rows of a table on a page: few browsers can sort more."""

PLAN = "plan"
"""The column with a short description of the layout."""

PLACEMENT_COLUMNS = tuple(dict.fromkeys(["mode", *terms_about("system"), "num_gpus"]))
"""Columns of the hardware and software of a row."""

AXES = {"gpu": "GPU", "num_gpus": "number of GPUs"}
"""Labels of columns that differ from their names."""

_MEMORY, _FITS = "peak_memory_gib", "fit_probability"
_UTILIZATION = "model_flops_utilization"
_MAX_CHARACTERS = 60
# Columns that only differ if others differ.
_REDUNDANT = ("gradient_accumulation_steps", "pipeline_schedule")
# A narrow terminal omits columns of high rank first.
_NO_RANK, _OF_OBJECTIVES = "30", 3


def shown_columns(
    workload: Workload,
    rows: Rows,
    goals: Iterable[str] = (),
    among: Iterable[str] = PLACEMENT_COLUMNS,
) -> list[str]:
    """Return the columns that differ between rows, and those of results and memory."""
    wording, places = workload.wording, [*among]
    table = {
        name: [row.get(name) for row in rows]
        for name in dict.fromkeys(n for row in rows for n in row)
    }
    hidden = {*wording.degrees, "layout"} - {*places}
    differing = [
        name
        for name in settings_of(workload, places, table)
        if name not in hidden and len({*table[name]}) > 1
    ]
    settings = [name for name in differing if name not in places]
    reached = [*goals, *wording.results(()), *wording.shown_columns, _MEMORY, _FITS]
    results = [name for name in dict.fromkeys(reached) if any(map(_has_value, table.get(name, ())))]
    return [*(name for name in differing if name in places), PLAN, *settings, *results]


def make_table(
    name: str,
    caption: str,
    workload: Workload,
    rows: Rows,
    columns: Iterable[str],
    marked: Sequence[str] = (),
    notes: Sequence[str] = (),
    first: Sequence[Column] = (),
    goals: Iterable[str] = (),
) -> Table:
    """Return a table of at most `MOST_ROWS` rows; a note has the number of all rows.

    ``first`` are further columns before ``columns``; ``goals`` stay longest on a narrow terminal.
    """
    all_notes = [*notes]
    if len(rows) > MOST_ROWS:
        all_notes.append(
            f"The first {format_count(MOST_ROWS)} of {format_count(len(rows))} rows; the file of "
            "the result has all."
        )
        rows, marked = rows[:MOST_ROWS], marked[:MOST_ROWS]
    shown = [
        *(replace(column, cells=column.cells[: len(rows)]) for column in first),
        *(
            _plan_column(workload, rows) if column == PLAN else row_column(column, rows)
            for column in columns
        ),
    ]
    goal_names = [*goals]
    table = fit_table(shown, lambda name: _rank(name, goal_names), marked)
    heads = [
        replace(head, title=description_of(head.name) or head.name.replace("_", " "))
        for head in table.heads
    ]
    return replace(table, name=name, caption=caption, heads=heads, notes=all_notes)


def _plan_column(workload: Workload, rows: Rows) -> Column:
    texts = [layout_of(workload, row) if row.get("feasible", True) else "-" for row in rows]
    return Column(PLAN, texts, numeric=False)


def _has_value(value: object) -> bool:
    return value not in (None, "") and not (isinstance(value, float) and not math.isfinite(value))


def settings_of(
    workload: Workload, hardware_columns: Iterable[str], table: Mapping[str, Sequence[object]]
) -> list[str]:
    """Return the settings columns of a table: hardware first, then in the order of the terms.

    Columns that follow from others are omitted.
    """
    place_names = [*hardware_columns]
    hidden = {*_REDUNDANT, *workload.wording.in_layout} - {*place_names}
    parameters = terms_of(workload.name, "parameter", "derived")
    names = dict.fromkeys([*place_names, "num_gpus", "layout", *parameters])
    return [
        name
        for name in names
        if name in table
        and name not in hidden
        and ((other := name.removeprefix("expert_")) not in {*table} - {name}
             or list(table[name]) != list(table[other]))
    ]  # fmt: skip


def row_column(name: str, rows: Sequence[Row]) -> Column:
    """Return the column of a result or setting of rows, with numbers to sort by and intervals."""
    term = term_of_column(name)
    if term is not None and name == limit_column(term.term):
        header = f"{label(term.term)} limit"
    else:
        header = (term.short or term.column_header) if term else name.replace("_", " ")
    cells = [_row_cell(name, row) for row in rows]
    return Column(
        name, cells, header, numeric=all(c.number is not None or c.text == "-" for c in cells)
    )


def _row_cell(name: str, row: Row) -> Cell:
    """Return the cell of a row in a column; ``-`` if the row has no value."""
    value = row.get(name)
    if value in (None, ""):
        return Cell(text="-")
    text = _cell(name, value)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        return Cell(text=text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}...")
    scale = _scale_of(name)
    ends = [number_of(row, end) for end in ends_of(name)]
    if not all(map(math.isfinite, ends)):
        return Cell(text=text, number=scale * value)
    low, high = ends
    between = f"{_cell(name, low)} to {_cell(name, high)}"
    return Cell(text=text, more=between, number=scale * value, ends=(scale * low, scale * high))


def _scale_of(name: str) -> float:
    """The factor from a column's values to the numbers shown under its head."""
    term = term_of_column(name)
    if name == _UTILIZATION:
        return 100.0
    return 1e3 if term is not None and term.column_header.endswith(" ms") else 1.0


def _cell(name: str, value: object) -> str:
    """Return a value of the column ``name`` as text without unit; ``-`` if it is not finite."""
    if not isinstance(value, float):
        text = format_parameter(value)
        return SHORT_WORDS.get(text, text)
    if not math.isfinite(value):
        return "-"
    if name == _UTILIZATION:
        return f"{100 * value:.1f}%"
    if name == _FITS:
        return format_probability(value)
    if name == "cost_usd":
        return format_count(value)
    if name.endswith("_usd") and 0 < value < 0.01:
        return f"{value:.2g}"
    if name == "peak_memory_gib":
        return f"{value:.1f}"
    return format_significant(_scale_of(name) * value)


def _rank(name: str, goals: Iterable[str]) -> int:
    """Return the rank of a column; columns of high rank are omitted first if space is short."""
    if name in ("rank", PLAN, "gpu"):
        return 0
    term = term_of_column(name)
    rank = int((term.rank if term is not None else "") or _NO_RANK)
    return min(rank, _OF_OBJECTIVES) if name in goals else rank


# Limits whose column has another name.
_COLUMNS_OF = {"request_rate": ("capacity_requests_per_s", "requests_per_s")}
# A latency is the sum of these, each with its own errors; the second pair is of static batches.
_PARTS = {
    "request_latency": (
        ("time_to_first_token_s", "time_per_output_token_s"),
        ("prefill_latency_s", "decode_latency_s"),
    )
}
_UNITLESS = ("1", "1/s", "count")


def with_limits(table: Columns, limits: Sequence[Constraint]) -> Columns:
    """Return the result columns and the probability that each row keeps all ``limits``.

    The probability is that of `joint_probability`, of limits with published errors, [1]. Without
    such limits the table is unchanged.
    """
    probabilities = {
        limit.name: probability
        for limit in limits
        if (probability := _chances(table, limit)) is not None
    }
    if not probabilities:
        return dict(table)
    return {**table, LIMITS_PROBABILITY: joint_probability(probabilities)}


def _chances(table: Columns, limit: Constraint) -> FloatArray | None:
    """Return the probability that each row keeps a limit; None without published errors."""
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
    probabilities = np.array(
        [probability_below(bound, value, (low, high)) for value, low, high in rows]
    )
    return probabilities if limit.sign > 0 else 1 - probabilities


def _column(table: Iterable[str], name: str) -> str | None:
    """Return the column of a table that holds the term ``name``; None if there is none."""
    if name in _COLUMNS_OF:
        columns = [*table]
        return next((column for column in _COLUMNS_OF[name] if column in columns), None)
    terms = ((column, term_of_column(column)) for column in table)
    return next((column for column, term in terms if term and term.term == name), None)


def _ends(
    table: Columns, name: str, column: str, values: FloatArray
) -> tuple[FloatArray, FloatArray] | None:
    """Return the lower and upper ends of a column's 90 % intervals; None if unknown.

    A percentile has the relative interval of its mean.
    """
    mean = parse_percentile(name)
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


def _ends_of_mean(table: Columns, column: str) -> tuple[FloatArray, FloatArray] | None:
    """Return the ends of a column's intervals divided by its values; None if it has none."""
    names = ends_of(column)
    if column not in table or not all(name in table for name in names):
        return None
    value = np.asarray(table[column], dtype=np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        low, high = (np.asarray(table[name], dtype=np.float64) / value for name in names)
    return low, high


# Larger blocks have relatively fewer distinct values.
_ROWS = 2**14

# Columns by name, equally long.
Block = Mapping[str, Any]


def result_blocks(plan: Plan, table: Block) -> Iterator[Block]:
    """The columns of results and their intervals, in blocks of some thousand rows."""
    limits = with_rate_limit(plan.problem.constraints, plan.request.lasting_rate)
    yield from blocks(with_limits(full_columns(table, plan.problem.sources), limits))


def blocks(table: Block) -> Iterator[Block]:
    """A table in blocks of some thousand rows."""
    for start in range(0, len(table["num_gpus"]), _ROWS):
        yield {name: values[start : start + _ROWS] for name, values in table.items()}


class RowFiles:
    """The open CSV and JSON files of a search; a block of rows goes to both.

    Unknown values are empty in CSV and null in JSON; CSV cells are those of `csv_cell`.
    """

    def __init__(
        self, csv_file: TextIO | None, json_file: TextIO | None, manifest: TextIO | None
    ) -> None:
        """Write rows to CSV and JSON files; None omits a file."""
        self._manifest = manifest
        self._csv = csv_file
        self._json = json_file
        self._empty = True

    @property
    def has_object(self) -> bool:
        """Whether a JSON object is written, which has further values besides rows and manifest."""
        return self._json is not None

    def add(self, blocks: Iterable[Block]) -> None:
        """Write blocks of rows to the files."""
        if self._csv is None and self._json is None:
            return
        for block in blocks:
            self._write(block)

    def _write(self, block: Block) -> None:
        """Write a block of rows to the CSV and the JSON file, the first one with the head."""
        if self._csv is not None:
            if self._empty:
                self._csv.write(",".join(map(csv_cell, block)) + "\n")
            columns = [(values, "") for values in block.values()]
            self._csv.write("\n".join(join_columns(columns, csv_cell, ",")) + "\n")
        if self._json is not None:
            self._json.write('{"rows": [\n' if self._empty else ",\n")
            columns = [(values, f"{json.dumps(name)}: ") for name, values in block.items()]
            rows = join_columns(columns, json_cell, ", ")
            self._json.write("{" + "},\n{".join(rows) + "}")
        self._empty = False

    def finish(self, manifest: Manifest, **more: object) -> None:
        """Write the manifest; the JSON object, with or without rows, has ``more``."""
        if self._manifest is not None:
            self._manifest.write(json.dumps(manifest, indent=1, allow_nan=False) + "\n")
        rest = {"manifest": manifest, **more}
        if self._json is not None and self._empty:
            text = json.dumps(rest, indent=1, default=plain_value, allow_nan=False)
            self._json.write(text + "\n")
        elif self._json is not None:
            self._json.write("\n],\n" + json.dumps(rest, indent=1, allow_nan=False)[2:] + "\n")


@contextmanager
def row_files(csv_path: Path | None, json_path: Path | None) -> Iterator[RowFiles]:
    """Yield the writer of rows and a manifest; the files appear at the end, all or none.

    Raises OutputError if something cannot be written.
    """
    with ExitStack() as stack:

        def opened(path: Path | None) -> TextIO | None:
            return None if path is None else stack.enter_context(write_atomically(path))

        manifest_file = None if csv_path is None or is_device(csv_path) else manifest_path(csv_path)
        yield RowFiles(opened(csv_path), opened(json_path), opened(manifest_file))


# Characters that start a formula in a spreadsheet.
_FORMULA = ("=", "+", "-", "@")
# Sample size; deduplication is slower if more than half of the sample is distinct.
_SAMPLE = 256
_FEW = 500  # formatting them takes less than loading what is faster
# Python writes numbers between these without an exponent.
_LEAST_PLAIN, _LEAST_SCALED = 1e-4, 1e16
_QUOTED = frozenset(',"\n')

AnyArray = NDArray[Any]
CellFormat = Callable[[Any], str]


def plain_value(value: object) -> Value:
    """Return a value for a file as text, number or flag; None if it is unknown.

    Raises TypeError if it is another object, whose text cannot be read back.

    >>> plain_value(np.float64(0.5)), plain_value(math.nan), plain_value(Path("a"))
    (0.5, None, 'a')
    """
    if type(value) in (str, int, bool, NoneType):
        return value  # type: ignore[return-value]
    if isinstance(value, np.generic):
        return plain_value(value.item())
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, str | PurePath):
        return str(value)
    raise TypeError(f"{value!r} is not a text, number or flag")


def csv_cell(value: object) -> str:
    """Return a value as CSV text: numbers as Python writes them, unknown values empty.

    Control characters are removed from texts; a text with a leading ``=``, ``+``, ``-`` or ``@``
    gets an apostrophe, so that a spreadsheet does not compute it.

    >>> csv_cell(0.5), csv_cell("=1+1"), csv_cell("a,b"), csv_cell(None)
    ('0.5', "'=1+1", '"a,b"', '')
    """
    value = plain_value(value)
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = printable(value)
    if text.startswith(_FORMULA):
        text = "'" + text
    return '"' + text.replace('"', '""') + '"' if _QUOTED.intersection(text) else text


def plain_cell(text: str) -> str:
    """Return a text as CSV, escaped as in `csv_cell`; a number, also negative, stays as it is."""
    try:
        float(text)
    except ValueError:
        return csv_cell(text)
    return text


def json_cell(value: object) -> str:
    """A value in JSON; unknown values are null."""
    return json.dumps(plain_value(value))


def join_columns(columns: Sequence[tuple[Any, str]], cell: CellFormat, separator: str) -> list[str]:
    """Return one text per row: the cells of all columns, each after its prefix, separated.

    Adjacent constant columns are joined once.
    """
    pieces: list[list[str]] = []
    same: list[str] = []
    for values, prefix in columns:
        if _is_constant(values):
            same.append(
                prefix
                + cell(values[:1].tolist()[0] if isinstance(values, np.ndarray) else values[0])
            )
            continue
        pieces += _repeated(same, separator, len(values))
        same = []
        pieces.append(texts(values, cell, prefix))
    pieces += _repeated(same, separator, len(columns[0][0]))
    return [*map(separator.join, zip(*pieces, strict=True))]


def _repeated(texts: Sequence[str], separator: str, number: int) -> list[list[str]]:
    return [[separator.join(texts)] * number] if texts else []


def _is_constant(values: Any) -> bool:
    """Whether every row of a column has the same text; False for an empty column."""
    if isinstance(values, np.ndarray):
        bits = _bits(values)
        return len(bits) > 0 and bool((bits == bits[:1]).all())
    if not values or values.count(values[0]) < len(values):
        return False
    # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
    return isinstance(values[0], str | None) or (
        not isinstance(values[0], float) and len(set(map(type, values))) == 1
    )


def texts(values: Any, cell: CellFormat, prefix: str = "") -> list[str]:
    """Return the text of each cell in a column (array or list), each after ``prefix``."""
    if isinstance(values, np.ndarray):
        return _array_texts(values, cell, prefix)
    kinds = set(map(type, values))
    if kinds == {float}:
        return _array_texts(np.asarray(values), cell, prefix)
    if len(kinds - {type(None)}) > 1 or float in kinds:  # 1, 1.0 and True are equal
        return [prefix + cell(value) for value in values]
    text_by_value = {value: prefix + cell(value) for value in set(values)}
    if len(text_by_value) > 1:
        return [text_by_value[value] for value in values]
    return [*text_by_value.values()] * len(values)


def _array_texts(values: AnyArray, cell: CellFormat, prefix: str) -> list[str]:
    """Return the texts of an array's values; equal values are formatted once."""
    bits = _bits(values)
    if (bits == bits[:1]).all():
        return _format_values(values[:1], cell, prefix) * len(values)
    if len({*bits[:_SAMPLE].tolist()}) > _SAMPLE // 2:
        return _format_values(values, cell, prefix)
    distinct, inverse = rank_values(bits)
    of_bits = distinct.view(np.float64) if values.dtype.kind == "f" else distinct
    distinct_texts = np.array(_format_values(of_bits, cell, prefix), dtype=object)
    cells: list[str] = distinct_texts[inverse].tolist()
    return cells


def _bits(values: AnyArray) -> AnyArray:
    """Floats as bits: 0.0 and -0.0 are equal but have different texts."""
    return values.astype(np.float64).view(np.int64) if values.dtype.kind == "f" else values


def _format_values(values: AnyArray, cell: CellFormat, prefix: str) -> list[str]:
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        return [prefix + cell(value) for value in values.tolist()]
    texts = _numbers(values)
    return [prefix + text for text in texts] if prefix else texts


def _numbers(values: AnyArray) -> list[str]:
    """Return finite floats as texts as Python writes them, several times as fast."""
    numbers = values.tolist()
    if len(numbers) < _FEW:
        return [*map(repr, numbers)]
    import pydantic_core

    texts = pydantic_core.to_json(numbers).decode()[1:-1].split(",")
    sizes = np.abs(values)
    for index in np.flatnonzero(((sizes < _LEAST_PLAIN) & (sizes > 0)) | (sizes >= _LEAST_SCALED)):
        texts[index] = repr(numbers[index])  # with another exponent
    return texts
