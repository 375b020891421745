"""Traffic as it was measured: what a trace or a table of lengths answers of a question."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path

from planner.base.records import record
from planner.errors import SpecError, did_you_mean
from planner.logs.traces import Trace, read_trace
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.specs.arrivals import Arrivals

TRAFFIC = ("trace", "lengths")
"""Questions that answer others; a trace has lengths, too."""
_ANSWERED = (*terms_about("length", "serve"), *terms_about("variation"))


@record(kw_only=True)
class MeasuredLengths:
    """Lengths that are shipped: means [tokens], coefficients of variation, and their source."""

    answers: Mapping[str, float]
    told: str


@cache
def shipped_lengths() -> Mapping[str, MeasuredLengths]:
    """Published lengths by name, from ``planner/logs/lengths.csv``."""
    text = files("planner").joinpath("logs/lengths.csv").read_text(encoding="utf-8")
    return {
        row["name"]: MeasuredLengths(
            answers={name: _count(row[name]) for name in _ANSWERED},
            told=f"{row['description']}: {int(row['requests']):,} requests, {row['licence']}",
        )
        for row in csv.DictReader(text.splitlines())
    }


def answers_of(
    question: str, given: object, said: Callable[[str], str] = str
) -> Mapping[str, object]:
    """What a trace or lengths say of the requests, by term.

    Raises
    ------
    SpecError
        It is no name that is shipped and no file that can be read, or a trace without times.
    """
    known = shipped_lengths()
    if question == "lengths" and str(given) in known:
        return known[str(given)].answers
    path = Path(str(given))
    if question == "lengths" and not path.is_file():
        hint = did_you_mean(str(given), known)
        raise SpecError(
            f"{said(question)}: {given} is no file, and not among {', '.join(known)}.{hint}"
        )
    trace = trace_of(path)
    found: dict[str, object] = dict(trace.lengths)
    if question == "trace":
        if trace.request_rate is None:
            raise SpecError(
                f"{path}: has no times of requests: give it as {said('lengths')}, or add a column "
                "of times."
            )
        found["request_rate"] = trace.request_rate
    return found


def trace_of(path: Path) -> Trace:
    """The trace of a file, read once as long as it stays the same."""
    try:
        stamp = os.stat(path)
    except OSError:
        return read_trace(path)
    return _read(path.absolute(), stamp.st_mtime_ns, stamp.st_size)


@cache
def _read(path: Path, changed: int, size: int) -> Trace:
    return read_trace(path)


def arrivals_of(request: Request) -> Arrivals:
    """How the requests of a question come: as in its trace, by its variation, or at random."""
    if request.trace is not None:
        return trace_of(Path(request.trace)).arrivals
    bursts = float(request.arrival_variation) ** 2
    return Arrivals() if bursts == 1 else Arrivals(bursts=(bursts,), dispersion=(bursts,))


def traffic_defaults(request: Request) -> Mapping[str, str]:
    """Where lengths and the rate come from, by term, as far as a trace or a table has them."""
    if request.trace is not None:
        path = Path(request.trace)
        trace = trace_of(path)
        source, answers = f"{path.name}: {trace.told()}", answers_of("trace", path)
    elif request.lengths is not None:
        shipped = shipped_lengths().get(request.lengths)
        answers = answers_of("lengths", request.lengths)
        source = shipped.told if shipped else trace_of(Path(request.lengths)).told()
    else:
        return {}
    return {
        name: f"{value:,.4g} ({source})"
        for name, value in answers.items()
        if getattr(request, name) == value
    }


def _count(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number
