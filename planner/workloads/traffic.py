"""Traffic as it was measured: what a trace or a table of lengths answers of a question."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np

from planner.base.arrays import FloatArray
from planner.base.records import record
from planner.confidence.software import read_table
from planner.errors import SpecError, did_you_mean
from planner.formulas.queueing import queued_wait
from planner.logs.traces import Trace, read_trace
from planner.question.inputs import shown
from planner.question.request import Request
from planner.question.terms import terms_about
from planner.specs.arrivals import LOADS, SHARES, Arrivals

_TABLES = Path(__file__).parents[1] / "logs"
_FEWEST_WINDOWS = 32
_MOST_VARIED = 100.0
_ANSWERED = (*terms_about("length", "serve"), *terms_about("variation"), *terms_about("session"))


@record(kw_only=True)
class MeasuredLengths:
    """Lengths that are shipped: means [tokens], coefficients of variation, and their source."""

    answers: Mapping[str, float]
    told: str


@cache
def shipped_lengths() -> Mapping[str, MeasuredLengths]:
    """Published lengths by name, from ``planner/logs/lengths.csv``."""
    return {
        row["name"]: MeasuredLengths(
            answers={name: _count(row[name]) for name in _ANSWERED if row[name]},
            told=f"{row['description']}: {int(row['requests']):,} requests, {row['licence']}",
        )
        for row in read_table("lengths.csv", _TABLES)
    }


def answers_of(question: str, given: str, said: Callable[[str], str] = str) -> Mapping[str, object]:
    """What a trace or lengths say of the requests, by term.

    Raises
    ------
    SpecError
        It is no name that is shipped and no file that can be read, or a trace without times.
    """
    known = shipped_lengths()
    if question == "lengths" and given in known:
        return known[given].answers
    path = Path(given)
    if question == "lengths" and state_of(path)[1] == 0:
        hint = did_you_mean(given, known)
        raise SpecError(
            f"{said(question)}: {shown(given)} is no file, and not among {', '.join(known)}.{hint}"
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
    return _read(*state_of(path))


def state_of(path: Path) -> tuple[Path, int, int]:
    """A path, and what changes with its file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return path, 0, 0
    return path.absolute(), found.st_mtime_ns, found.st_size


@cache
def _read(path: Path, changed: int, size: int) -> Trace:
    return read_trace(path)


@cache
def _arrivals(path: Path, changed: int, size: int) -> Arrivals:
    trace = _read(path, changed, size)
    return measured_arrivals(trace.times, trace.input_tokens)


def measured_arrivals(times: FloatArray, work: FloatArray) -> Arrivals:
    """How requests come in a trace, each at one of the ``times`` [s] with some ``work``.

    One server with that work, in any unit, is simulated at each utilization
    (`planner.formulas.queueing.queued_wait`).
    """
    if times.size < 2 or not times[-1] > times[0]:
        return Arrivals()
    each = work / work.mean() * (float(times[-1] - times[0]) / times.size)
    variation = np.square(work.std() / work.mean())
    bursts, spread = [], []
    for load in LOADS:
        waits = queued_wait(times=times, service=load * each)
        mean = float(waits.mean())
        of_one = load * load * float(each.mean()) / (2 * (1 - load))
        bursts.append(max(mean / of_one - variation, 0.0))
        quantiles = np.quantile(waits, SHARES)
        spread.append(tuple((quantiles / mean if mean else np.zeros_like(SHARES)).tolist()))
    return Arrivals(
        bursts=tuple(bursts), dispersion=tuple(_dispersion(times)), spread=tuple(spread)
    )


def _dispersion(times: FloatArray) -> list[float]:
    """Variance over mean of the requests in windows of 1, 2, 4, ... mean gaps."""
    gap = (times[-1] - times[0]) / times.size
    found = []
    for power in range(max(int(np.log2(times.size / _FEWEST_WINDOWS)), 1)):
        window = gap * 2.0**power
        places = ((times - times[0]) / window).astype(np.intp)
        counts = np.bincount(places, minlength=int(times.size / 2.0**power))
        found.append(float(counts.var() / counts.mean()))
    return found


def arrivals_of(request: Request) -> Arrivals:
    """How the requests of a question come: as in its trace, by its variation, or at random.

    Raises
    ------
    SpecError
        The trace cannot be read, or the variation is out of range.
    """
    if request.trace is not None:
        return _arrivals(*state_of(Path(request.trace)))
    if request.arrival_variation > _MOST_VARIED:
        raise SpecError(
            f"arrival_variation must be at most {_MOST_VARIED:g}, not "
            f"{request.arrival_variation:g}: it is 1 where requests come at random."
        )
    bursts = float(request.arrival_variation) ** 2
    return Arrivals() if bursts == 1 else Arrivals(bursts=(bursts,), dispersion=(bursts,))


def traffic_defaults(request: Request) -> Mapping[str, str]:
    """Where lengths and the rate come from, by term, as far as a trace or a table has them."""
    if request.trace is not None:
        path = Path(request.trace)
        trace = trace_of(path)
        source, answers = f"{path.name}: {trace.told()}", answers_of("trace", request.trace)
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
