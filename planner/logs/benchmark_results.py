"""Results of serving benchmarks: printed tables and result files."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median, pstdev
from typing import TypeGuard

from planner.base.read_files import UncheckedTable
from planner.logs.log_reader import Log, LogLine, LogSummary, parse_count, parse_number

FIRST, TOKEN, LATENCY = "time_to_first_token_s", "time_per_output_token_s", "request_latency_s"
OUTPUT_RATE, TOTAL_RATE, REQUESTS = "output_tokens_per_s", "total_tokens_per_s", "requests_per_s"
_MS = 1e-3
BENCH, TRTLLM, AIPERF = "bench-serving", "trtllm-bench", "aiperf"
_SHARES = (50, 90, 95, 99)
# With so many requests, sums that divide evenly show equal lengths.
_MIN_REQUESTS = 16

# Names in vllm bench serve, sglang.bench_serving and TensorRT-LLM's benchmark_serving.
_LATENCIES = {"ttft": FIRST, "tpot": TOKEN, "e2el": LATENCY, "e2e_latency": LATENCY}
_RATES = {
    "request_throughput": REQUESTS,
    "output_throughput": OUTPUT_RATE,
    "total_token_throughput": TOTAL_RATE,
    "total_throughput": TOTAL_RATE,
}
_PRINTED = {
    "successful requests": "completed",
    "benchmark duration (s)": "duration",
    "total input tokens": "total_input_tokens",
    "total generated tokens": "total_output_tokens",
    "request throughput (req/s)": "request_throughput",
    "output token throughput (tok/s)": "output_throughput",
    "total token throughput (tok/s)": "total_token_throughput",
    "maximum request concurrency": "max_concurrency",
    "max request concurrency": "max_concurrency",
    "request rate configured (rps)": "request_rate",
    "traffic request rate": "request_rate",
    "failed requests": "failed",
}
_PRINTED_LATENCY = re.compile(r"(?i)(mean|median|p\d+) (ttft|tpot|e2el|e2e latency) \(ms\)")
_ROW = re.compile(r"^(.+?):\s+(-?[\d.]+|inf)(?:\s+RPS\.?)?\s*$")
_ANNOUNCED = ("traffic request rate", "maximum request concurrency", "max request concurrency")
"""Rows that vLLM also prints before a run; older releases print the rate nowhere else."""
_BENCH_TITLE = "Serving Benchmark Result"


def is_bench_line(line: LogLine) -> bool:
    """Whether a line is the title of the table that a benchmark of serving prints."""
    return _BENCH_TITLE in line.text


def read_bench_table(log: Log) -> LogSummary:
    """Read the last result table in a log of ``bench serve``."""
    table: dict[str, object] = {}
    announced: dict[str, object] = {}
    tables = 0
    for line in log.lines():
        if is_bench_line(line):
            table, announced, tables = announced, {}, tables + 1
            continue
        row = _ROW.match(line.text.strip())
        if row is None:
            continue
        name = row[1].strip().lower()
        if name == _ANNOUNCED[0] or (name in _ANNOUNCED and not tables):
            announced[_PRINTED[name]] = parse_number(row[2]) or 0.0
        if not tables:
            continue
        if latency := _PRINTED_LATENCY.fullmatch(name):
            key = f"{latency[1].lower()}_{latency[2].lower().replace(' ', '_')}_ms"
        else:
            key = _PRINTED.get(name, "")
        if key:
            table[key] = parse_number(row[2]) or 0.0
    summary = read_bench(table)
    last = (f"the last of {tables} tables is read",) if tables > 1 else ()
    return replace(summary, notes=(*summary.notes, *last))


def is_bench(value: object) -> bool:
    """Whether a JSON value is a result of ``bench serve`` or a compatible benchmark."""
    return isinstance(value, Mapping) and "mean_ttft_ms" in value and "request_throughput" in value


def read_bench(report: UncheckedTable) -> LogSummary:
    """Read a JSON result of ``vllm bench serve``, ``sglang.bench_serving`` or alike."""
    numbers = {name: float(value) for name, value in report.items() if _is_number(value)}
    values = {name: numbers[key] for key, name in _RATES.items() if numbers.get(key)}
    percentiles = {}
    for key, name in _LATENCIES.items():
        if mean := numbers.get(f"mean_{key}_ms"):
            values[name] = mean * _MS
        for share in _SHARES:
            key_of = f"median_{key}_ms" if share == 50 else f"p{share}_{key}_ms"
            if value := numbers.get(key_of, numbers.get(f"p{share}_{key}_ms")):
                percentiles[name, share] = value * _MS
    return LogSummary(
        format=BENCH,
        title="a benchmark of serving",
        is_training=False,
        values=values,
        percentiles=percentiles,
        facts=_facts(numbers) | _spread(report, numbers),
        model=str(report.get("model_id") or ""),
        notes=tuple(_notes(numbers)),
    )


def _facts(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the number of requests, mean tokens, concurrency and rate [1/s] of a benchmark."""
    facts = {}
    completed = numbers.get("completed")
    if completed:
        facts["num_requests"] = completed
        for key, name in (
            ("total_input_tokens", "input_tokens"),
            ("total_output_tokens", "output_tokens"),
        ):
            if total := numbers.get(key):
                facts[name] = total / completed
    for key, name in (("max_concurrency", "concurrency"), ("request_rate", "request_rate")):
        value = numbers.get(key)
        if value and value != float("inf"):
            facts[name] = value
    if not {"concurrency", "request_rate"} & facts.keys():
        facts["all_at_once"] = 1.0
    return facts


def _spread(report: UncheckedTable, numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the variation of prompt and answer lengths; without lengths, whether all are equal.

    The sum of random lengths is rarely a multiple of the number of requests.
    """
    lengths_by_kind = {kind: _lengths(report.get(f"{kind}_lens")) for kind in ("input", "output")}
    if all(lengths_by_kind.values()):
        varied = {
            f"{kind}_variation": pstdev(lengths) / fmean(lengths)
            for kind, lengths in lengths_by_kind.items()
        }
        return {**varied, "equal_lengths": float(not any(varied.values()))}
    totals = {kind: numbers.get(f"total_{kind}_tokens", 0.0) for kind in lengths_by_kind}
    number = numbers.get("completed", 0.0)
    if number < _MIN_REQUESTS or not all(totals.values()):
        return {}
    equal = [kind for kind, total in totals.items() if not total % number]
    if len(equal) == len(totals):
        return {"equal_lengths": 1.0}
    return {f"{kind}_variation": 0.0 for kind in equal}


def _lengths(value: object) -> list[float]:
    """Lengths of the requests that succeeded; empty if the value is no list of numbers."""
    if not isinstance(value, list) or not all(_is_number(length) for length in value):
        return []
    return [float(length) for length in value if length > 0]


def _notes(numbers: Mapping[str, float]) -> Iterator[str]:
    """Yield notes on failed requests, and on rates that contradict total over duration."""
    if failed := numbers.get("failed"):
        yield f"{failed:.0f} requests failed: the others had more of the engine's capacity"
    duration = numbers.get("duration")
    totals = {"request_throughput": "completed", "output_throughput": "total_output_tokens"}
    for rate, total in totals.items():
        if not (duration and numbers.get(rate) and numbers.get(total)):
            continue
        expected = numbers[total] / duration
        if abs(numbers[rate] / expected - 1) > 0.02:
            yield (
                f"the log contradicts itself: {rate} is {numbers[rate]:.4g}, but {total} over "
                f"its duration is {expected:.4g} per second"
            )


# Printed label of trtllm-bench, table and key in its --report_json file, our name, and unit.
_TRTLLM_VALUES = (
    ("request throughput (req/sec)", "performance", "request_throughput_req_s", REQUESTS, 1.0),
    ("total output throughput (tokens/sec)", "performance", "system_output_throughput_tok_s",
     OUTPUT_RATE, 1.0),
    ("total token throughput (tokens/sec)", "performance", "system_total_throughput_tok_s",
     TOTAL_RATE, 1.0),
    ("average request latency (ms)", "performance", "avg_request_latency_ms", LATENCY, _MS),
    ("average time-to-first-token [ttft] (ms)", "streaming_metrics", "avg_ttft_ms", FIRST, _MS),
    ("average time-per-output-token [tpot] (ms)", "streaming_metrics", "avg_tpot_ms", TOKEN, _MS),
)  # fmt: skip
_TRTLLM_FACTS = (
    ("number of requests", "request_info", "num_requests", "num_requests", 1.0),
    ("number of concurrent requests", "request_info", "avg_num_concurrent_requests",
     "mean_concurrency", 1.0),
    ("average input length (tokens)", "request_info", "avg_input_length", "input_tokens", 1.0),
    ("average output length (tokens)", "request_info", "avg_output_length", "output_tokens", 1.0),
    ("tp size", "world_info", "tp_size", "tensor_parallel", 1.0),
    ("pp size", "world_info", "pp_size", "pipeline_parallel", 1.0),
    ("ep size", "world_info", "ep_size", "expert_parallel", 1.0),
)  # fmt: skip
_TRTLLM_SHARE = re.compile(r"\[(TTFT|TPOT|Latency)\] P(\d+)\s*$")
_TRTLLM_NAMES = {"TTFT": FIRST, "TPOT": TOKEN, "Latency": LATENCY}


def is_trtllm_line(line: LogLine) -> bool:
    """Whether a line is of the overview that trtllm-bench prints."""
    return "PERFORMANCE OVERVIEW" in line.text


def read_trtllm_table(log: Log) -> LogSummary:
    """Read the overview that ``trtllm-bench`` prints in a log."""
    printed, percentiles = {}, {}
    for line in log.lines():
        row = _ROW.match(line.text.partition("[TRT-LLM] [I] ")[2] or line.text)
        if row is None:
            continue
        name, number = row[1].strip(), parse_number(row[2]) or 0.0
        printed[name.lower()] = number
        if share := _TRTLLM_SHARE.match(name):
            percentiles[_TRTLLM_NAMES[share[1]], int(share[2])] = number * _MS
    values, facts = (
        {name: printed[row] * unit for row, _, _, name, unit in rows if row in printed}
        for rows in (_TRTLLM_VALUES, _TRTLLM_FACTS)
    )
    return _trtllm_summary(values, facts, percentiles)


def is_trtllm(value: object) -> bool:
    """Whether a JSON value is a report of trtllm-bench."""
    performance = value.get("performance") if isinstance(value, Mapping) else None
    return isinstance(performance, Mapping) and "request_throughput_req_s" in performance


def read_trtllm(report: UncheckedTable) -> LogSummary:
    """Read a report that ``trtllm-bench --report_json`` wrote."""
    performance, streaming = _table(report, "performance"), _table(report, "streaming_metrics")
    values, facts = (
        {
            name: float(value) * unit
            for _, table, key, name, unit in rows
            if _is_number(value := _table(report, table).get(key))
        }
        for rows in (_TRTLLM_VALUES, _TRTLLM_FACTS)
    )
    shares = ((FIRST, _table(streaming, "ttft_percentiles")),
              (TOKEN, _table(streaming, "tpot_percentiles")),
              (LATENCY, _table(performance, "request_latency_percentiles_ms")))  # fmt: skip
    percentiles = {
        (name, share): float(value) * _MS
        for name, table in shares
        for share in _SHARES
        if _is_number(value := table.get(f"p{share}"))
    }
    summary = _trtllm_summary(values, facts, percentiles)
    return replace(summary, model=str(_table(report, "engine").get("model") or ""))


def _trtllm_summary(
    values: Mapping[str, float],
    facts: Mapping[str, float],
    percentiles: Mapping[tuple[str, int], float],
) -> LogSummary:
    """Return the summary of a trtllm-bench log, in which all requests start at once."""
    return LogSummary(
        format=TRTLLM,
        title="trtllm-bench",
        is_training=False,
        values=values,
        facts={**facts, "all_at_once": 1.0},
        percentiles=percentiles,
    )


_AIPERF = {
    "time_to_first_token": (FIRST, True),
    "inter_token_latency": (TOKEN, True),
    "request_latency": (LATENCY, True),
    "output_token_throughput": (OUTPUT_RATE, False),
    "total_token_throughput": (TOTAL_RATE, False),
    "request_throughput": (REQUESTS, False),
}
_SECONDS = {"ns": 1e-9, "us": 1e-6, "s": 1.0, "sec": 1.0}
_AIPERF_FACTS = {
    "input_sequence_length": "input_tokens",
    "output_sequence_length": "output_tokens",
    "request_count": "num_requests",
}


def is_aiperf(value: object) -> bool:
    """Whether a JSON value is a profile that genai-perf or aiperf exported."""
    throughput = value.get("request_throughput") if isinstance(value, Mapping) else None
    return isinstance(throughput, Mapping) and "avg" in throughput


def read_aiperf(profile: UncheckedTable) -> LogSummary:
    """Read a profile that ``genai-perf`` or ``aiperf`` exported as JSON."""
    values, facts, percentiles = {}, {}, {}
    for key, (name, is_time) in _AIPERF.items():
        table = _table(profile, key)
        mean = table.get("avg")
        if not _is_number(mean):
            continue
        unit = _SECONDS.get(str(table.get("unit", "ms")).lower(), _MS) if is_time else 1.0
        values[name] = float(mean) * unit
        for share in _SHARES:
            if is_time and _is_number(value := table.get(f"p{share}")):
                percentiles[name, share] = float(value) * unit
    for key, name in _AIPERF_FACTS.items():
        if _is_number(value := _table(profile, key).get("avg")):
            facts[name] = float(value)
    for name in ("concurrency", "request_rate"):
        if number := next(_find_numbers(profile.get("input_config"), name), None):
            facts[name] = number
    return LogSummary(
        format=AIPERF,
        title="aiperf or genai-perf",
        is_training=False,
        values=values,
        facts=facts,
        percentiles=percentiles,
    )


def is_aiperf_line(line: LogLine) -> bool:
    """Whether a line is the header of a table that genai-perf or aiperf exported as CSV."""
    return line.text.startswith("Metric,avg,")


def read_aiperf_table(log: Log) -> LogSummary:
    """Read a profile that ``genai-perf`` or ``aiperf`` exported as CSV."""
    profile: dict[str, dict[str, object]] = {}
    header: Sequence[str] = ()
    for cells in csv.reader(line.text for line in log.lines()):
        if cells and cells[0] == "Metric":
            header = ["avg" if name == "Value" else name for name in cells[1:]]
        elif cells and header:
            name, _, unit = cells[0].partition(" (")
            key = name.strip().lower().replace(" ", "_")
            numbers = (parse_number(cell.replace(",", "")) for cell in cells[1:])
            row = {name: n for name, n in zip(header, numbers, strict=False) if n is not None}
            profile[key] = {**row, "unit": unit.rstrip(")")}
    return read_aiperf(profile)


_MAX_DEPTH = 20


def _find_numbers(table: object, name: str, depth: int = 0) -> Iterator[float]:
    """Yield the positive numbers under a key, also in nested tables."""
    if not isinstance(table, Mapping):
        return
    for key, value in table.items():
        if key == name and _is_number(value) and value > 0:
            yield float(value)
        if depth < _MAX_DEPTH:
            yield from _find_numbers(value, name, depth + 1)


def _table(report: UncheckedTable, name: str) -> UncheckedTable:
    table = report.get(name)
    return table if isinstance(table, Mapping) else {}


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and parse_number(value) is not None


LLAMA_BENCH, SERVER = "llama-bench", "llama-server"
_LLAMA_ROW = re.compile(r"\|\s*(pp|tg)(\d+)\s*\|\s*([\d.]+)(?:\s*[^\d|]+[\d.]+)?\s*\|")
_EVAL = re.compile(r"(prompt )?eval time\s*=\s*([\d.]+) ms /\s*(\d+) (?:tokens|runs)")
_LLAMA_MS = 1e-3
Speed = tuple[str, int, float]
"""``pp`` or ``tg``, for prompts and answers; tokens; tokens per second."""


def is_llama_bench_line(line: LogLine) -> bool:
    """Whether a line is a row of the table that llama-bench prints."""
    return _LLAMA_ROW.search(line.text) is not None


def read_llama_table(log: Log) -> LogSummary:
    """Read the rows that llama-bench prints in a log."""
    matches = (_LLAMA_ROW.search(line.text) for line in log.lines())
    return _llama_bench_summary(
        (row[1], parse_count(row[2]), parse_number(row[3]) or 0.0) for row in matches if row
    )


def is_llama_bench(value: object) -> bool:
    """Whether a JSON value is one result of llama-bench, or a list of all results of a run."""
    rows = value if isinstance(value, list) else [value]
    return bool(rows) and all(isinstance(row, Mapping) and "avg_ts" in row for row in rows)


def read_llama_bench(objects: Iterable[object]) -> LogSummary:
    """The results that ``llama-bench -o json`` or ``-o jsonl`` wrote."""
    return _llama_bench_summary(_speeds(objects))


_LLAMA_BENCH_KEYS = ("n_prompt", "n_gen", "avg_ts")


def _speeds(objects: Iterable[object]) -> Iterator[Speed]:
    """Yield kind (``pp``: prompt, ``tg``: answer), tokens and tokens/s of llama-bench results."""
    for result in objects:
        for row in result if isinstance(result, list) else [result]:
            if not isinstance(row, Mapping):
                continue
            prompt, answer, speed = (
                parse_number(row.get(name)) or 0.0 for name in _LLAMA_BENCH_KEYS
            )
            # A result with both prompt and answer gives the time of neither.
            if (prompt == 0) != (answer == 0):
                yield ("pp" if prompt else "tg"), int(prompt or answer), speed


def _llama_bench_summary(speeds: Iterable[Speed]) -> LogSummary:
    """Summarize the longest prompt and the longest answer, at batch size 1."""
    values: dict[str, float] = {}
    facts, notes = {"concurrency": 1.0}, []
    by_kind: dict[str, list[Speed]] = {"pp": [], "tg": []}
    for speed in speeds:
        if speed[1] and speed[2] > 0:
            by_kind[speed[0]].append(speed)
    for kind, name in (("pp", "input_tokens"), ("tg", "output_tokens")):
        if not by_kind[kind]:
            continue
        _, tokens, rate = max(by_kind[kind], key=lambda speed: speed[1])
        facts[name] = tokens
        values |= {FIRST: tokens / rate} if kind == "pp" else {TOKEN: 1 / rate}
        others = {speed[1] for speed in by_kind[kind]} - {tokens}
        if others:
            labels = ", ".join(f"{kind}{other}" for other in sorted(others))
            notes.append(f"{kind}{tokens} is compared; {labels} are in the log as well")
    return LogSummary(
        format=LLAMA_BENCH,
        title="llama-bench",
        is_training=False,
        values=values,
        facts=facts,
        notes=tuple(notes),
    )


def is_server_line(line: LogLine) -> bool:
    """Whether a line is a timing that llama-server prints after a request."""
    return _EVAL.search(line.text) is not None


def read_server(log: Log) -> LogSummary:
    """Read the timings of requests in a log of llama-server; returns their medians."""
    prompts: list[tuple[float, int]] = []
    answers: list[tuple[float, int]] = []
    for line in log.lines():
        if match := _EVAL.search(line.text):
            timing = (parse_number(match[2]) or 0.0) * _LLAMA_MS, parse_count(match[3])
            if timing[0] > 0 and timing[1] > 0:
                (prompts if match[1] else answers).append(timing)
    values, facts = {}, {}
    if prompts:
        values[FIRST] = median(seconds for seconds, _ in prompts)
        facts["input_tokens"] = median(tokens for _, tokens in prompts)
    if answers:
        values[TOKEN] = median(seconds / tokens for seconds, tokens in answers)
        facts["output_tokens"] = median(tokens for _, tokens in answers)
    return LogSummary(
        format=SERVER,
        title="llama-server",
        is_training=False,
        values=values,
        facts=facts,
        notes=(f"medians of {max(len(prompts), len(answers))} requests",) if values else (),
    )
