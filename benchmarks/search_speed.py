"""How many configurations per second: planner against llm-analysis, in one run on one core.

    pip install '.[benchmark]' && python benchmarks/search_speed.py

Prints the median of several runs of each, interleaved, and their ratio, in CPU seconds; peak
memory of planner's process over spaces of two sizes; and cold starts of the command line, relative
to importing its libraries. Timings depend on the machine: quote the ratios.
"""

from __future__ import annotations

import itertools
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

SPACE = Path(__file__).with_name("wide.toml")
REPEATS = 5
COLD = 7  # cold starts of each command


def planner_rates(num_gpus: tuple[int, ...]) -> Callable[[], tuple[float, float]]:
    """Configurations per second through enumeration, rules, memory, time and Pareto front.

    All that are counted, and those of them that break no rule, so that they are predicted.
    """
    import planner

    def run() -> tuple[float, float]:
        started = time.process_time()
        result = planner.search(model="llama-65b", num_gpus=num_gpus, space=str(SPACE))
        seconds = time.process_time() - started
        counted, predicted = result.configurations_evaluated, result.configurations_predicted
        return counted / seconds, predicted / seconds

    return run


def llm_analysis_rate() -> Callable[[], float]:
    """Configurations per second of its ``training`` method on the same model and GPU."""
    from llm_analysis.analysis import ActivationRecomputation, DSZeRO, LLMAnalysis
    from llm_analysis.config import (
        ParallelismConfig,
        get_dtype_config_by_name,
        get_gpu_config_by_name,
        get_model_config_by_name,
    )

    logging.disable(logging.CRITICAL)
    model = get_model_config_by_name("decapoda-research_llama-65b-hf")
    gpu = get_gpu_config_by_name("a100-sxm-80gb")
    dtype = get_dtype_config_by_name("w16a16e16")
    layouts = list(itertools.product((2, 4, 8), (4, 8, 16), (1, 2, 4)))

    def run() -> float:
        started = time.process_time()
        for tensor, pipeline, batch in layouts * 4:
            parallelism = ParallelismConfig(
                tp_size=tensor, pp_size=pipeline, dp_size=2048 // tensor // pipeline
            )
            analysis = LLMAnalysis(model, gpu, dtype, parallelism, flops_efficiency=0.5)
            with suppress(AssertionError):  # how it rejects what does not fit
                analysis.training(
                    batch_size_per_gpu=batch,
                    gradient_accumulation_steps=1,
                    seq_len=2048,
                    total_num_tokens=1_400_000_000_000,
                    activation_recomputation=ActivationRecomputation.NONE,
                    ds_zero=DSZeRO.STAGE_1,
                )
        return len(layouts) * 4 / (time.process_time() - started)

    return run


def peak_memory(num_gpus: tuple[int, ...]) -> tuple[int, float]:
    """Configurations and peak resident MiB of a search in a process of its own, on Linux.

    ``ru_maxrss`` of a child begins with the peak of the process that starts it.
    """
    program = (
        "import planner;"
        f"r = planner.search(model='llama-65b', num_gpus={num_gpus}, space={str(SPACE)!r});"
        "print(r.configurations_evaluated, open('/proc/self/status').read())"
    )
    run = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    configurations, *status = run.stdout.split()
    return int(configurations), int(status[status.index(b"VmHWM:") + 1]) / 1024


LIBRARIES = "import numpy, typer, rich, pydantic"
"""What every command line of this kind imports: cold starts are told relative to it."""


def cpu_seconds(*arguments: str) -> float:
    """CPU seconds of a Python process, the interpreter's start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command, folder = [sys.executable, *arguments], tempfile.gettempdir()
    # The first of several writes the bytecode that the others read, as an installation does.
    environment = {n: v for n, v in os.environ.items() if n != "PYTHONDONTWRITEBYTECODE"}
    subprocess.run(command, check=True, capture_output=True, cwd=folder, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def print_cold_starts() -> None:
    """Print CPU seconds of the command line and their ratio to importing its libraries.

    Medians of interleaved processes; the first of each, which compiles and caches, is not counted.
    """
    with tempfile.TemporaryDirectory() as folder:
        search = ("search", "--model", "llama-65b", "--gpus", "2048", "--csv", f"{folder}/a.csv")
        commands = {
            LIBRARIES: ("-c", LIBRARIES),
            "planner --help": ("-m", "planner", "--help"),
            f"planner {' '.join(search[:-1])}": ("-m", "planner", *search),
        }
        times = [[cpu_seconds(*command) for command in commands.values()] for _ in range(COLD + 1)]
    for index, name in enumerate(commands):
        seconds = statistics.median(row[index] for row in times[1:])
        ratio = statistics.median(row[index] / row[0] for row in times[1:])
        print(f"{name:52}{seconds:8.3f} CPU s {ratio:6.2f} x")


def pin_to_one_core() -> None:
    """Keep this process and its children on one core, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def main() -> None:
    """Run everything and print one line per figure."""
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    print_cold_starts()
    pin_to_one_core()
    ours = planner_rates((2048, 4096))
    try:
        theirs = llm_analysis_rate()
    except ImportError:
        theirs = None
        print("llm-analysis is not installed: pip install '.[benchmark]'")
    rates = [(*ours(), theirs() if theirs else float("nan")) for _ in range(REPEATS)]
    for index, word in enumerate(("counted", "predicted")):
        mine = statistics.median(rate[index] for rate in rates)
        print(f"planner, one core, {word:17}{mine:14,.0f} configurations/s")
    if theirs:
        other = statistics.median(rate[-1] for rate in rates)
        print(f"llm-analysis, one core              {other:14,.0f} configurations/s")
        for index, word in enumerate(("counted", "predicted")):
            ratio = statistics.median(rate[index] / rate[-1] for rate in rates)
            print(f"ratio, {word:29}{ratio:14,.0f}")
    if cores:
        os.sched_setaffinity(0, cores)
    for num_gpus in ((2048, 4096), (512, 1024, 2048, 4096, 8192)):
        configurations, mebibytes = peak_memory(num_gpus)
        print(f"peak memory, {configurations:12,} configurations {mebibytes:9.0f} MiB")


if __name__ == "__main__":
    main()
