"""Logs of Hugging Face's Trainer and what is built on it: its lines, its bar, its state file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.logs.reading import SAMPLES, Reading, Step, plain_count, plain_number
from planner.logs.source import Line, Log
from planner.logs.trainers import event_of

NAME = "trainer"
TITLE = "Hugging Face's Trainer (transformers, TRL, axolotl)"
RUNTIME, SAMPLES_RATE, STEPS_RATE = (
    "train_runtime",
    "train_samples_per_second",
    "train_steps_per_second",
)
# Version 5 prints numbers as text.
_PAIR = re.compile(r"['\"]([\w/ ()]+)['\"]: ['\"]?(-?[\d.]+(?:e[+-]?\d+)?)['\"]?(?=[,}])")
_BAR = re.compile(r"\b(\d+)/(\d+) \[(?:(\d+):)?(\d+):(\d+)<")
_MEMORY = {
    "memory/max_allocated (GiB)": "allocated",
    "memory/max_mem_allocated(gib)": "allocated",
    "memory/device_reserved (GiB)": "reserved",
    "memory/device_mem_reserved(gib)": "reserved",
}
_WARMUP_STEPS = 3
# The bar counts whole seconds: over fewer it tells less than the mean of the whole run.
_LEAST_SECONDS = 30
_FEWEST_STEPS = 5


def reads(line: Line) -> bool:
    """Whether a line is the summary that ends a training."""
    return RUNTIME in line.text and _pairs(line.text).keys() >= {RUNTIME}


def read_trainer_log(log: Log) -> Reading:
    """The rates that the Trainer prints at its end, and the steady state that its bar tells."""
    summary: dict[str, float] = {}
    memory: dict[str, float] = {}
    bars: list[tuple[int, int]] = []
    events = 0
    for line in log.lines():
        if bar := _BAR.search(line.text):
            hours, minutes, seconds = (plain_count(bar[place]) for place in (3, 4, 5))
            bars.append((plain_count(bar[1]), 3600 * hours + 60 * minutes + seconds))
        if "{" not in line.text:
            continue
        pairs = _pairs(line.text)
        events += bool(event_of(line.text)) and RUNTIME not in pairs
        for name, kind in _MEMORY.items():
            if name in pairs:
                memory[kind] = max(memory.get(kind, 0.0), pairs[name])
        if _is_summary(pairs):
            summary = pairs
    return _reading(summary, memory, bars, events)


def is_state(found: Any) -> bool:
    """Whether an object is a ``trainer_state.json``, or results that the Trainer saved."""
    return isinstance(found, Mapping) and ("log_history" in found or RUNTIME in found)


def read_state(found: Mapping[str, Any]) -> Reading:
    """What a ``trainer_state.json``, a ``train_results.json`` or an ``all_results.json`` tells.

    With ``include_num_input_tokens_seen`` each entry has the time so far: steps follow from it.
    """
    listed = found.get("log_history", [found])
    history = listed if isinstance(listed, list) else []
    summary: dict[str, float] = {}
    memory: dict[str, float] = {}
    events = 0
    entries = [
        {name: float(value) for name, value in entry.items() if _is_number(value)}
        for entry in history
        if isinstance(entry, Mapping)
    ]
    for numbers in entries:
        events += "eval_loss" in numbers and RUNTIME not in numbers
        for name, kind in _MEMORY.items():
            if name in numbers:
                memory[kind] = max(memory.get(kind, 0.0), numbers[name])
        if _is_summary(numbers):
            summary = numbers
    steps = tuple(_steps(entries))
    reading = _reading(summary, memory, [], events)
    return replace(reading, steps=steps, values={}, notes=()) if len(steps) > 1 else reading


def _is_summary(numbers: Mapping[str, float]) -> bool:
    """Whether numbers are of the whole training, not of the steps so far."""
    return bool({STEPS_RATE, SAMPLES_RATE} & numbers.keys())


def _steps(entries: Iterable[Mapping[str, float]]) -> Iterator[Step]:
    """The mean time of the steps between entries that tell the time so far."""
    before: tuple[float, float] | None = None
    after = ""
    for numbers in entries:
        if "eval_loss" in numbers:
            after = "an evaluation"
        if RUNTIME not in numbers or "step" not in numbers or _is_summary(numbers):
            continue
        number, seconds = numbers["step"], numbers[RUNTIME]
        if before is not None and number > before[0] and seconds > before[1]:
            value = (seconds - before[1]) / (number - before[0])
            yield Step(number=int(number), stream="", value=value, after=after)
            after = ""
        before = number, seconds


def _reading(
    summary: Mapping[str, float],
    memory: Mapping[str, float],
    bars: list[tuple[int, int]],
    events: int,
) -> Reading:
    values, notes = {}, []
    steps, samples = summary.get(STEPS_RATE), summary.get(SAMPLES_RATE)
    seconds, between = _bar_time(bars)
    if seconds:
        values["step_time_s"] = seconds
        notes.append(f"the step time is that of steps {between} by the progress bar")
    elif steps:
        values["step_time_s"] = 1 / steps
        notes.append(
            "the step time is the mean of the whole run: warm-up, evaluations and checkpoints "
            "are in it, which a progress bar in the log would leave out"
        )
    elif samples:
        values[SAMPLES] = samples
    if events:
        notes.append(f"{events} evaluations are in the log")
    facts = {}
    if steps and samples:
        # Both are rounded to three places.
        facts["global_batch_size"] = samples / steps
        facts["global_batch_size_within"] = 0.0006 / steps + 0.0006 / samples
    return Reading(
        format=NAME,
        title=TITLE,
        is_training=True,
        values=values,
        memory=memory,
        facts=facts,
        notes=tuple(notes),
    )


def _bar_time(bars: list[tuple[int, int]]) -> tuple[float, str]:
    """Seconds of a step after the first few, and which steps, if the bar ran long enough."""
    longest: list[tuple[int, int]] = []
    for run in _runs(bars):
        longest = max(longest, run, key=len)
    warm = [bar for bar in longest if bar[0] >= _WARMUP_STEPS]
    if len(warm) < 2:
        return 0.0, ""
    (first, start), (last, end) = warm[0], warm[-1]
    if last - first < _FEWEST_STEPS or end - start < _LEAST_SECONDS:
        return 0.0, ""
    return (end - start) / (last - first), f"{first} to {last}"


def _runs(bars: list[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Bars that go on from one another: those of training, of evaluations, of shards read."""
    run: list[tuple[int, int]] = []
    for bar in bars:
        if run and (bar[0] < run[-1][0] or bar[1] < run[-1][1]):
            yield run
            run = []
        run.append(bar)
    yield run


def _pairs(line: str) -> dict[str, float]:
    found = {}
    for name, text in _PAIR.findall(line):
        if (value := plain_number(text)) is not None:
            found[name] = value
    return found


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and plain_number(value) is not None
