"""Traces of requests: arrival time, prompt length and answer length of each.

The names of columns or keys show the format: Azure's CSV, BurstGPT's, Mooncake's JSONL (which
AIPerf and Dynamo read too), Qwen-Bailian's, and other files with times, prompt lengths and answer
lengths under common names.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from gzip import GzipFile
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from planner.base import read_files
from planner.base.arrays import FloatArray, IndexArray
from planner.base.read_files import UncheckedTable
from planner.base.records import record
from planner.errors import SpecError, did_you_mean

_LENGTHS = ("input_tokens", "output_tokens")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
# Keys of Mooncake's format, which has times in ms. Bailian's has the key chat_id, too.
_IN_MS = ("input_length", "output_length")
_MOST_ROWS = 20_000_000
_LONGEST = 1e8
_LINES_AT_ONCE = 1024
_GZIP = b"\x1f\x8b"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ZONE = re.compile(r"(?:Z|([+-]\d\d):?(\d\d))$")
# From 1970 on; seconds would be those of the year 5138.
_SINCE_1970 = {"ns": 1e17, "us": 1e14, "ms": 1e11}


@cache
def _column_names() -> Mapping[str, tuple[str, ...]]:
    """Names of columns by quantity: planner's own name first."""
    rows = read_files.packaged_rows(Path(__file__).with_name("trace_columns.csv"))
    return {row["quantity"]: (*row["names"].split(),) for row in rows}


def _no_blocks() -> IndexArray:
    return np.zeros(0, dtype=np.int64)


@record(kw_only=True)
class Trace:
    """Requests in the order in which they came.

    ``times`` in seconds from the first, empty if the file has only lengths; ``input_tokens``
    and ``output_tokens`` of each. ``unanswered``: number of rows without an answer, left out here.
    ``blocks``: names of the blocks of all prompts, each prompt from its last block to its first;
    ``block_counts``: number of blocks of each prompt; empty if the file has none. A block has
    ``block_tokens``; its name identifies the prefix up to its end.
    """

    name: str
    times: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    unanswered: int = 0
    blocks: IndexArray = field(default_factory=_no_blocks)
    block_counts: IndexArray = field(default_factory=_no_blocks)

    @property
    def block_tokens(self) -> int:
        """Tokens of a block: the power of two nearest to the median of longer prompts."""
        long = self.block_counts >= max(float(np.median(self.block_counts)), 1.0)
        tokens_per_block = np.median(self.input_tokens[long] / self.block_counts[long])
        return 1 << max(int(np.rint(np.log2(max(tokens_per_block, 1.0)))), 0)

    @property
    def blocks_of_each(self) -> list[list[int]]:
        """Block names of each prompt, from its first block on."""
        ends = np.cumsum(self.block_counts)
        return [prompt_blocks[::-1].tolist() for prompt_blocks in np.split(self.blocks, ends[:-1])]

    @property
    def seconds(self) -> float:
        """Seconds from the first request to the last; 0 if the file has no times."""
        return float(self.times[-1]) if self.times.size else 0.0

    @property
    def request_rate(self) -> float | None:
        """Requests per second; None if the file has no times."""
        return float(f"{self.input_tokens.size / self.seconds:.4g}") if self.seconds else None

    @property
    def lengths(self) -> Mapping[str, float]:
        """Return mean lengths [tokens] and their coefficients of variation, by term."""
        lengths: dict[str, float] = {}
        for kind, tokens in (("input", self.input_tokens), ("output", self.output_tokens)):
            mean = float(tokens.mean())
            lengths[f"{kind}_tokens"] = max(round(mean), 1)
            lengths[f"{kind}_variation"] = round(float(tokens.std()) / mean, 3)
        return lengths

    def format_summary(self) -> str:
        """Return a line about the trace: number of requests and duration."""
        text = f"{self.input_tokens.size:,} requests"
        if self.seconds:
            text += f" in {self.seconds / 60:,.4g} min"
        if self.unanswered:
            text += f", {self.unanswered:,} more without an answer left out"
        return text


def read_trace(path: Path) -> Trace:
    """Read a trace of requests from CSV or JSONL, also compressed with gzip.

    Raises SpecError if the file cannot be read, lacks a column or has no requests, if a length or
    a time is invalid, or if a row is earlier than the one above it.
    """
    names, rows = _rows(path)
    indices = {role: _find_column(names, spellings) for role, spellings in _column_names().items()}
    for role in _LENGTHS:
        if indices[role] is None:
            hint = did_you_mean(role, names)
            raise SpecError(
                f"{path}: has no column of {role}: call one {_column_names()[role][0]}, as others "
                f"do {', '.join(_column_names()[role][1:4])}; it has {', '.join(names[:12])}.{hint}"
            )
    chosen = {role: index for role, index in indices.items() if index is not None}
    columns: dict[str, list[object]] = {role: [] for role in chosen}
    lines: list[int] = []
    appenders = [(columns[role].append, index) for role, index in chosen.items()]
    for line, cells in rows:
        if len(lines) >= _MOST_ROWS:
            raise SpecError(f"{path}: has more than {_MOST_ROWS:,} requests; give a part of it.")
        for append, index in appenders:
            if index >= len(cells):
                raise SpecError(f"{path}:{line}: has {len(cells)} values, not {len(names)}.")
            append(cells[index])
        lines.append(line)
    if not lines:
        raise SpecError(f"{path}: has no requests.")
    prompts, answers = (_lengths(columns[role], path, lines, role) for role in _LENGTHS)
    times = np.zeros(0)
    if "time" in columns:
        time_cells = columns["time"]
        times = _times(
            time_cells, path, lines, _unit(names, chosen["time"], _number(time_cells[0]))
        )
    blocks, counts = _blocks(columns.get("blocks", ()), path, lines)
    answered = answers >= 1
    if not answered.any():
        raise SpecError(f"{path}: has no request with an answer.")
    times = times[answered] if times.size else times
    if counts.size and not answered.all():
        blocks, counts = blocks[np.repeat(answered, counts)], counts[answered]
    return Trace(
        name=path.name,
        times=times - times[0] if times.size else times,
        input_tokens=np.maximum(prompts[answered], 1.0),
        output_tokens=answers[answered],
        unanswered=int((~answered).sum()),
        blocks=blocks,
        block_counts=counts,
    )


def _rows(path: Path) -> tuple[list[str], Iterator[tuple[int, Sequence[object]]]]:
    """Return the column names of a trace, and line number and values of each row."""
    text = _lines(path)
    numbered = ((number, line) for number, line in enumerate(text, 1) if line.strip())
    number, first = next(numbered, (0, ""))
    if not number:
        raise SpecError(f"{path}: is empty.")
    if first.lstrip().startswith("["):
        raise SpecError(f"{path}: is a list of JSON: write an object a line, as jq -c '.[]' does.")
    if not first.lstrip().startswith("{"):
        names = [
            _normalize_name(name) for _, row in read_files.parse_csv([first], path) for name in row
        ]
        if len(names) == 1 and (other := re.search(r"[;\t|]", first)):
            raise SpecError(f"{path}: has {other[0]!r} between columns: separate them by commas.")
        return names, (
            (number + line, row) for line, row in read_files.parse_csv(text, path) if row
        )
    names = list(_object(first, path, number))
    column_names = [_normalize_name(name) for name in names]

    def objects() -> Iterator[tuple[int, Sequence[object]]]:
        lines = chain([(number, first)], numbered)
        while lines_read := [*islice(lines, _LINES_AT_ONCE)]:
            for line_number, row in _objects(lines_read, path):
                yield line_number, [*map(row.get, names)]

    return column_names, objects()


def _lines(path: Path) -> Iterator[str]:
    """Yield the lines of a trace file, plain or gzip; raises an error if it is damaged."""
    try:
        with read_files.open_regular_file(path) as file:
            stream = GzipFile(fileobj=file) if file.peek(2)[:2] == _GZIP else file
            yield from read_files.read_lines(stream, path, max_bytes=4 * read_files.MEBIBYTE)
    except (EOFError, zlib.error) as failure:
        raise read_files.read_error(path, failure) from failure


def _objects(lines: Sequence[tuple[int, str]], path: Path) -> Iterator[tuple[int, UncheckedTable]]:
    """Yield line number and JSON object of each line, parsed together for speed."""
    try:
        objects = json.loads(f"[{','.join(line for _, line in lines)}]")
    except (ValueError, RecursionError):
        objects = []
    if len(objects) != len(lines) or not all(isinstance(value, dict) for value in objects):
        objects = [_object(line, path, number) for number, line in lines]
    return zip((number for number, _ in lines), objects, strict=True)


def _object(line: str, path: Path, number: int) -> UncheckedTable:
    """Parse a trace line as a JSON object; raises SpecError if it is not one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as failure:
        raise SpecError(f"{path}:{number}: is not valid JSON: {failure}.") from failure
    if not isinstance(value, dict):
        raise SpecError(f"{path}:{number}: is not the object of a request.")
    return value


def _normalize_name(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def _find_column(names: Sequence[str], spellings: Sequence[str]) -> int | None:
    """Return the index of the first column with one of these names; None: there is none."""
    indices = {name: index for index, name in reversed([*enumerate(names)])}
    spelled = (
        name + suffix for name in spellings for suffix in ("", *(f"_{unit}" for unit in _UNITS))
    )
    return next((indices[name] for name in spelled if name in indices), None)


def _unit(names: Sequence[str], column: int, first: float) -> float:
    """Return the seconds per unit of a time column, from its name or its first number."""
    end = names[column].rpartition("_")[2]
    if end in _UNITS:
        return _UNITS[end]
    if unit := next((unit for unit, min_value in _SINCE_1970.items() if first >= min_value), None):
        return _UNITS[unit]
    return 1e-3 if {*_IN_MS} <= {*names} and "chat_id" not in names else 1.0


def _lengths(cells: list[object], path: Path, lines: Sequence[int], role: str) -> FloatArray:
    """Tokens of each request; raises SpecError for an invalid number."""
    tokens = _numbers(cells, path, lines, role)
    _raise_if_any((tokens < 0) | (tokens > _LONGEST) | (tokens % 1 > 0), cells, path, lines, role)
    return tokens


def _blocks(
    cells: Sequence[object], path: Path, lines: Sequence[int]
) -> tuple[IndexArray, IndexArray]:
    """Return the KV-cache block names of all requests, last block first, and the count of each."""
    if not any(cells):
        return _no_blocks(), _no_blocks()
    try:
        lists: list[Any] = [_parse_block_names(cell) for cell in cells]
        counts = np.array([len(names) for names in lists])
        reversed_names = chain.from_iterable(map(reversed, lists))
        return np.fromiter(reversed_names, dtype=np.int64, count=int(counts.sum())), counts
    except (TypeError, ValueError, OverflowError, RecursionError):
        first_invalid = next(
            (row for row, cell in enumerate(cells) if not _is_list_of_block_names(cell)), 0
        )
        raise SpecError(
            f"{path}:{lines[first_invalid]}: the blocks of a prompt are "
            f"{str(cells[first_invalid])[:40]!r}, not a list of whole numbers."
        ) from None


def _parse_block_names(value: object) -> Any:
    """Block names of a cell, which is text in CSV; an empty list for an empty cell."""
    return (json.loads(value) if isinstance(value, str) and value else value) or []


def _is_list_of_block_names(value: object) -> bool:
    """Return True if a cell holds a list of integers that name blocks of the KV cache."""
    try:
        names = _parse_block_names(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(
        isinstance(name, int) and abs(name) < 2**63 for name in names
    )


def _times(cells: list[object], path: Path, lines: Sequence[int], unit: float) -> FloatArray:
    """Return the time of each request [s], from numbers or dates; raises SpecError if unsorted."""
    if isinstance(cells[0], str) and _DATE.match(cells[0].strip()):
        times = _dates(cells, path, lines)
    else:
        times = _numbers(cells, path, lines, "time") * unit
    early = np.flatnonzero(np.diff(times) < 0)
    if early.size:
        raise SpecError(
            f"{path}:{lines[early[0] + 1]}: comes before the request above it: sort the file by "
            "its times."
        )
    return times


def _dates(cells: list[object], path: Path, lines: Sequence[int]) -> FloatArray:
    """Return dates as seconds since 1970; dates without a time zone are read as UTC."""
    dates, utc_offsets = list[str](), list[float]()
    for line, cell in zip(lines, cells, strict=True):
        date = str(cell).strip()
        if not _DATE.match(date):
            raise SpecError(f"{path}:{line}: time is {cell!r}, not a date as the first.")
        zone = _ZONE.search(date)
        dates.append(date[: zone.start()] if zone else date)
        hours, minutes = (zone[1], zone[1][0] + zone[2]) if zone and zone[1] else ("0", "0")
        utc_offsets.append(3600.0 * int(hours) + 60.0 * int(minutes))
    try:
        times = np.array(dates, dtype="datetime64[ns]").astype(np.int64) / 1e9
    except ValueError as failure:
        raise SpecError(f"{path}: a time is not a date: {failure}.") from failure
    return np.asarray(times - np.array(utc_offsets))


def _numbers(cells: list[object], path: Path, lines: Sequence[int], role: str) -> FloatArray:
    """Return the cells of a column as finite numbers; raises SpecError for any other cell."""
    try:
        numbers = np.array(cells, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        numbers = np.array([_number(cell) for cell in cells])
    _raise_if_any(~np.isfinite(numbers), cells, path, lines, role)
    return numbers


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _raise_if_any(
    invalid: np.ndarray, cells: list[object], path: Path, lines: Sequence[int], role: str
) -> None:
    """Raise SpecError for the first cell marked invalid, with its file and line."""
    if invalid.any():
        row = int(np.argmax(invalid))
        kind = "a number of tokens"
        if role == "time":
            kind = "a time: a number, or a date as 2023-11-16 18:15:46"
        raise SpecError(f"{path}:{lines[row]}: {role} is {cells[row]!r}, not {kind}.")
