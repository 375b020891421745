"""Every format of logs, found by its lines or named."""

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
from planner.logs.rl_logs import ROLLOUT_TRAINERS
from planner.logs.training_logs import (
    HUGGING_FACE,
    TRAINERS,
    is_state,
    read_state,
    read_trainer,
    read_trainer_log,
    reads_hugging_face,
)


@record()
class Format:
    """One that ``reads`` knows its lines, or its JSON objects, by; ``says`` is how it is told.

    Of several objects in a file the last is read unless ``read`` takes them all.
    """

    name: str
    says: str
    reads: Callable[[Any], bool]
    read: Callable[[Any], LogSummary]
    takes_all: bool = False


_OUT = re.compile(r"OutOfMemoryError|(?:CUDA|HIP) out of memory|RESOURCE_EXHAUSTED: Out of memory")
# What tools call the result in a folder of theirs.
_RESULTS = (
    "profile_export_aiperf.json",
    "profile_export_genai_perf.json",
    "train_results.json",
    "trainer_state.json",
)
_SAYS = {
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
# What prints a table of a benchmark comes before what a server prints below it.
TEXTS = (
    *(
        Format(each.name, _SAYS[each.name], each.reads, partial(read_trainer, trainer=each))
        for each in (*ROLLOUT_TRAINERS, *TRAINERS)
    ),
    Format(HUGGING_FACE, "{'train_runtime': ..., 'train_steps_per_second': ...}",
           reads_hugging_face, read_trainer_log),
    Format(benchmark_results.BENCH, "==== Serving Benchmark Result ====",
           benchmark_results.reads_bench, benchmark_results.read_bench_table),
    Format(benchmark_results.TRTLLM, "= PERFORMANCE OVERVIEW",
           benchmark_results.reads_trtllm, benchmark_results.read_trtllm_table),
    Format(benchmark_results.AIPERF, "Metric,avg,...",
           benchmark_results.reads_aiperf, benchmark_results.read_aiperf_table),
    Format(benchmark_results.LLAMA_BENCH, "| ... | pp512 | ... |",
           benchmark_results.reads_llama_bench, benchmark_results.read_llama_table),
    Format(benchmark_results.SERVER, "prompt eval time = ... ms / ... tokens",
           benchmark_results.reads_server, benchmark_results.read_server),
)  # fmt: skip
FILES = (
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
NAMES = tuple(dict.fromkeys(one.name for one in (*TEXTS, *FILES)))


def read_log(path: Path, name: str | None = None) -> LogSummary:
    """What a log or a result file measured; ``name`` is its format, else its lines tell it.

    Of a folder it is the result that a tool leaves there.
    Raises LaunchError if it cannot be read, no format is of this name, or nothing in it is a
    measurement: the message says what was looked for.
    """
    if name is not None and name not in NAMES:
        raise LaunchError(
            f"Unknown log format {name!r}.{did_you_mean(name, NAMES)} There are {', '.join(NAMES)}."
        )
    log = Log(_file_in(path) if os.path.isdir(path) else path)
    reading = _of_objects(log, name)
    if reading is None:
        known = [one for one in TEXTS if name in (None, one.name)]
        found = set(_found(log, known))
        # The first, in the order above, that any line is of.
        first = next((one for one in known if one.name in found), None)
        reading = first.read(log) if first else None
    ran_out = (reading is None or reading.is_training) and any(
        "ut of memory" in line.text and _OUT.search(line.text) for line in log.lines()
    )
    if reading is None or reading.is_empty:
        if not ran_out:
            raise LaunchError(_nothing(log, name))
        reading = LogSummary(
            format=name or OUT_OF_MEMORY.replace("_", "-"),
            title="a run that ran out of memory",
            is_training=None,
            values={OUT_OF_MEMORY: 1.0},
        )
    elif ran_out:
        reading = replace(reading, notes=(*reading.notes, "the run ran out of memory at the end"))
    if log.cut:
        reading = replace(reading, notes=(*reading.notes, "the end of the file is cut off"))
    return reading


def _file_in(folder: Path) -> Path:
    """The result that a tool left in a folder of its own."""
    found = (path for name in _RESULTS for path in sorted(folder.rglob(name)))
    first = next(found, None)
    if first is None:
        raise LaunchError(
            f"{folder}: is a folder without {' or '.join(_RESULTS)}; give the log itself."
        )
    return first


def _of_objects(log: Log, name: str | None) -> LogSummary | None:
    for known in FILES:
        if name not in (None, known.name):
            continue
        found = [one for one in log.objects if known.reads(one)]
        if not found:
            continue
        if known.takes_all:
            return known.read(found)
        reading = known.read(found[-1])
        if len(found) > 1:
            note = f"the last of {len(found)} whole results in the file is read"
            reading = replace(reading, notes=(*reading.notes, note))
        return reading
    return None


def _found(log: Log, known: list[Format]) -> Iterator[str]:
    missing = list(known)
    for line in log.lines():
        for one in tuple(missing):
            if one.reads(line):
                missing.remove(one)
                yield one.name
                if one is known[0]:
                    return


def _nothing(log: Log, name: str | None) -> str:
    looked = [one for one in (*TEXTS, *FILES) if name in (None, one.name)]
    words = "".join(f"\n  {one.name}: {one.says}" for one in looked)
    cut = " The end of the file is cut off." if log.cut else ""
    return (
        f"{log.path}: no step and no result of a benchmark is in it.{cut} It looked for{words}"
        "\n`planner launch` writes the options that make a framework print them, and the command "
        "of a benchmark."
    )
