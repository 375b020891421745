"""Sweeps: seconds of a thousand scenarios in one process, in two and on Dask, and peak memory.

    python benchmarks/sweeps.py [SCENARIOS]
    python benchmarks/sweeps.py memory

Prints medians of interleaved runs of LLaMA-65B on GPUs, counts, batches and contracts, and their
ratios; with ``memory`` the peak of the program over sweeps of 10,000 and 100,000 scenarios, each
part like the first but for times and costs: what grows is what the program keeps. Timings depend
on the machine: quote ratios.
"""

from __future__ import annotations

import gzip
import itertools
import json
import multiprocessing
import random
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from planner.sweeps.find_plan import make_sweep
from planner.sweeps.plan import SweepPlan
from planner.sweeps.run_sweep import Done, Run, in_this_process, on_cores, run_sweep
from planner.sweeps.scenario_batches import ScenarioBatch, run_part

ROUNDS = 3
GPUS = ["a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "b200-sxm-180gb", "mi300x-192gb"]
COUNTS = [256, 512, 1024, 2048, 4096]
BATCHES = [1024, 2048]
CONTRACTS = ["on-demand", "spot", "reserved-1y", "capacity-block", "owned"]


def plan_of(scenarios: int) -> SweepPlan:
    """LLaMA-65B on five GPUs, counts and contracts, two batches, so many tokens as it takes."""
    tokens = [f"{at / 1000}T" for at in range(500, 500 + max(1, scenarios // 250))]
    return make_sweep(
        {
            "model": "llama-65b",
            "framework": "megatron-lm",
            "gpu": GPUS,
            "num_gpus": COUNTS,
            "global_batch_size": BATCHES,
            "total_tokens": tokens,
            "contract": CONTRACTS,
        }
    )


def seconds(plan: SweepPlan, run: Run) -> float:
    """What a whole sweep takes, its tables included."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        run_sweep(plan, Path(folder) / "out", run=run)
        return time.perf_counter() - started


def compare(scenarios: int) -> None:
    """Print the seconds of each way to run the same sweep."""
    from distributed import LocalCluster

    from planner.sweeps.dask_workers import on_dask

    made: Any = LocalCluster
    with made(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        ways: dict[str, Run] = {
            "in this process": in_this_process,
            "one process": on_cores(1),
            "two processes": on_cores(2),
            "two Dask workers": on_dask(cluster.scheduler_address),
        }
        plan = plan_of(scenarios)
        found: dict[str, list[float]] = {name: [] for name in ways}
        for _, (name, run) in itertools.product(range(ROUNDS), ways.items()):
            found[name].append(seconds(plan, run))
    best = {name: statistics.median(times) for name, times in found.items()}
    for name, took in best.items():
        each = 1e3 * took / plan.num_scenarios
        print(f"{plan.num_scenarios} scenarios, {name:18} {took:7.2f} s   {each:6.2f} ms each")
    print(f"efficiency of two processes {best['one process'] / best['two processes'] / 2:.0%}")
    print(f"Dask against two processes  {best['two Dask workers'] / best['two processes']:.2f}")


def copied(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
    """As if every part were like the first, but for what its plans cost and how long they take."""
    lines: list[dict[str, Any]] = []
    for part in parts:
        if not lines:
            whole = gzip.decompress(run_part(plan, part)).decode()
            lines = [json.loads(line) for line in whole.splitlines()]
        chance = random.Random(part.number)
        for number, row in enumerate(lines[1::2], start=part.first):
            row["scenario"] = number
            for name in ("cost_usd", "calendar_time_days", "time_to_train_days"):
                if row.get(name) is not None:
                    row[name] *= chance.uniform(0.7, 1.4)
        size = 1 + 2 * (part.end - part.first)
        text = "".join(json.dumps(line) + "\n" for line in lines[:size])
        yield part, gzip.compress(text.encode(), 1, mtime=0)


def _peak(scenarios: int, queue: Any) -> None:
    seconds(plan_of(scenarios), copied)
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def memory() -> None:
    """Print the peak memory of the program by the number of scenarios."""
    context = multiprocessing.get_context("spawn")
    for scenarios in (10_000, 100_000):
        queue = context.SimpleQueue()
        process = context.Process(target=_peak, args=(scenarios, queue))
        started = time.perf_counter()
        process.start()
        peak = queue.get()
        process.join()
        print(f"{scenarios:7} scenarios: {peak:6.0f} MiB, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        memory()
    else:
        compare(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
