"""Reads a log in any supported format, which the user names or the lines show."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from planner.base.records import record
from planner.errors import LaunchError, did_you_mean
from planner.logs import benchmark_results
from planner.logs.log_reader import OUT_OF_MEMORY, Log, LogSummary
from planner.logs.training_logs import (
    HUGGING_FACE,
    ROLLOUT_TRAINERS,
    TRAINERS,
    is_hugging_face_line,
    is_state,
    read_state,
    read_trainer,
    read_trainer_log,
)


@record()
class Format:
    """A log format: a test for its lines or JSON objects, an example line, and its reader.

    Of several objects in a file the last is read, unless ``takes_all``.
    """

    name: str
    example: str
    matches: Callable[[Any], bool]
    read: Callable[[Any], LogSummary]
    takes_all: bool = False


_OUT_OF_MEMORY_MESSAGE = re.compile(
    r"OutOfMemoryError|(?:CUDA|HIP) out of memory|RESOURCE_EXHAUSTED: Out of memory"
)
# Names of the result files that tools write into their output folder.
_RESULTS = (
    "profile_export_aiperf.json",
    "profile_export_genai_perf.json",
    "train_results.json",
    "trainer_state.json",
)
_EXAMPLE_LINES = {
    "verl": "step:... - timing_s/gen:... - timing_s/step:...",
    "nemo-rl": "Total step time: ...s",
    "openrlhf": "Global step ...: {... 'timing/step_total': ...}",
    "slime": "perf ...: {... 'perf/step_time': ...}",
    "trl": "{... 'completions/mean_length': ... 'step_time': ...}",
    "megatron": "elapsed time per iteration (ms): ...",
    "megatron-bridge": "Step Time : ...s",
    "nemo": "train_step_timing in s: ...",
    "torchtitan": "step: ... memory: ...GiB(...) tps: ...",
    "deepspeed": "CurrSamplesPerSec=...",
    "deepspeed-pipeline": "iter time (s): ...",
    "maxtext": "completed step: ..., seconds: ...",
}
# Tables of benchmarks come before server lines: a log may have both.
LINE_FORMATS = (
    *(
        Format(log.name, _EXAMPLE_LINES[log.name], log.matches, partial(read_trainer, trainer=log))
        for log in (*ROLLOUT_TRAINERS, *TRAINERS)
    ),
    Format(HUGGING_FACE, "{'train_runtime': ..., 'train_steps_per_second': ...}",
           is_hugging_face_line, read_trainer_log),
    Format(benchmark_results.BENCH, "==== Serving Benchmark Result ====",
           benchmark_results.is_bench_line, benchmark_results.read_bench_table),
    Format(benchmark_results.TRTLLM, "= PERFORMANCE OVERVIEW",
           benchmark_results.is_trtllm_line, benchmark_results.read_trtllm_table),
    Format(benchmark_results.AIPERF, "Metric,avg,...",
           benchmark_results.is_aiperf_line, benchmark_results.read_aiperf_table),
    Format(benchmark_results.LLAMA_BENCH, "| ... | pp512 | ... |",
           benchmark_results.is_llama_bench_line, benchmark_results.read_llama_table),
    Format(benchmark_results.SERVER, "prompt eval time = ... ms / ... tokens",
           benchmark_results.is_server_line, benchmark_results.read_server),
)  # fmt: skip
OBJECT_FORMATS = (
    Format(HUGGING_FACE, "log_history or train_runtime", is_state, read_state),
    Format(benchmark_results.BENCH, "mean_ttft_ms and request_throughput",
           benchmark_results.is_bench, benchmark_results.read_bench),
    Format(benchmark_results.TRTLLM, "performance.request_throughput_req_s",
           benchmark_results.is_trtllm, benchmark_results.read_trtllm),
    Format(benchmark_results.AIPERF, "request_throughput.avg",
           benchmark_results.is_aiperf, benchmark_results.read_aiperf),
    Format(benchmark_results.LLAMA_BENCH, "avg_ts",
           benchmark_results.is_llama_bench, benchmark_results.read_llama_bench, takes_all=True),
)  # fmt: skip
NAMES = tuple(dict.fromkeys(log_format.name for log_format in (*LINE_FORMATS, *OBJECT_FORMATS)))


def read_log(path: Path, name: str | None = None) -> LogSummary:
    """Read the measurements in a log or result file; ``name`` None: the lines show the format.

    If ``path`` is a folder, the result file of a tool in the folder is read.
    Raises LaunchError if the file cannot be read, the format is unknown, or no measurement is
    found; the message lists the lines that were looked for.
    """
    if name is not None and name not in NAMES:
        raise LaunchError(
            f"Unknown log format {name!r}.{did_you_mean(name, NAMES)} There are {', '.join(NAMES)}."
        )
    log = Log(_find_result_file(path) if os.path.isdir(path) else path)
    summary = _read_objects(log, name)
    if summary is None:
        formats = [log_format for log_format in LINE_FORMATS if name in (None, log_format.name)]
        matching = set(_matching_formats(log, formats))
        # The first format, in the order above, that matches any line.
        first = next((log_format for log_format in formats if log_format.name in matching), None)
        summary = first.read(log) if first else None
    is_out_of_memory = (summary is None or summary.is_training) and any(
        "ut of memory" in line.text and _OUT_OF_MEMORY_MESSAGE.search(line.text)
        for line in log.lines()
    )
    if summary is None or summary.is_empty:
        if not is_out_of_memory:
            raise LaunchError(_no_measurement_message(log, name))
        summary = LogSummary(
            format=name or OUT_OF_MEMORY.replace("_", "-"),
            title="a run that ran out of memory",
            is_training=None,
            values={OUT_OF_MEMORY: 1.0},
        )
    elif is_out_of_memory:
        summary = replace(summary, notes=(*summary.notes, "the run ran out of memory at the end"))
    if log.is_cut_off:
        summary = replace(summary, notes=(*summary.notes, "the end of the file is cut off"))
    return summary


def _find_result_file(folder: Path) -> Path:
    """Return the result file that a tool wrote into a folder; LaunchError if there is none."""
    paths = (path for name in _RESULTS for path in sorted(folder.rglob(name)))
    first = next(paths, None)
    if first is None:
        raise LaunchError(
            f"{folder}: the folder has no {' or '.join(_RESULTS)}; give the log itself."
        )
    return first


def _read_objects(log: Log, name: str | None) -> LogSummary | None:
    """Read the JSON results of a log in the first format that matches; None: no format matches."""
    for log_format in OBJECT_FORMATS:
        if name not in (None, log_format.name):
            continue
        values = [value for value in log.objects if log_format.matches(value)]
        if not values:
            continue
        if log_format.takes_all:
            return log_format.read(values)
        summary = log_format.read(values[-1])
        if len(values) > 1:
            note = f"the last of {len(values)} whole results in the file is read"
            summary = replace(summary, notes=(*summary.notes, note))
        return summary
    return None


def _matching_formats(log: Log, formats: list[Format]) -> Iterator[str]:
    """Yield the name of each format with a matching line, until the first format matches."""
    missing = list(formats)
    for line in log.lines():
        for log_format in tuple(missing):
            if log_format.matches(line):
                missing.remove(log_format)
                yield log_format.name
                if log_format is formats[0]:
                    return


def _no_measurement_message(log: Log, name: str | None) -> str:
    """Return the error text for a log without step or result, with examples of known lines."""
    formats = [
        log_format
        for log_format in (*LINE_FORMATS, *OBJECT_FORMATS)
        if name in (None, log_format.name)
    ]
    examples = "".join(f"\n  {log_format.name}: {log_format.example}" for log_format in formats)
    cut_note = " The end of the file is cut off." if log.is_cut_off else ""
    return (
        f"{log.path}: no training step and no benchmark result found.{cut_note} Looked "
        f"for{examples}"
        "\n`planner launch` writes the options that make a framework print steps, and a benchmark "
        "command."
    )
