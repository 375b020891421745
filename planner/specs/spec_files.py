"""Spec files and CSV tables; reading reports all errors of a file at once.

Parameters
----------
path : file to read
kind : class of the spec
cell : text of the cell
limit : greatest size of the file [bytes]
table : table of a spec file
column : name of the column, for error messages
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from planner.base import read_files
from planner.base.read_files import SMALL, TABLE, UncheckedTable, parse_csv, repeated_names
from planner.base.records import record
from planner.base.units import to_si
from planner.errors import SpecError, did_you_mean
from planner.question.renamed import current_keys, current_name
from planner.specs.file_cache import cache_by_files, stamp
from planner.specs.validated import (
    UNKNOWN,
    Interval,
    PreValidator,
    ValidationErrors,
    build_validated,
    field_types,
)


@dataclass(slots=True)
class FileContext:
    """Context that the validators of one file share.

    Parameters
    ----------
    sources : text of each source by its key in the table ``[sources]``
    """

    sources: dict[str, str] = field(default_factory=dict)


def _read(dimension: str) -> Callable[[object, object], object]:
    """Return a check that reads { value, unit, source } and converts the value to SI."""

    def read(value: object, context: object) -> object:
        """Return a quantity in SI; raise ValueError for a missing key or an unknown source."""
        if not isinstance(context, FileContext):
            return value
        if not isinstance(value, dict):
            raise ValueError(
                f'must be written {{ value = {value!r}, unit = "...", source = "..." }}'
            )
        missing = {"value", "unit", "source"} - value.keys()
        extra = value.keys() - {"value", "unit", "source"}
        if missing or extra:
            raise ValueError(
                "needs exactly the keys value, unit, source"
                + (f"; missing: {', '.join(sorted(missing))}" if missing else "")
                + (f"; unknown: {', '.join(sorted(extra))}" if extra else "")
            )
        number, unit, source = value["value"], value["unit"], value["source"]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(f"value {number!r} is not a number")
        if not isinstance(unit, str) or not isinstance(source, str):
            raise ValueError("unit and source must be text")
        if source != "assumed" and source not in context.sources:
            raise ValueError(f"source {source!r} is not in the [sources] table")
        return to_si(number, unit, dimension)

    return read


Bytes = Annotated[float, PreValidator(_read("byte")), Interval(gt=0, lt=1e18)]
BytesOrZero = Annotated[float, PreValidator(_read("byte")), Interval(ge=0, lt=1e18)]
BytesPerSecond = Annotated[float, PreValidator(_read("byte/s")), Interval(gt=0, lt=1e18)]
BytesPerSecondOrZero = Annotated[float, PreValidator(_read("byte/s")), Interval(ge=0, lt=1e18)]
FlopPerSecond = Annotated[float, PreValidator(_read("flop/s")), Interval(gt=0, lt=1e20)]
Seconds = Annotated[float, PreValidator(_read("second")), Interval(ge=0, lt=1e6)]
GpuSeconds = Annotated[float, PreValidator(_read("second")), Interval(gt=0, lt=1e18)]
Watts = Annotated[float, PreValidator(_read("watt")), Interval(gt=0, lt=1e6)]
Fraction = Annotated[float, PreValidator(_read("1")), Interval(gt=0, le=2)]
FractionOrZero = Annotated[float, PreValidator(_read("1")), Interval(ge=0, le=2)]
Share = Annotated[float, PreValidator(_read("1")), Interval(ge=0, le=1)]
Numbers = Annotated[float, PreValidator(_read("1")), Interval(ge=0, lt=1e15)]
Ratio = Annotated[float, PreValidator(_read("1")), Interval(ge=0, lt=1e9)]


Spec = TypeVar("Spec")


def read_bytes(path: Path, limit: int = SMALL) -> bytes:
    """Return the content of a file of at most ``limit`` bytes.

    Raises SpecError if the file cannot be read, is larger, or is no regular file: a device or a
    pipe may never end.
    """
    stamp(path)
    return read_files.read_bytes(path, limit)


def read_text(path: Path, limit: int = SMALL) -> str:
    """Return the text of a UTF-8 file of at most ``limit`` bytes, with newline line ends.

    Raises SpecError if the file cannot be read, is larger, is no regular file, or is not UTF-8.
    """
    text = read_files.decode_text(read_bytes(path, limit), path)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_toml(path: Path) -> dict[str, object]:
    """Return the tables of a TOML file; they are cached and must not be changed.

    Raises SpecError if the file cannot be read or is not TOML; the message names file and line.
    """
    return dict(_parsed(path))


@cache_by_files
def _parsed(path: Path) -> dict[str, object]:
    return current_keys(read_files.parse_toml(read_text(path), str(path)), str(path))


def read_spec(kind: type[Spec], path: Path) -> Spec:
    """Read a spec file as a validated, frozen object.

    Raises SpecError with one line per error: file, key, problem and a close match.
    """
    return check_spec(kind, read_toml(path), where=str(path))


# Keys of files that are resolved before the spec is checked.
_FILE_KEYS = ("default_efficiency", "extends", "sources")


def check_spec(kind: type[Spec], table: UncheckedTable, where: str) -> Spec:
    """Validate ``table`` as a ``kind``; ``where`` names the table in error messages.

    Raises SpecError with one line per error.

    Parameters
    ----------
    where : file or table that error messages name
    """
    fields = dict(table)
    sources = fields.pop("sources", {})
    context = FileContext(sources if isinstance(sources, dict) else {})
    errors = [] if isinstance(sources, dict) else ["sources must be a table of name = text"]
    errors += [
        f"sources.{name} must name the origin of the figures"
        for name, text in context.sources.items()
        if not isinstance(text, str) or not text.strip()
    ]
    try:
        spec = build_validated(kind, fields, context)
    except ValidationErrors as error:
        for key_path, text in error.errors:
            hint = (
                did_you_mean(key_path[-1], [*field_names(kind), *_FILE_KEYS])
                if text == UNKNOWN
                else ""
            )
            errors.append(f"{'.'.join(key_path) or 'the file'} {text}.{hint}")
    if errors:
        raise SpecError("\n".join(f"{where}: {problem}" for problem in errors))
    return spec


def provenance(table: UncheckedTable) -> dict[str, str]:
    """Return the source of every quantity in a spec table by dotted key."""
    return {key: str(quantity["source"]) for key, quantity in _quantities(table, "")}


def digest(*paths: Path) -> str:
    """Return twelve hexadecimal digits that change when one of the files changes.

    Parameters
    ----------
    paths : files
    """
    return _short(b"".join(read_bytes(path, TABLE) for path in paths))


def text_digest(text: str) -> str:
    """Return twelve hexadecimal digits that change when the text changes.

    Parameters
    ----------
    text : text
    """
    return _short(text.encode())


def _short(content: bytes) -> str:
    import hashlib  # OpenSSL, which answers from the cache do not need

    return hashlib.sha256(content).hexdigest()[:12]


def _quantities(table: UncheckedTable, prefix: str) -> Iterator[tuple[str, UncheckedTable]]:
    """Yield the dotted name and the table of each sourced quantity, subtables included."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            if "value" in value and "source" in value:
                yield prefix + key, value
            else:
                yield from _quantities(value, f"{prefix}{key}.")


def field_names(kind: object) -> set[str]:
    """Return the field names of a spec and of its inner specs."""
    names: set[str] = set()
    for name, hint in field_types(kind).items():
        names.add(name)
        for part in (hint, *getattr(hint, "__args__", ())):
            if part is not kind:
                names |= field_names(part)
    return names


Row = Mapping[str, Any]
T = TypeVar("T")

UNDATED = "undated"
_LARGEST = 1e15
_MONTHS = 12
_DATE = re.compile(r"(\d{4})(?:-(0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?")


def text(cell: str, _: str) -> str:
    """Return the cell unchanged, as a column reader."""
    return cell


class Column(NamedTuple):
    """A column of a CSV file.

    Parameters
    ----------
    name : name in the first line of the file
    read : function from cell and column name to the value
    needed : whether the file must have the column
    """

    name: str
    read: Callable[[str, str], object] = text
    needed: bool = False


def read_records(
    path: Path, columns: Sequence[Column], make: Callable[[Row], T], once: Sequence[str] = ()
) -> list[T]:
    """Return a record per row of a CSV file, in order; missing columns count as empty.

    The combination of the columns ``once`` is unique.

    Raises SpecError if the file cannot be read, is no CSV, has unknown columns or lacks required
    ones, or if a row has too many or invalid cells; one line per error.

    Parameters
    ----------
    columns : columns that the file may have
    make : function from the values of a row by column to the record
    once : columns whose combination of values may occur only once
    """
    records: list[T] = []
    errors: list[str] = []
    first: dict[str, int] = {}
    # Most cells of a column are in many rows.
    reads = [(name, cache(read)) for name, read, _ in columns]
    for line, cells in _lines(path, columns):
        row: dict[str, object] = {}
        wrong: list[str] = []
        for name, read in reads:
            try:
                row[name] = read(cells.get(name, ""), name)
            except ValueError as error:
                wrong.append(str(error))
        if not wrong:
            try:
                records.append(make(row))
                key_cells = [cells.get(name, "") for name in once]
                key = ", ".join(key_cells).lower()
                if key_cells and first.setdefault(key, line) != line:
                    words = ", ".join(cell for cell in key_cells if cell)
                    raise ValueError(f"{words} is also on line {first[key]}")
            except ValueError as error:
                wrong.append(str(error))
        errors += [f"{path}:{line}: {problem}." for problem in wrong]
    if errors:
        raise SpecError("\n".join(errors))
    return records


@record(kw_only=True)
class SourcedQuantity:
    """A published quantity, of owning a GPU or of a region.

    Parameters
    ----------
    value : value in SI units
    low : least published value
    high : greatest published value
    source : publication
    date : day of the publication, or year of the quantity
    gpus : GPUs that a price is for, such as a rack or node
    price_basis : kind of price: ``trade``, ``list``, ``launch``, ``street``, ``used`` or
        ``estimate``; empty: not specified
    is_old : more than a year older than the newest, or without a date
    """

    value: float
    low: float
    high: float
    source: str
    date: str
    gpus: int = 1
    price_basis: str = ""
    is_old: bool = False


def read_quantity(row: Row, dimension: str, **fields: Any) -> SourcedQuantity:
    """Return the quantity of a row with value, unit and source, in SI units.

    Raises ValueError if the unit is of another dimension, or the value outside of its range.

    Parameters
    ----------
    row : cells by column; ``low`` and ``high`` are the value if missing
    dimension : SI unit of the quantity
    fields : further fields of the quantity
    """
    value, unit = row["value"], row["unit"]
    low, high = (value if row.get(end) is None else row[end] for end in ("low", "high"))
    if not low <= value <= high:
        raise ValueError(f"value {value:g} is not between low {low:g} and high {high:g}")
    low, value, high = (to_si(number, unit, dimension) for number in (low, value, high))
    fields = {"source": row["source"], "date": row.get("date", ""), **fields}
    return SourcedQuantity(value=value, low=low, high=high, **fields)


def _lines(path: Path, columns: Sequence[Column]) -> list[tuple[int, Mapping[str, str]]]:
    """Return each row of a CSV file with its line number, without missing cells."""
    lines = [
        (number, [cell.strip() for cell in row])
        for number, row in parse_csv(StringIO(read_text(path, TABLE)), path)
    ]
    valid_names = [column.name for column in columns]
    head = (
        [current_name("column", name.lower(), valid_names) for name in lines[0][1]] if lines else []
    )
    errors = [
        f"1: column {name!r} is unknown.{did_you_mean(name, valid_names)} Known: "
        f"{', '.join(valid_names)}."
        for name in head
        if name not in valid_names
    ]
    missing = [name for name, _, needed in columns if needed and name not in head]
    errors += [f"1: there is no column {name}." for name in missing]
    errors += [f"1: column {name} is there twice." for name in repeated_names(head)]
    errors += [
        f"{line}: has {len(cells)} fields, not {len(head)}."
        for line, cells in lines[1:]
        if len(cells) > len(head)
    ]
    if errors:
        raise SpecError("\n".join(f"{path}:{error}" for error in errors))
    return [(line, dict(zip(head, cells, strict=False))) for line, cells in lines[1:] if any(cells)]


def number(text: str, column: str) -> float:
    """Return a finite number that is not negative; raise ValueError otherwise.

    Raises ValueError if the text is no such number.

    Parameters
    ----------
    text : text of the cell
    """
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{column} {text!r} is not a number") from None
    if not 0 <= value <= _LARGEST:
        raise ValueError(f"{column} {text} is negative, or not finite")
    return value


def nonempty_text(cell: str, column: str) -> str:
    """Return the text of a cell; raise ValueError if empty.

    Raises ValueError if the cell is empty.
    """
    if not cell:
        raise ValueError(f"{column} is empty")
    return cell


def optional(read: Callable[[str, str], T]) -> Callable[[str, str], T | None]:
    """Return a cell reader that gives None for an empty cell.

    Parameters
    ----------
    read : function from a cell that is not empty and the column name to the value
    """
    return lambda cell, column: read(cell, column) if cell else None


def one_of(words: Collection[str]) -> Callable[[str, str], str]:
    """Return a cell reader that accepts only ``words``.

    Parameters
    ----------
    words : valid texts
    """

    def read(cell: str, column: str) -> str:
        if cell not in words:
            hint = did_you_mean(cell, words)
            raise ValueError(f"{column} {cell!r} is not one of {', '.join(words)}{hint}")
        return cell

    return read


def parse_date(cell: str, _: str) -> str:
    """Return the cell if it is a date or empty; raise ValueError otherwise."""
    month(cell)
    return cell


def month(date: str) -> int | None:
    """Return the number of a date's month, January if only the year is known; None: no date.

    Raises ValueError if the text is no date.

    Parameters
    ----------
    date : ``YYYY``, ``YYYY-MM``, ``YYYY-MM-DD``, or empty

    >>> month("2026-01-31") - month("2025")
    12
    """
    if date in ("", UNDATED):
        return None
    match = _DATE.fullmatch(date)
    if match is None:
        raise ValueError(f"date {date!r} is not a year, a month or a day, as in 2026-10-24")
    return int(match[1]) * _MONTHS + int(match[2] or 1) - 1


def are_old(dates: Sequence[str]) -> list[bool]:
    """Return for each date whether it is old: a year behind the newest, or missing.

    Today's date does not matter, so that answers do not change with it. A list without dates
    has no old offers.

    Parameters
    ----------
    dates : date of each offer, as `month` reads it
    """
    number_of = {date: month(date) for date in set(dates)}
    newest = max((number for number in number_of.values() if number is not None), default=None)
    if newest is None:
        return [False] * len(dates)
    old = {date: number is None or number < newest - _MONTHS for date, number in number_of.items()}
    return [old[date] for date in dates]
