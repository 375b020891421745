"""Read regular files of a bounded size as bytes, text, JSON, TOML or CSV.

All files that a user names are opened here. Devices, pipes and folders are refused, so that reading
ends and memory is bounded. Nesting depth is bounded too, and all numbers must be finite.
Every function raises an error of the class ``error`` that names the file and the problem.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import stat
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from gzip import GzipFile
from io import BufferedReader, TextIOWrapper
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar

from planner.errors import PlannerError, SpecError

Error: TypeAlias = type[PlannerError]

JsonObject: TypeAlias = dict[str, Any]
"""An object of JSON that planner writes, or wrote and has read back."""

UncheckedTable: TypeAlias = Mapping[str, object]
"""A table of TOML, or an object of JSON or YAML, whose values are not checked yet."""

MEBIBYTE = 2**20
SMALL = 4 * MEBIBYTE
"""What a spec, a plan or a manifest has at most."""
TABLE = 64 * MEBIBYTE
"""What a table of prices or kernels has at most."""
RESULT = 256 * MEBIBYTE
"""What the file of a result or a table of runs has at most: a hundred thousand rows and more."""
LONGEST_LINE = MEBIBYTE
MOST_COLUMNS = 1000
"""Of a table; each name that is not known is compared with those that are."""

Kind = TypeVar("Kind")
_DEEPEST = 100
_SHOWN = 60
_DEEP_KEY = re.compile(rf"""(?:\.[ \t]?["'\w-]{{1,80}}[ \t]?){{{_DEEPEST}}}""")
# Arrays hold 64-bit integers.
_LARGEST = 2**63 - 1
_PARSE_ERRORS = (ValueError, RecursionError)
_readable: ContextVar[tuple[str, ...] | None] = ContextVar("readable", default=None)


@contextmanager
def restrict_to_folders(folders: Iterable[Path]) -> Iterator[None]:
    """Within this context, read files only from these folders, also through links.

    Whether there is another file is not told.
    """
    token = _readable.set(tuple(os.path.realpath(folder) for folder in folders))
    try:
        yield
    finally:
        _readable.reset(token)


def is_restricted() -> bool:
    """Whether `restrict_to_folders` limits reading, because someone else provides the files."""
    return _readable.get() is not None


def open_regular_file(path: Path, error: Error = SpecError) -> BufferedReader:
    """Open a regular file for reading, without waiting for a pipe that has no writer."""
    if (folders := _readable.get()) is not None:
        real_path = os.path.realpath(path)
        if not any(_is_within(real_path, folder) for folder in folders):
            raise error(f"{path}: is outside the given files and folders.")
    try:
        file = open(path, "rb", opener=_open_nonblocking)  # noqa: SIM115
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return file
        file.close()
    except IsADirectoryError:
        pass
    except (OSError, ValueError) as failure:
        raise read_error(path, failure, error) from failure
    raise error(f"{path}: is not a regular file; save its content to one.")


def _is_within(path: str, folder: str) -> bool:
    """Whether a path is in a folder; paths on two drives of Windows have nothing in common."""
    try:
        return os.path.commonpath((path, folder)) == folder
    except ValueError:
        return False


def read_error(path: Path, failure: BaseException, error: Error = SpecError) -> PlannerError:
    """The error for a file that the system cannot read."""
    return error(f"{path}: cannot be read ({getattr(failure, 'strerror', None) or failure}).")


def read_bytes(path: Path, max_bytes: int = SMALL, error: Error = SpecError) -> bytes:
    """Return the content of a file of at most ``max_bytes`` bytes; else raise ``error``."""
    with open_regular_file(path, error) as file:
        try:
            content = file.read(max_bytes + 1)  # the size that files of /proc state is 0
        except OSError as failure:
            raise read_error(path, failure, error) from failure
    if len(content) > max_bytes:
        raise error(
            f"{path}: is larger than {max_bytes / MEBIBYTE:g} MiB, the most that is read of "
            "such a file."
        )
    return content


def read_text(path: Path, max_bytes: int = SMALL, error: Error = SpecError) -> str:
    """Text of a UTF-8 file, without a byte order mark."""
    return decode_text(read_bytes(path, max_bytes, error), path, error)


def decode_text(content: bytes, path: Path, error: Error = SpecError) -> str:
    """Decode the bytes of a UTF-8 file to text, without a byte order mark."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise error(
            f"{path}: is not UTF-8 text ({failure.reason} at byte {failure.start:,})."
        ) from failure


def read_json(path: Path, max_bytes: int = SMALL, error: Error = SpecError) -> object:
    """The value of a JSON file."""
    return parse_json(read_text(path, max_bytes, error), str(path), error)


_INFINITE = {"NaN": math.nan}  # other constants of Python's JSON: null


def parse_json(
    text: str, location: str, error: Error = SpecError, *, infinite: bool = False
) -> object:
    """Parse JSON text; raise ``error`` with the location if invalid.

    ``infinite``: Infinity, which Python's own writer makes, is read as null.
    """
    constant = _INFINITE.get if infinite else None
    try:
        value = json.loads(text, parse_constant=constant)
    except _PARSE_ERRORS as failure:
        raise error(f"{location}: is not valid JSON: {_reason(failure)}.") from failure
    return _check_value(value, location, error)


def read_toml(path: Path, error: Error = SpecError) -> dict[str, object]:
    """The tables of a TOML file."""
    return parse_toml(read_text(path, SMALL, error), str(path), error)


def parse_toml(text: str, location: str, error: Error = SpecError) -> dict[str, object]:
    """Parse TOML text to tables; raise ``error`` with the location if invalid."""
    import tomllib  # not needed if parsed in an earlier run

    if _DEEP_KEY.search(text):  # the parser takes quadratic time for deep keys
        raise error(f"{location}: is nested more than {_DEEPEST} deep.")
    try:
        table = tomllib.loads(text.replace("\r\n", "\n").replace("\r", "\n"))
    except _PARSE_ERRORS as failure:
        raise error(f"{location}: is not valid TOML: {_reason(failure)}.") from failure
    _check_value(table, location, error)
    return table


def read_csv(path: Path, error: Error = SpecError) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV file of any size with their last line number; memory stays constant."""
    with open_regular_file(path, error) as file:
        yield from parse_csv(read_lines(file, path, error), path, error)


def parse_csv(
    lines: Iterable[str], path: Path, error: Error = SpecError
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of CSV lines; raise ``error`` with file and line if invalid."""
    csv.field_size_limit(LONGEST_LINE)
    reader = csv.reader(lines, strict=True)
    try:
        for cells in reader:
            if len(cells) > MOST_COLUMNS:
                raise error(
                    f"{path}:{reader.line_num}: has {len(cells):,} cells; tables of up to "
                    f"{MOST_COLUMNS:,} columns are read."
                )
            yield reader.line_num, cells
    except csv.Error as failure:
        raise error(f"{path}:{reader.line_num}: is not valid CSV: {failure}.") from failure


def repeated_names(names: Iterable[str]) -> list[str]:
    """Return the names that occur several times, sorted.

    >>> repeated_names(["gpu", "price", "gpu"])
    ['gpu']
    """
    return sorted(name for name, number in Counter(names).items() if number > 1)


def packaged_rows(path: Path, delimiter: str = ",") -> list[dict[str, str]]:
    """The rows of a CSV table that is part of the package."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter=delimiter))


def read_lines(
    file: BinaryIO | GzipFile, path: Path, error: Error = SpecError, max_bytes: int = LONGEST_LINE
) -> Iterator[str]:
    """Lines of an open UTF-8 file with their line ends; lines over ``max_bytes`` bytes are
    refused.
    """
    try:
        with TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
            while line := text.readline(max_bytes + 1):
                if len(line) > max_bytes:
                    raise error(f"{path}: has a line of more than {max_bytes:,} characters.")
                yield line
    except UnicodeDecodeError as failure:
        raise error(f"{path}: is not UTF-8 text ({failure.reason}).") from failure
    except OSError as failure:
        raise read_error(path, failure, error) from failure


def require_table(value: object, location: str) -> dict[str, object]:
    """A TOML or JSON value that must be a table."""
    if not isinstance(value, dict):
        raise SpecError(f"{location}: must be a table.")
    return value


def require_entry(table: object, name: str, kind: type[Kind], error: Error = SpecError) -> Kind:
    """Return a required entry of a table; raise ``error`` if missing or of another type."""
    if not isinstance(table, dict) or name not in table:
        raise error(f"{name} is missing.")
    value: object = table[name]
    if not isinstance(value, kind):
        words = repr(value)
        cut = f"{words[:_SHOWN]}..." if len(words) > _SHOWN else words
        raise error(f"{name} is {cut}, which it cannot be.")
    return value


def _open_nonblocking(path: str, flags: int) -> int:
    """Open a pipe without waiting for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _reason(failure: BaseException) -> str:
    return "nested too deep" if isinstance(failure, RecursionError) else str(failure)


def _check_value(value: object, source: str, error: Error) -> object:
    """Return the value; raise ``error`` if nested too deeply or with invalid numbers or texts."""
    if problem := _value_problem(value):
        raise error(f"{source}: {problem}.")
    waiting: list[tuple[object, tuple[object, ...]]] = [(value, ())]
    while waiting:
        item, keys = waiting.pop()
        if len(keys) > _DEEPEST:
            raise error(f"{source}: is nested more than {_DEEPEST} deep.")
        table = item if isinstance(item, dict) else {}
        entries = item if isinstance(item, list) else [*table.values()]
        names: Sequence[object] = [*table] or range(len(entries))
        kinds = {*map(type, entries)}
        if not (_are_valid(entries, kinds) and "".join(table).isascii()):
            for name, entry in zip(names, entries, strict=True):
                if isinstance(name, str) and (problem := _value_problem(name)):
                    raise error(f"{source}: a key {problem}.")
                if problem := _value_problem(entry):
                    location = ".".join(str(key)[:60] for key in (*keys, name))
                    raise error(f"{source}: {location} {problem}.")
        if not kinds.isdisjoint(_NESTED):
            waiting += [
                (entry, (*keys, name))
                for name, entry in zip(names, entries, strict=True)
                if isinstance(entry, dict | list)
            ]
    return value


_NESTED = (dict, list)


def _are_valid(values: Sequence[Any], kinds: Collection[type]) -> bool:
    """Whether no value has a problem; by kind, which is several times as fast as one by one."""

    def of(kind: type) -> Sequence[Any]:
        if kind not in kinds:
            return ()
        return values if len(kinds) == 1 else [value for value in values if type(value) is kind]

    numbers, integers = of(float), of(int)
    return (
        (math.isfinite(sum(numbers)) or all(map(math.isfinite, numbers)))  # a sum may overflow
        and min(integers, default=0) >= -_LARGEST
        and max(integers, default=0) <= _LARGEST
        and "".join(of(str)).isascii()
    )


def _value_problem(value: object) -> str:
    """Return the problem of a number or a text; "" if valid."""
    if isinstance(value, int) and not -_LARGEST <= value <= _LARGEST:
        return f"is a whole number beyond {_LARGEST:,}"
    if isinstance(value, float) and not math.isfinite(value):
        return "is not a finite number"
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return "is not valid text: it holds half a character"
    return ""
