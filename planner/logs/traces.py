"""Traces of requests: when each came, how long its prompt and its answer were.

Published formats and own files are told by the names of their columns or keys: Azure's CSV,
BurstGPT's, Mooncake's JSONL (which AIPerf and Dynamo read too), Qwen-Bailian's, and others with
times, lengths of prompts and lengths of answers under usual names.
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
from planner.base.records import record
from planner.errors import SpecError, did_you_mean

_LENGTHS = ("input_tokens", "output_tokens")
_UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
# The keys of Mooncake's format, whose times are in ms, where no chat is told as Bailian's do.
_IN_MS = ("input_length", "output_length")
_MOST_ROWS = 20_000_000
_LONGEST = 1e8
_AT_ONCE = 1024
_PACKED = b"\x1f\x8b"
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_ZONE = re.compile(r"(?:Z|([+-]\d\d):?(\d\d))$")
# From 1970 on; seconds would be those of the year 5138.
_SINCE_1970 = {"ns": 1e17, "us": 1e14, "ms": 1e11}


@cache
def _names() -> Mapping[str, tuple[str, ...]]:
    """What columns are called, by what they hold: ours first."""
    rows = read_files.packaged_rows(Path(__file__).with_name("trace_columns.csv"))
    return {row["quantity"]: (*row["names"].split(),) for row in rows}


def _no_names() -> IndexArray:
    return np.zeros(0, dtype=np.int64)


@record(kw_only=True)
class Trace:
    """Requests in the order in which they came.

    ``times`` in seconds from the first, empty where the file has lengths alone; ``input_tokens``
    and ``output_tokens`` of each. ``unanswered``: rows without an answer, which are left out.
    ``blocks``: names of the blocks of all prompts, those of one from its end to its begin, of which
    ``block_counts`` says how many a prompt has; empty where the file names none. A block has
    ``block_tokens``, and stands for all before it, too.
    """

    name: str
    times: FloatArray
    input_tokens: FloatArray
    output_tokens: FloatArray
    unanswered: int = 0
    blocks: IndexArray = field(default_factory=_no_names)
    block_counts: IndexArray = field(default_factory=_no_names)

    @property
    def block_tokens(self) -> int:
        """Tokens of a block: the power of two nearest to what longer prompts have in each."""
        long = self.block_counts >= max(float(np.median(self.block_counts)), 1.0)
        each = np.median(self.input_tokens[long] / self.block_counts[long])
        return 1 << max(int(np.rint(np.log2(max(each, 1.0)))), 0)

    @property
    def blocks_of_each(self) -> list[list[int]]:
        """The blocks of each prompt from its begin on."""
        ends = np.cumsum(self.block_counts)
        return [one[::-1].tolist() for one in np.split(self.blocks, ends[:-1])]

    @property
    def seconds(self) -> float:
        """From the first request to the last."""
        return float(self.times[-1]) if self.times.size else 0.0

    @property
    def request_rate(self) -> float | None:
        """Requests per second; None of lengths alone."""
        return float(f"{self.input_tokens.size / self.seconds:.4g}") if self.seconds else None

    @property
    def lengths(self) -> Mapping[str, float]:
        """Mean lengths and their coefficients of variation, by term."""
        lengths: dict[str, float] = {}
        for kind, each in (("input", self.input_tokens), ("output", self.output_tokens)):
            mean = float(each.mean())
            lengths[f"{kind}_tokens"] = max(round(mean), 1)
            lengths[f"{kind}_variation"] = round(float(each.std()) / mean, 3)
        return lengths

    def told(self) -> str:
        """What it is, in a line."""
        words = f"{self.input_tokens.size:,} requests"
        if self.seconds:
            words += f" in {self.seconds / 60:,.4g} min"
        if self.unanswered:
            words += f", {self.unanswered:,} more without an answer left out"
        return words


def read_trace(path: Path) -> Trace:
    """A trace in CSV or JSONL, of gzip too; a million rows in a few seconds.

    Raises SpecError if it cannot be read, lacks a column, has no requests, or a row has a length or
    a time that cannot be, or comes before the one above it.
    """
    names, rows = _rows(path)
    places = {role: _place(names, known) for role, known in _names().items()}
    for role in _LENGTHS:
        if places[role] is None:
            hint = did_you_mean(role, names)
            raise SpecError(
                f"{path}: has no column of {role}: call one {_names()[role][0]}, as others do "
                f"{', '.join(_names()[role][1:4])}; it has {', '.join(names[:12])}.{hint}"
            )
    chosen = {role: place for role, place in places.items() if place is not None}
    columns: dict[str, list[object]] = {role: [] for role in chosen}
    lines: list[int] = []
    each = [(columns[role].append, place) for role, place in chosen.items()]
    for line, cells in rows:
        if len(lines) >= _MOST_ROWS:
            raise SpecError(f"{path}: has more than {_MOST_ROWS:,} requests; give a part of it.")
        for put, place in each:
            if place >= len(cells):
                raise SpecError(f"{path}:{line}: has {len(cells)} values, not {len(names)}.")
            put(cells[place])
        lines.append(line)
    if not lines:
        raise SpecError(f"{path}: has no requests.")
    prompts, answers = (_lengths(columns[role], path, lines, role) for role in _LENGTHS)
    times = np.zeros(0)
    if "time" in columns:
        given = columns["time"]
        times = _times(given, path, lines, _unit(names, chosen["time"], _number(given[0])))
    blocks, counts = _blocks(columns.get("blocks", ()), path, lines)
    kept = answers >= 1
    if not kept.any():
        raise SpecError(f"{path}: has no request with an answer.")
    times = times[kept] if times.size else times
    if counts.size and not kept.all():
        blocks, counts = blocks[np.repeat(kept, counts)], counts[kept]
    return Trace(
        name=path.name,
        times=times - times[0] if times.size else times,
        input_tokens=np.maximum(prompts[kept], 1.0),
        output_tokens=answers[kept],
        unanswered=int((~kept).sum()),
        blocks=blocks,
        block_counts=counts,
    )


def _rows(path: Path) -> tuple[list[str], Iterator[tuple[int, Sequence[object]]]]:
    """The names of the columns, and the values of each row with its line."""
    text = _lines(path)
    numbered = ((number, line) for number, line in enumerate(text, 1) if line.strip())
    number, first = next(numbered, (0, ""))
    if not number:
        raise SpecError(f"{path}: is empty.")
    if first.lstrip().startswith("["):
        raise SpecError(f"{path}: is a list of JSON: write an object a line, as jq -c '.[]' does.")
    if not first.lstrip().startswith("{"):
        names = [_plain(name) for _, row in read_files.parse_csv([first], path) for name in row]
        if len(names) == 1 and (other := re.search(r"[;\t|]", first)):
            raise SpecError(f"{path}: has {other[0]!r} between columns: separate them by commas.")
        return names, (
            (number + line, row) for line, row in read_files.parse_csv(text, path) if row
        )
    names = list(_object(first, path, number))
    plain = [_plain(name) for name in names]

    def objects() -> Iterator[tuple[int, Sequence[object]]]:
        lines = chain([(number, first)], numbered)
        while several := [*islice(lines, _AT_ONCE)]:
            for place, found in _objects(several, path):
                yield place, [*map(found.get, names)]

    return plain, objects()


def _lines(path: Path) -> Iterator[str]:
    try:
        with read_files.open_regular_file(path) as file:
            stream = GzipFile(fileobj=file) if file.peek(2)[:2] == _PACKED else file
            yield from read_files.read_lines(stream, path, most=4 * read_files.MEBIBYTE)
    except (EOFError, zlib.error) as failure:
        raise read_files.read_error(path, failure) from failure


def _objects(
    lines: Sequence[tuple[int, str]], path: Path
) -> Iterator[tuple[int, Mapping[str, object]]]:
    """The objects of some lines, read together in half of the time."""
    try:
        objects = json.loads(f"[{','.join(line for _, line in lines)}]")
    except (ValueError, RecursionError):
        objects = []
    if len(objects) != len(lines) or not all(isinstance(one, dict) for one in objects):
        objects = [_object(line, path, place) for place, line in lines]
    return zip((place for place, _ in lines), objects, strict=True)


def _object(line: str, path: Path, number: int) -> Mapping[str, object]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as failure:
        raise SpecError(f"{path}:{number}: is not valid JSON: {failure}.") from failure
    if not isinstance(found, dict):
        raise SpecError(f"{path}:{number}: is not the object of a request.")
    return found


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")


def _place(names: Sequence[str], known: Sequence[str]) -> int | None:
    """Where a column stands whose name is known, with a unit behind it or without."""
    places = {name: place for place, name in reversed([*enumerate(names)])}
    spelled = (name + unit for name in known for unit in ("", *(f"_{one}" for one in _UNITS)))
    return next((places[name] for name in spelled if name in places), None)


def _unit(names: Sequence[str], place: int, first: float) -> float:
    """Seconds of a unit of time, of a column that begins with some number."""
    end = names[place].rpartition("_")[2]
    if end in _UNITS:
        return _UNITS[end]
    if unit := next((unit for unit, least in _SINCE_1970.items() if first >= least), None):
        return _UNITS[unit]
    return 1e-3 if {*_IN_MS} <= {*names} and "chat_id" not in names else 1.0


def _lengths(cells: list[object], path: Path, lines: Sequence[int], role: str) -> FloatArray:
    """Tokens of each request."""
    found = _numbers(cells, path, lines, role)
    _refuse((found < 0) | (found > _LONGEST) | (found % 1 > 0), cells, path, lines, role)
    return found


def _blocks(
    given: Sequence[object], path: Path, lines: Sequence[int]
) -> tuple[IndexArray, IndexArray]:
    """The names of all blocks, of each request from its last on, and how many each has."""
    if not any(given):
        return _no_names(), _no_names()
    try:
        lists: list[Any] = [_names_in(one) for one in given]
        counts = np.array([len(one) for one in lists])
        every = chain.from_iterable(map(reversed, lists))
        return np.fromiter(every, dtype=np.int64, count=int(counts.sum())), counts
    except (TypeError, ValueError, OverflowError, RecursionError):
        wrong = next((place for place, one in enumerate(given) if not _are_names(one)), 0)
        raise SpecError(
            f"{path}:{lines[wrong]}: the blocks of a prompt are {str(given[wrong])[:40]!r}, not a "
            "list of whole numbers."
        ) from None


def _names_in(value: object) -> Any:
    """The list of a cell, which CSV has as text; that of an empty one has none."""
    return (json.loads(value) if isinstance(value, str) and value else value) or []


def _are_names(value: object) -> bool:
    try:
        found = _names_in(value)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, list) and all(
        isinstance(one, int) and abs(one) < 2**63 for one in found
    )


def _times(cells: list[object], path: Path, lines: Sequence[int], unit: float) -> FloatArray:
    """Seconds of each request, of numbers in a unit or of dates."""
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
    """Seconds of dates; those without a zone are as if of one."""
    words, east = list[str](), list[float]()
    for line, one in zip(lines, cells, strict=True):
        word = str(one).strip()
        if not _DATE.match(word):
            raise SpecError(f"{path}:{line}: time is {one!r}, not a date as the first.")
        zone = _ZONE.search(word)
        words.append(word[: zone.start()] if zone else word)
        hours, minutes = (zone[1], zone[1][0] + zone[2]) if zone and zone[1] else ("0", "0")
        east.append(3600.0 * int(hours) + 60.0 * int(minutes))
    try:
        times = np.array(words, dtype="datetime64[ns]").astype(np.int64) / 1e9
    except ValueError as failure:
        raise SpecError(f"{path}: a time is no date: {failure}.") from failure
    return np.asarray(times - np.array(east))


def _numbers(cells: list[object], path: Path, lines: Sequence[int], role: str) -> FloatArray:
    try:
        found = np.array(cells, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        found = np.array([_number(one) for one in cells])
    _refuse(~np.isfinite(found), cells, path, lines, role)
    return found


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan


def _refuse(
    wrong: np.ndarray, cells: list[object], path: Path, lines: Sequence[int], role: str
) -> None:
    if wrong.any():
        place = int(np.argmax(wrong))
        kind = "a number of tokens"
        if role == "time":
            kind = "a time: a number, or a date as 2023-11-16 18:15:46"
        raise SpecError(f"{path}:{lines[place]}: {role} is {cells[place]!r}, not {kind}.")
