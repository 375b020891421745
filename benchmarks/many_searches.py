"""How long many small searches take in one process, and how much of it is reading specs.

    python benchmarks/many_searches.py

Prints the first and the median later plan (specs read, problem stated, nothing predicted), and
300 searches that differ in GPU, number of GPUs and batch. Timings depend on the machine.
"""

from __future__ import annotations

import itertools
import statistics
import time

import planner
from planner.workloads.make_plan import make_plan

GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-180gb", "l40s-48gb")
COUNTS = (256, 512, 1024, 2048, 4096, 8192)
BATCHES = tuple(range(256, 256 + 10 * 128, 128))
PLANS = 100


def plan_seconds() -> float:
    """Seconds to read the specs of a question and state its problem."""
    started = time.perf_counter()
    make_plan(planner.Request(model="llama-65b", num_gpus=2048))
    return time.perf_counter() - started


def search_seconds() -> tuple[int, float]:
    """Searches of a small space, and the seconds that all of them take."""
    questions = list(itertools.product(GPUS, COUNTS, BATCHES))
    started = time.perf_counter()
    for gpu, num_gpus, batch in questions:
        planner.search(
            model="llama-65b", gpu=gpu, num_gpus=num_gpus, global_batch_size=batch, space="small"
        )
    return len(questions), time.perf_counter() - started


def main() -> None:
    """Run everything and print one line per figure."""
    print(f"first plan                      {1e3 * plan_seconds():8.2f} ms")
    later = statistics.median(plan_seconds() for _ in range(PLANS))
    print(f"later plan                      {1e3 * later:8.2f} ms")
    number, seconds = search_seconds()
    print(f"{number} searches                    {seconds:8.2f} s")
    print(f"one search                      {1e3 * seconds / number:8.2f} ms")


if __name__ == "__main__":
    main()
