"""Measured traffic: arrivals, lengths and rates from a trace or a table of lengths."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import NormalDist
from zlib import crc32

import numpy as np

from planner.base.arrays import FloatArray, IndexArray
from planner.base.records import record
from planner.base.units import HOUR, ceil_div
from planner.confidence.profile_rules import read_table
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.formulas.queueing import fifo_queueing_delays
from planner.formulas.trace_queueing import PrefillServerPath, drifting_counts
from planner.logs.traces import Trace, read_trace
from planner.question.names import ACTIVE_SHARE, REQUESTS_PER_USER, USERS
from planner.question.parse_values import format_input, parse_int, parse_value
from planner.question.request import Answers, Request
from planner.question.terms import glossary, terms_about
from planner.specs.arrivals import (
    LOADS,
    PLACES,
    POINTS,
    SCALES,
    SHARES,
    Arrivals,
    RoundRobinPaths,
    TracePaths,
)

_FEWEST_WINDOWS = 32
_MOST_WINDOWS, _FEWEST_REQUESTS = 128, 64
_MOST_ANSWERS, _MOST_WAITS = 1024, 2**16
_FEWEST_OF_REPLICA, _FEWEST_SEEN = 32, 16_384


def measured_arrivals(
    times: FloatArray, work: FloatArray, answers: FloatArray, drawn: bool = False
) -> Arrivals:
    """The arrival statistics of a trace: requests at ``times`` [s] with ``work`` in any unit.

    Simulates one server at each utilization
    (`planner.formulas.queueing.fifo_queueing_delays`); ``answers`` are the tokens of the answers,
    which decode while the server is idle. Replicas get requests in turn, or at random if ``drawn``.
    """
    if times.size < 2 or not times[-1] > times[0]:
        return Arrivals()
    windows = [
        _window_work(times, np.ones_like(times), times.size / 2.0**power)
        for power in range(max(int(np.log2(times.size / _FEWEST_WINDOWS)), 1))
    ]
    turns = _replica_paths(times, work, answers, drawn, 1)
    further_tokens = np.maximum(answers - 1, 0.0)
    return Arrivals(
        bursts=tuple(np.maximum(turns.bursts, 0.0).tolist()),
        dispersion=tuple(float(counts.var() / counts.mean()) for counts in windows),
        spread=tuple(map(tuple, turns.waits.tolist())),
        paths=TracePaths(
            name=f"{times.size}-{crc32(np.stack([times, work, answers]).tobytes()):08x}-{drawn}",
            windows=np.stack(
                [
                    _drifting_windows(times, quantity)
                    for quantity in (np.ones_like(times), work, answers)
                ]
            ),
            requests=times.size,
            lengths=np.quantile(further_tokens, POINTS) / max(float(further_tokens.mean()), 1e-9),
            turns=partial(_replica_paths, times, work, answers, drawn),
        ),
    )


def replica_of(requests: int, replicas: int, drawn: bool, seed: int = 0) -> IndexArray:
    """The index of the replica that gets each request: in turn, or at random if ``drawn``.

    A random replica per request is an independent thinning of the arrivals [1]_.

    References
    ----------
    .. [1] D. Daley and D. Vere-Jones, "An Introduction to the Theory of Point Processes,"
       volume 2, 2nd ed., 2008, section 11.3.
    """
    if drawn:
        return np.random.default_rng(seed).integers(replicas, size=requests)
    return np.arange(requests) % replicas


def _replica_paths(
    times: FloatArray, work: FloatArray, answers: FloatArray, drawn: bool, replicas: int
) -> RoundRobinPaths:
    """Queueing statistics of replicas that share the requests of a trace.

    The number of replicas is bounded so that each gets enough requests, and only as many replicas
    are simulated as the statistics need.
    """
    number = min(replicas, max(times.size // _FEWEST_OF_REPLICA, 1))
    owners = replica_of(times.size, number, drawn)
    windows = np.stack(
        [
            _replica_windows(times, quantity, owners, number)
            for quantity in (np.ones_like(times), work, answers)
        ]
    )
    duration = float(times[-1] - times[0])
    seen = min(ceil_div(_FEWEST_SEEN * number, times.size), number)
    turns = np.argsort(owners, kind="stable")
    turns = turns[owners[turns] < seen]
    gap = duration / times.size * number
    service = work[turns] / work.mean() * gap
    # What one path has left is worked off before the next begins.
    times = times[turns] + owners[turns] * (2 * duration + float(service.sum()))
    answers = answers[turns]
    variation, stride = np.square(service.std() / service.mean()), max(times.size // _MOST_WAITS, 1)
    bursts: list[float] = []
    tables: tuple[list[FloatArray], ...] = ([], [], [])
    for load in LOADS:
        path = PrefillServerPath(
            times=times,
            service=load * service,
            waits=fifo_queueing_delays(times=times, service=load * service),
        )
        mean, latencies = float(path.waits.mean()), path.waits + path.service
        bursts.append(mean / (load * load * float(service.mean()) / (2 * (1 - load))) - variation)
        waits = np.quantile(path.waits[::stride], SHARES) / max(mean, 1e-300)
        latency_quantiles = np.quantile(latencies[::stride], SHARES) / latencies.mean()
        for table, quantiles in zip(
            tables, (waits, latency_quantiles, _stall_shares(path, answers, gap)), strict=True
        ):
            table.append(quantiles)
    spread, passes, stalls = map(np.stack, tables)
    return RoundRobinPaths(
        windows=windows,
        bursts=np.array(bursts),
        waits=spread,
        through=passes,
        stalls=np.moveaxis(stalls, 0, 3),
    )


def _replica_windows(
    times: FloatArray, work: FloatArray, owners: IndexArray, replicas: int
) -> FloatArray:
    """Work per time window and replica, divided by the mean; shape (windows, replicas).

    With more replicas there are fewer windows, so that the size of the array stays about the same.
    """
    number = _number_of_windows(times)
    num_columns, parts = min(replicas, number), max(number // replicas, 1)
    place = ((times - times[0]) / (times[-1] - times[0]) * parts * (1 - 1e-12)).astype(np.intp)
    is_selected = owners < num_columns
    counts = np.bincount(
        (place * num_columns + owners)[is_selected],
        work[is_selected],
        minlength=parts * num_columns,
    )
    return np.asarray(counts / counts.mean()).reshape(parts, num_columns)


def _number_of_windows(times: FloatArray) -> int:
    return max(min(_MOST_WINDOWS, times.size // _FEWEST_REQUESTS), 1)


def _window_work(times: FloatArray, work: FloatArray, number: float) -> FloatArray:
    """Work in each of ``number`` equal time windows, divided by the mean work of a request."""
    window_indices = ((times - times[0]) / ((times[-1] - times[0]) / number)).astype(np.intp)
    return np.asarray(
        np.bincount(window_indices, work / work.mean(), minlength=int(number)), dtype=float
    )


def _drifting_windows(times: FloatArray, work: FloatArray) -> FloatArray:
    """The slowly changing part of the work in each time window, divided by the mean."""
    number = _number_of_windows(times)
    counts, quarters = (
        _window_work(times, work, number * parts * (1 - 1e-12))[: number * parts]
        for parts in (1, 4)
    )
    steady = np.maximum(drifting_counts(counts, quarters), 0.0)
    return np.asarray(steady / steady.mean())


def _stall_shares(path: PrefillServerPath, answers: FloatArray, gap: float) -> FloatArray:
    """The delay of answers by prompts, divided by the time between the tokens of an answer.

    Axes: answers or tokens, `PLACES` batch slots, `SCALES` of the mean ``gap`` [s] and `POINTS`.
    """
    stride = max(answers.size // _MOST_ANSWERS, 1)
    lengths = (answers[::stride] - 1) / max((answers - 1).mean(), 1e-9)
    stalls = np.zeros((2, PLACES.size, SCALES.size, POINTS.size))
    is_nonzero = lengths > 0
    if not is_nonzero.any():
        return stalls
    most_stalls = np.stack(
        [path.max_prompt_time(stride, lengths, int(2**places)) for places in PLACES]
    )[:, is_nonzero]
    nonzero_lengths = lengths[is_nonzero]
    of_answers = np.searchsorted(
        np.arange(1, nonzero_lengths.size + 1) / nonzero_lengths.size, POINTS
    )
    for column, scale in enumerate(SCALES):
        idle = gap * 2**scale * lengths
        nonzero_idle = idle[is_nonzero]
        freely = path.stall_time(stride, idle)[is_nonzero] / nonzero_idle
        bounds = most_stalls / nonzero_idle
        # More places than those that bound nothing change nothing.
        rows = min(int((bounds < freely).any(axis=1).sum()) + 1, PLACES.size)
        stall_shares = np.minimum(freely, bounds[:rows])
        order = np.argsort(stall_shares, axis=1)
        ranked = np.take_along_axis(stall_shares, order, axis=1)
        until = np.cumsum(nonzero_lengths[order], axis=1)
        for row in range(PLACES.size):
            bound_row = min(row, rows - 1)
            shares = until[bound_row] / until[bound_row, -1]
            of_tokens = np.minimum(np.searchsorted(shares, POINTS), shares.size - 1)
            stalls[:, row, column] = ranked[bound_row, of_answers], ranked[bound_row, of_tokens]
    return stalls


_TABLES = Path(__file__).parents[2] / "logs"
_MOST_VARIED = 100.0
_ANSWERED = (
    *terms_about("length", "serve"),
    *terms_about("length_variation"),
    *terms_about("session"),
    *terms_about("image", "serve"),
)
_MEASURED = ("trace", "lengths")  # a trace has lengths, too
_HABITS = terms_about("user_habit")
_PER_BIN, _QUANTILES = 64, 4096
_RANGE = re.compile(r"<=([^<>=-]+)|>([^<>=-]+)(?:-([^<>=-]+))?")


@record(kw_only=True)
class MeasuredLengths:
    """Shipped lengths: means [tokens], coefficients of variation, and their source.

    ``histogram``: shares of the prompts of at least 2^(k - 1) and less than 2^k tokens, k from 0;
    empty: unknown.
    """

    answers: Mapping[str, float]
    description: str
    histogram: tuple[float, ...]


@cache
def shipped_lengths() -> Mapping[str, MeasuredLengths]:
    """Published distributions of request lengths, by name, from ``lengths.csv``."""
    return {
        row["name"]: MeasuredLengths(
            answers={name: _count(row[name]) for name in _ANSWERED if row.get(name)},
            description=(
                f"{row['description']}: {int(row['requests']):,} requests, {row['licence']}"
            ),
            histogram=tuple(map(float, (row["input_histogram"] or "").split())),
        )
        for row in read_table("lengths.csv", _TABLES)
    }


@record(kw_only=True)
class LengthRange:
    """Prompts of more than ``above`` and at most ``most`` tokens."""

    above: float = 0.0
    most: float = math.inf

    @property
    def text(self) -> str:
        """The range in the notation of options: ``<=6144``, ``>6144``, ``>2048-6144``."""
        if not self.above:
            return f"<={self.most:.0f}"
        return f">{self.above:.0f}" + (f"-{self.most:.0f}" if self.most < math.inf else "")


def read_range(text: str, option_name: str = "prompt_range") -> LengthRange:
    """Parse a range of prompt lengths [tokens]: ``<=6k``, ``>6k`` or ``>2k-6k``.

    Raises SearchSpaceError if the text is no such range.
    """
    match = _RANGE.fullmatch("".join(text.split()))
    maximum, above, end = match.groups() if match else (None, None, None)
    length_range = LengthRange(
        above=0.0 if above is None else parse_int(above, option_name, 0, unit="tokens"),
        most=parse_int(end or maximum, option_name, 1, unit="tokens")
        if end or maximum
        else math.inf,
    )
    if match is None or length_range.above >= length_range.most:
        raise SearchSpaceError(
            f"{option_name} is a range of tokens such as <=6k, >6k or >2k-6k, not "
            f"{format_input(text)}."
        )
    return length_range


@record(kw_only=True)
class PromptLengths:
    """Requests by the length of their prompts [tokens], each of a ``weight``; all add up to 1.

    ``answers``: tokens of the answer to each; None: independent of the prompts.
    """

    lengths: FloatArray
    weights: FloatArray
    answers: FloatArray | None = None

    def within(self, part: LengthRange) -> tuple[float, dict[str, float]]:
        """The share of requests with prompts in the range ``part``, and their lengths by term."""
        is_within = (self.lengths > part.above) & (self.lengths <= part.most)
        weights = self.weights[is_within]
        share, lengths_by_term = float(weights.sum()), dict[str, float]()
        for kind, tokens in (("input", self.lengths), ("output", self.answers)):
            if tokens is not None and share:
                mean, square = (
                    float(weights @ tokens[is_within] ** power) / share for power in (1, 2)
                )
                lengths_by_term[f"{kind}_tokens"] = max(round(mean), 1)
                variation = math.sqrt(max(square / mean**2 - 1, 0.0))
                lengths_by_term[f"{kind}_variation"] = round(variation, 3)
        return share, lengths_by_term

    def quantiles(self, shares: Sequence[float]) -> list[int]:
        """Prompt lengths [tokens] at these quantiles (from 0 to 1)."""
        order = np.argsort(self.lengths, kind="stable")
        positions = np.searchsorted(np.cumsum(self.weights[order]), np.asarray(shares) - 1e-9)
        return [round(float(length)) for length in self.lengths[order][positions]]


def prompts_of(request: Request) -> PromptLengths:
    """The prompt lengths [tokens] of a request: measured, else a lognormal distribution.

    Raises SpecError if a file cannot be read.
    """
    if question := _measured_question(request):
        return _measured_prompts(question, str(getattr(request, question)))
    return _lognormal(float(request.input_tokens or 0), request.input_variation or 0.0)


def _lognormal(mean: float, variation: float) -> PromptLengths:
    """Prompt lengths [tokens] at equal quantiles of a lognormal distribution."""
    spread = math.sqrt(math.log1p(variation**2))
    normal = NormalDist()
    scores = [normal.inv_cdf((place + 0.5) / _QUANTILES) for place in range(_QUANTILES)]
    weights = np.full(_QUANTILES, 1 / _QUANTILES)
    return _fit_lengths(np.exp(spread * np.array(scores)), weights, mean, variation)


def _measured_prompts(question: str, text: str) -> PromptLengths:
    """Prompt lengths [tokens] of a published distribution (by name) or of a trace file."""
    shipped = shipped_lengths().get(text) if question == "lengths" else None
    if shipped is not None and not shipped.histogram:
        answers = shipped.answers
        return _lognormal(answers["input_tokens"], answers["input_variation"])
    if shipped is None:
        trace = trace_of(Path(text))
        weights = np.full(trace.input_tokens.size, 1 / trace.input_tokens.size)
        return PromptLengths(
            lengths=trace.input_tokens, weights=weights, answers=trace.output_tokens
        )
    inside = (np.arange(_PER_BIN) + 0.5) / _PER_BIN - 1
    powers = np.arange(len(shipped.histogram))[:, None] + inside
    weights = np.repeat(shipped.histogram, _PER_BIN) / (_PER_BIN * sum(shipped.histogram))
    answers = shipped.answers
    return _fit_lengths(
        2.0 ** powers.ravel(), weights, answers["input_tokens"], answers["input_variation"]
    )


def _fit_lengths(
    lengths: FloatArray, weights: FloatArray, mean: float, variation: float
) -> PromptLengths:
    """Scale and stretch ``lengths`` to this mean [tokens] and coefficient of variation."""
    low, high = 0.0, 4.0
    for _ in range(50):
        power = (low + high) / 2
        scaled = (lengths / lengths.max()) ** power
        square = float(weights @ scaled**2) / float(weights @ scaled) ** 2
        low, high = (power, high) if square < 1 + variation**2 else (low, power)
    return PromptLengths(lengths=scaled * (mean / float(weights @ scaled)), weights=weights)


def traffic_answers(
    answers: Answers, base: Request | None, option_name: Callable[[str], str] = str
) -> Answers:
    """Request rate [1/s] and lengths [tokens] that follow from traffic answers, by term.

    Raises SpecError or SearchSpaceError if a file cannot be read, or has no times; or if an answer
    is invalid.
    """

    def of(name: str) -> object:
        answer = answers.get(name, getattr(base or Request, name))
        return None if answer is None else parse_value(glossary()[name], answer, option_name(name))

    def number_of(name: str) -> float:
        return float(str(of(name)))

    traffic: dict[str, object] = {}
    part = of("prompt_range")
    measured = [
        name for name in _MEASURED if name in answers or ("prompt_range" in answers and of(name))
    ]
    if measured:
        traffic |= answers_of(
            measured[0], str(of(measured[0])), None if part is None else str(part), option_name
        )
    if {*_HABITS} & {*answers} and all(of(name) is not None for name in _HABITS):
        number, share = number_of(USERS), number_of(ACTIVE_SHARE)
        traffic["request_rate"] = number * share * number_of(REQUESTS_PER_USER) / HOUR
    return traffic


def answers_of(
    question: str, text: str, part: str | None = None, option_name: Callable[[str], str] = str
) -> dict[str, object]:
    """Request rate [1/s] and lengths [tokens] of a trace or a published distribution, by term.

    Raises SpecError if ``text`` is no published name and no file that can be read, or a trace
    without times; SearchSpaceError if no prompt is in that part.
    """
    path, shipped = Path(text), shipped_lengths() if question == "lengths" else {}
    if question == "lengths" and text not in shipped and file_state(path)[1] == 0:
        hint = did_you_mean(text, shipped)
        raise SpecError(
            f"{option_name(question)}: {format_input(text)} is neither a file nor one of "
            f"{', '.join(shipped)}.{hint}"
        )
    answers: dict[str, object] = {
        **(shipped[text].answers if text in shipped else trace_of(path).lengths)
    }
    rate = trace_of(path).request_rate if question == "trace" else None
    if question == "trace":
        if rate is None:
            is_timed = trace_of(path).times.size > 0
            missing = "requests at different times" if is_timed else "times of requests"
            raise SpecError(
                f"{path}: has no {missing}: give it as {option_name('lengths')}, or add a "
                "column of times."
            )
        answers["request_rate"] = rate
    if part is not None:
        prompts = _measured_prompts(question, text)
        share, part_answers = prompts.within(read_range(part, option_name("prompt_range")))
        if not share:
            raise SearchSpaceError(f"{option_name('prompts')}: {text} has none of {part} tokens.")
        answers |= part_answers
        if rate is not None:
            answers["request_rate"] = share * rate
    return answers


def measured_answers(request: Request) -> Answers:
    """Request rate [1/s] and lengths [tokens] from measured traffic, by term; else empty."""
    question = _measured_question(request)
    if question:
        return answers_of(question, str(getattr(request, question)), request.prompt_range)
    return {}


def _measured_question(request: Request) -> str:
    return next((name for name in _MEASURED if getattr(request, name) is not None), "")


def trace_of(path: Path, part: str | None = None) -> Trace:
    """Read a trace file, or the part with prompts in a range; cached until the file changes."""
    return _read_trace_part(*file_state(path), part)


def file_state(path: Path) -> tuple[Path, int, int]:
    """The absolute path, modification time [ns] and size [bytes] of a file; 0, 0: no file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return path, 0, 0
    return path.absolute(), status.st_mtime_ns, status.st_size


@cache
def _read_trace_part(path: Path, changed: int, size: int, part: str | None) -> Trace:
    """Read a trace file; with ``part``, only requests with prompts in that range of tokens."""
    if part is None:
        return read_trace(path)
    trace, length_range = _read_trace_part(path, changed, size, None), read_range(part)
    is_within = (trace.input_tokens > length_range.above) & (
        trace.input_tokens <= length_range.most
    )
    times = trace.times[is_within] if trace.times.size else trace.times
    is_block_within = np.repeat(is_within, trace.block_counts) if trace.blocks.size else slice(None)
    return replace(
        trace,
        times=times - times[0] if times.size else times,
        input_tokens=trace.input_tokens[is_within],
        output_tokens=trace.output_tokens[is_within],
        blocks=trace.blocks[is_block_within],
        block_counts=trace.block_counts[is_within] if trace.blocks.size else trace.block_counts,
    )


@cache
def _arrivals(path: Path, changed: int, size: int, part: str | None, drawn: bool) -> Arrivals:
    trace = _read_trace_part(path, changed, size, part)
    return measured_arrivals(trace.times, trace.input_tokens, trace.output_tokens, drawn)


def arrivals_of(request: Request, drawn: bool = False) -> Arrivals:
    """The arrival statistics of a request, from its trace or its coefficient of variation.

    Requests of a trace go to replicas in turn, or to random replicas if ``drawn``.

    Raises SpecError if the trace cannot be read, or the variation is out of range.
    """
    if request.trace is not None and request.arrival_variation == Request.arrival_variation:
        return _arrivals(*file_state(Path(request.trace)), request.prompt_range, drawn)
    if request.arrival_variation > _MOST_VARIED:
        raise SpecError(
            f"arrival_variation must be at most {_MOST_VARIED:g}, not "
            f"{request.arrival_variation:g}: it is 1 where requests come at random."
        )
    bursts = float(request.arrival_variation) ** 2
    return Arrivals() if bursts == 1 else Arrivals(bursts=(bursts,), dispersion=(bursts,))


def traffic_defaults(request: Request) -> Mapping[str, str]:
    """Texts on values that come from measured traffic, by term; empty without traffic."""
    defaults: dict[str, str] = {}
    if question := _measured_question(request):
        measured_name = str(getattr(request, question))
        shipped = shipped_lengths().get(measured_name) if question == "lengths" else None
        trace = None if shipped else trace_of(Path(measured_name), request.prompt_range)
        source = shipped.description if shipped else trace.format_summary() if trace else ""
        source = f"{Path(measured_name).name}: {source}" if question == "trace" else source
        source += f", prompts {request.prompt_range}" if request.prompt_range else ""
        defaults = {
            name: f"{value:,.4g} ({source})"
            for name, value in measured_answers(request).items()
            if getattr(request, name) == value
        }
    habits = traffic_answers({name: getattr(request, name) for name in _HABITS}, None)
    if habits and habits["request_rate"] == request.request_rate:
        defaults["request_rate"] = (
            f"{request.request_rate:,.4g} ({request.users:,} users, {request.requests_per_user:g} "
            f"requests an hour of the {request.active_share:.0%} that are active)"
        )
    return defaults


def _count(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number
