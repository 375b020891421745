"""Logs of llama.cpp: the tables and files of llama-bench, the timings of llama-server."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from statistics import median
from typing import Any

from planner.logs.reading import Line, Log, Reading, plain_count, plain_number
from planner.logs.serving import FIRST, TOKEN

BENCH, SERVER = "llama-bench", "llama-server"
_ROW = re.compile(r"\|\s*(pp|tg)(\d+)\s*\|\s*([\d.]+)(?:\s*[^\d|]+[\d.]+)?\s*\|")
_EVAL = re.compile(r"(prompt )?eval time\s*=\s*([\d.]+) ms /\s*(\d+) (?:tokens|runs)")
_MS = 1e-3
Speed = tuple[str, int, float]
"""``pp`` or ``tg``, for prompts and answers; tokens; tokens per second."""


def reads_bench(line: Line) -> bool:
    """Whether a line is a row of the table that llama-bench prints."""
    return _ROW.search(line.text) is not None


def read_bench_table(log: Log) -> Reading:
    """The rows of llama-bench in a log."""
    found = (_ROW.search(line.text) for line in log.lines())
    return _bench(
        (row[1], plain_count(row[2]), plain_number(row[3]) or 0.0) for row in found if row
    )


def is_bench(found: Any) -> bool:
    """Whether an object is a result of llama-bench, or all results of one run."""
    rows = found if isinstance(found, list) else [found]
    return bool(rows) and all(isinstance(row, Mapping) and "avg_ts" in row for row in rows)


def read_bench(objects: Iterable[Any]) -> Reading:
    """The results that ``llama-bench -o json`` or ``-o jsonl`` wrote."""
    return _bench(_speeds(objects))


_SAID = ("n_prompt", "n_gen", "avg_ts")


def _speeds(objects: Iterable[Any]) -> Iterator[Speed]:
    for found in objects:
        for row in found if isinstance(found, list) else [found]:
            prompt, answer, speed = (plain_number(row.get(name)) or 0.0 for name in _SAID)
            # One of both is a mixture that neither time can be taken from.
            if (prompt == 0) != (answer == 0):
                yield ("pp" if prompt else "tg"), int(prompt or answer), speed


def _bench(speeds: Iterable[Speed]) -> Reading:
    """The longest prompt and answer: the batch of one that they are parts of."""
    values: dict[str, float] = {}
    facts, notes = {"concurrency": 1.0}, []
    of: dict[str, list[Speed]] = {"pp": [], "tg": []}
    for speed in speeds:
        if speed[1] and speed[2] > 0:
            of[speed[0]].append(speed)
    for kind, name in (("pp", "input_tokens"), ("tg", "output_tokens")):
        if not of[kind]:
            continue
        _, tokens, rate = max(of[kind], key=lambda speed: speed[1])
        facts[name] = tokens
        values |= {FIRST: tokens / rate} if kind == "pp" else {TOKEN: 1 / rate}
        others = {speed[1] for speed in of[kind]} - {tokens}
        if others:
            words = ", ".join(f"{kind}{other}" for other in sorted(others))
            notes.append(f"{kind}{tokens} is compared; {words} are in the log, too")
    return Reading(
        format=BENCH,
        title="llama-bench",
        is_training=False,
        values=values,
        facts=facts,
        notes=tuple(notes),
    )


def reads_server(line: Line) -> bool:
    """Whether a line is a timing that llama-server prints after a request."""
    return _EVAL.search(line.text) is not None


def read_server(log: Log) -> Reading:
    """The timings of the requests in a log of llama-server: medians over them."""
    prompts: list[tuple[float, int]] = []
    answers: list[tuple[float, int]] = []
    for line in log.lines():
        if found := _EVAL.search(line.text):
            timing = (plain_number(found[2]) or 0.0) * _MS, plain_count(found[3])
            if timing[0] > 0 and timing[1] > 0:
                (prompts if found[1] else answers).append(timing)
    values, facts = {}, {}
    if prompts:
        values[FIRST] = median(seconds for seconds, _ in prompts)
        facts["input_tokens"] = median(tokens for _, tokens in prompts)
    if answers:
        values[TOKEN] = median(seconds / tokens for seconds, tokens in answers)
        facts["output_tokens"] = median(tokens for _, tokens in answers)
    return Reading(
        format=SERVER,
        title="llama-server",
        is_training=False,
        values=values,
        facts=facts,
        notes=(f"medians of {max(len(prompts), len(answers))} requests",) if values else (),
    )
