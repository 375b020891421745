"""Measured traffic: lengths and rates from a trace or a table of lengths."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import NormalDist

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.base.units import HOUR
from planner.confidence.profile_rules import read_table
from planner.errors import SearchSpaceError, SpecError, did_you_mean
from planner.logs.traces import Trace, read_trace
from planner.question.names import ACTIVE_SHARE, REQUESTS_PER_USER, USERS
from planner.question.parse_values import format_input, parse_int, parse_value
from planner.question.request import Request
from planner.question.terms import glossary, terms_about
from planner.specs.arrivals import Arrivals
from planner.workloads.serving.measured_arrivals import measured_arrivals

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
    answers: Mapping[str, object], base: Request | None, option_name: Callable[[str], str] = str
) -> Mapping[str, object]:
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


def measured_answers(request: Request) -> Mapping[str, object]:
    """Request rate [1/s] and lengths [tokens] from measured traffic, by term; else empty."""
    question = _measured_question(request)
    return (
        answers_of(question, str(getattr(request, question)), request.prompt_range)
        if question
        else {}
    )


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
            f"{request.request_rate:,.4g} ({request.users:,} users, "
            f"{request.requests_per_user:g} requests an hour of the {request.active_share:.0%} "
            "that are active)"
        )
    return defaults


def _count(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number
