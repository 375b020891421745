"""Reads a log: its lines, its measurements, and the steady state of its steps."""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import zlib
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from statistics import median, quantiles

from planner.base.read_files import open_regular_file, read_error
from planner.base.records import record
from planner.errors import LaunchError

OUT_OF_MEMORY = "out_of_memory"
STEP_TIME = "step_time_s"
TOKENS = "tokens_per_s_per_gpu"
SAMPLES = "samples_per_s"
"""Sequences of the whole run per second; the plan's batch size converts it to a step time."""


_LARGEST = 1e15


def parse_number(value: object) -> float | None:
    """Parse a number of a log from text or JSON; None: not a finite number below 1e15."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if abs(number) <= _LARGEST else None


def parse_count(value: object) -> int:
    """An integer of a log; 0 if the value is no finite number below 1e15."""
    return int(parse_number(value) or 0)


@record(kw_only=True)
class LoggedStep:
    """A line about one step, or about the steps since the line before.

    ``value`` is in the unit of the summary's quantity; ``batch`` is the global batch size
    [sequences], 0 if the line has none; ``after`` names an evaluation or a checkpoint just before.
    """

    number: int
    stream: str
    value: float
    batch: int = 0
    after: str = ""


@record(kw_only=True)
class LogSummary:
    """Measurements of a log.

    ``format`` is its name for ``--log-format``, ``title`` the tool that printed it,
    ``is_training`` None if unknown. Either ``steps`` of training have ``quantity`` line by line, or
    ``values`` have quantities of the whole run. Their names and units are those of the columns of
    runs, without ``measured_``. ``percentiles`` of requests are by quantity and percent, ``memory``
    of the fullest GPU [GiB] is by kind. ``phases`` are median times [s] of the phases of
    reinforcement learning steps without the first, by result column; ``on_rollouts``: the log is
    of such a run; ``per_update``: it counts optimizer steps. ``facts`` are numbers of the run, by
    names of columns, ``model`` is the name in the log, empty if it has none; ``notes`` are for the
    reader.
    """

    format: str
    title: str
    is_training: bool | None
    on_rollouts: bool = False
    per_update: bool = False
    quantity: str = STEP_TIME
    steps: tuple[LoggedStep, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)
    percentiles: Mapping[tuple[str, int], float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    phases: Mapping[str, float] = field(default_factory=dict)
    facts: Mapping[str, float] = field(default_factory=dict)
    model: str = ""
    notes: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing was measured."""
        return not (self.steps or self.values)


_GZIP = b"\x1f\x8b"
_LONGEST_LINE = 1 << 16
_MOST_CHARACTERS = 4 << 30
_LARGEST_JSON = 256 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_OF_NUMBERS = "0123456789.,eE+-"
# What launchers write before the lines of a rank: torchrun, torchrun --tee, srun --label.
_RANK = re.compile(r"\s*(?:\[(?:rank|default)?(\d+)\]:|(\d+):(?=\s))\s?")


@record(kw_only=True)
class LogLine:
    """A line without colours and without the prefix of the launcher.

    ``stream`` is the rank that printed it, empty if the launcher prints none.
    """

    number: int
    stream: str
    text: str


@record()
class Log:
    """A log file; each call of ``lines`` reads it anew."""

    path: Path

    @cached_property
    def is_cut_off(self) -> bool:
        """Return True if the file ends within a number or within compressed data."""
        try:
            last = deque(self._pieces(), maxlen=1)
        except (EOFError, zlib.error):
            return True
        return bool(last) and _is_cut(last[0])

    def lines(self) -> Iterator[LogLine]:
        """Yield all lines, without a last line that the end of the file cuts within a number.

        Raises LaunchError if the file cannot be read, or is longer than 4 GiB.
        """
        num_characters = 0
        try:
            for number, piece in enumerate(self._pieces(), 1):
                num_characters += len(piece)
                if num_characters > _MOST_CHARACTERS:
                    raise LaunchError(f"{self.path}: is longer than 4 GiB; give a part of it.")
                if not _is_cut(piece):
                    yield _line(number, piece)
        except (EOFError, zlib.error):
            return
        except OSError as error:
            raise read_error(self.path, error, LaunchError) from error

    @cached_property
    def objects(self) -> tuple[object, ...]:
        """Return the JSON values of a JSON file, or one per line; empty for other files."""
        text = self._small_text()
        if not text.lstrip("\ufeff \t\r\n").startswith(("{", "[")):
            return ()
        try:
            return (json.loads(text.lstrip("\ufeff")),)
        except (ValueError, RecursionError):
            return tuple(_parse_json_lines(text))

    def _small_text(self) -> str:
        """Return the text of the file; empty if it is larger than 256 MiB or not JSON."""
        try:
            text = "".join(_read_json_pieces(self._pieces(), _LARGEST_JSON))
        except (EOFError, zlib.error):
            return ""
        except OSError as error:
            raise read_error(self.path, error, LaunchError) from error
        return text

    def _pieces(self) -> Iterator[str]:
        """Yield the lines of the file, also compressed; a line that is too long comes in parts."""
        with open_regular_file(self.path, LaunchError) as file:
            packed = file.read(len(_GZIP)) == _GZIP
            file.seek(0)
            stream = gzip.GzipFile(fileobj=file) if packed else file
            with io.TextIOWrapper(stream, encoding="utf-8", errors="replace", newline=None) as text:
                yield from iter(lambda: text.readline(_LONGEST_LINE), "")


def _is_cut(piece: str) -> bool:
    """Whether a piece without a line end stops within a number."""
    is_open = not piece.endswith("\n") and len(piece) < _LONGEST_LINE
    return is_open and any(map(str.isdigit, piece[len(piece.rstrip(_OF_NUMBERS)) :]))


def _line(number: int, piece: str) -> LogLine:
    """Remove colors from a log line and split off its rank prefix; stream "": no rank."""
    text = _ANSI.sub("", piece).rstrip()
    rank = _RANK.match(text)
    if rank is None:
        return LogLine(number=number, stream="", text=text)
    return LogLine(number=number, stream=rank[1] or rank[2], text=text[rank.end() :])


def _read_json_pieces(pieces: Iterator[str], max_characters: int) -> Iterator[str]:
    """Yield the pieces if they look like JSON and are not too long; else nothing."""
    buffered: list[str] = []
    num_characters = 0
    for piece in pieces:
        num_characters += len(piece)
        # Only text that begins like JSON is buffered.
        if num_characters > max_characters or (
            buffered == [] and piece.strip() and piece.lstrip()[0] not in "{[\ufeff"
        ):
            return
        if buffered or piece.strip():
            buffered.append(piece)
    yield from buffered


def _parse_json_lines(text: str) -> Iterator[object]:
    """Yield the JSON object of each line that has one; skips other and damaged lines."""
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue  # the line that a full disk or a kill cut
        if isinstance(value, dict):
            yield value


_WARMUP_STEPS = 3
_WARMUP_SHARE = 0.1
_MOST_WARMUP = 20
# Ranks print the same step one after the other: only a longer way back is a restart.
_MAX_STEP_DISORDER = 3
# A step so many times slower than the median is reported as an outlier.
_SLOW = 1.5
_MAX_NOTES = 3


@record(kw_only=True)
class SteadyValue:
    """A quantity in steady state: its median, and the interval of 80 % of its steps.

    ``lines`` is the number of log lines used, ``warmup`` the number left out.
    """

    value: float
    low: float
    high: float
    lines: int
    warmup: int
    notes: tuple[str, ...] = ()


def steady_state(steps: Sequence[LoggedStep], quantity: str) -> SteadyValue:
    """Return median and spread of the steps after warm-up; ``steps`` must not be empty."""
    batch = steps[-1].batch
    attempts = list(_attempts([step for step in steps if step.batch == batch]))
    steady = [step for attempt in attempts for step in attempt[_warmup(attempt) :]]
    warmup = sum(map(len, attempts)) - len(steady)
    values = [step.value for step in steady]
    low, high = _spread(values)
    median_value = median(values)
    notes = []
    if others := sorted({step.batch for step in steps} - {batch}):
        sizes = ", ".join(map(str, others))
        notes.append(f"lines of other global batch sizes ({sizes}) are left out: {batch} came last")
    if len(attempts) > 1:
        starts = ", ".join(str(attempt[0].number) for attempt in attempts[1:])
        notes.append(f"the run restarted at step {starts}: each start has its own warm-up")
    if not warmup:
        notes.append("there is only one line: it includes warm-up")
    notes += _describe_outliers(steady, median_value, quantity)
    lines = len(values)
    return SteadyValue(
        value=median_value, low=low, high=high, lines=lines, warmup=warmup, notes=tuple(notes)
    )


def _attempts(steps: Sequence[LoggedStep]) -> Iterator[list[LoggedStep]]:
    """Yield the steps of each start of the run, with the median over ranks per step."""
    steps_by_attempt: defaultdict[int, defaultdict[int, list[LoggedStep]]]
    steps_by_attempt = defaultdict(lambda: defaultdict(list))
    furthest: dict[str, int] = {}
    attempt: defaultdict[str, int] = defaultdict(int)
    for step in steps:
        before = furthest.get(step.stream, step.number)
        if step.number <= before - _MAX_STEP_DISORDER:
            attempt[step.stream] += 1
            before = step.number
        furthest[step.stream] = max(before, step.number)
        steps_by_attempt[attempt[step.stream]][step.number].append(step)
    for numbers in steps_by_attempt.values():
        yield [
            replace(
                copies[0],
                value=median(step.value for step in copies),
                after=next((step.after for step in copies if step.after), ""),
            )
            for copies in numbers.values()
        ]


def _warmup(attempt: Sequence[LoggedStep]) -> int:
    """Return how many lines of a start are warm-up: 3 steps or a tenth, at most half."""
    lines = len(attempt)
    if lines < 2:
        return 0
    steps_per_line = max((attempt[-1].number - attempt[0].number) / (lines - 1), 1.0)
    share = min(int(lines * _WARMUP_SHARE), _MOST_WARMUP)
    return min(max(math.ceil(_WARMUP_STEPS / steps_per_line), share), lines // 2)


def _spread(values: Sequence[float]) -> tuple[float, float]:
    if len(values) == 1:
        return values[0], values[0]
    tenths = quantiles(values, n=10, method="inclusive")
    return tenths[0], tenths[-1]


def _describe_outliers(
    steps: Sequence[LoggedStep], median_value: float, quantity: str
) -> Iterator[str]:
    """Yield a note on steps far slower than the median, with examples, if there are any."""
    slower = [(_slowdown(step.value, median_value, quantity), step) for step in steps]
    slow = sorted((pair for pair in slower if pair[0] > _SLOW), key=lambda pair: -pair[0])
    if not slow:
        return
    examples = ", ".join(
        f"step {step.number} {times:.1f} times{f' after {step.after}' if step.after else ''}"
        for times, step in slow[:_MAX_NOTES]
    )
    more = f", {len(slow) - _MAX_NOTES} more" if len(slow) > _MAX_NOTES else ""
    yield f"{len(slow)} of {len(steps)} lines are slower than {_SLOW:g} medians: {examples}{more}"


def _slowdown(value: float, median_value: float, quantity: str) -> float:
    if quantity == STEP_TIME:
        return value / median_value
    return median_value / value if value else math.inf
