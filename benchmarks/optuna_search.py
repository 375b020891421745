"""Whether Optuna finds the exhaustive optimum, and what a trial costs, early and late.

    python benchmarks/optuna_search.py [SEEDS]

Per problem: on how many seeds a thousand trials find the best first objective, the rows that were
evaluated for it, and the milliseconds of a trial from 0 to 500 and from 1,500 to 2,000.
Timings depend on the machine.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any

TRIALS = 1000
PROBLEMS: dict[str, dict[str, Any]] = {
    "llama-65b on 2,048": {"model": "llama-65b", "num_gpus": 2048},
    "mixtral-8x7b on 64": {"model": "mixtral-8x7b", "num_gpus": 64, "gpu": "h100"},
    "llama-3.1-405b on 4,096": {"model": "llama-3.1-405b", "num_gpus": 4096, "gpu": "h100"},
    "llama-2-7b on 8, fsdp": {
        "model": "llama-2-7b",
        "num_gpus": 8,
        "gpu": "rtx4090",
        "space": "fsdp",
    },
    "llama-3.1-70b served": {
        "workload": "serve",
        "mode": ("aggregated",),
        "model": "llama-3.1-70b",
        "gpu": "h200",
        "num_gpus": 32,
        "input_tokens": 4000,
        "output_tokens": 1000,
        "constraints": {"time_to_first_token": 1.0, "time_per_output_token": 0.04},
    },
}


def best(result: Any, workload: str) -> float:
    """The first objective of the best row."""
    column = "output_tokens_per_s_per_gpu" if workload == "serve" else "tokens_per_s"
    return float(result.to_frame()[column].iloc[0])


def report(name: str, request: dict[str, Any], seeds: int) -> None:
    """Print a line on one problem."""
    import planner

    workload = request.get("workload", "train")
    whole = planner.search(**request)
    found, evaluated = 0, 0
    for seed in range(seeds):
        result = planner.search(**request, driver="optuna", trials=TRIALS, seed=seed)
        found += math.isclose(best(result, workload), best(whole, workload), rel_tol=1e-9)
        evaluated = max(evaluated, result.configurations_evaluated)
    rows = whole.configurations_evaluated
    print(f"{name:26} {found} of {seeds} seeds, at most {evaluated:,} of {rows:,} rows", flush=True)


def cost_of_a_trial(sampler: str) -> None:
    """Print CPU milliseconds of a trial, early and late in one study."""
    import planner

    times = {0: time.process_time()}

    def note(done: int) -> None:
        times[done] = time.process_time()

    request = PROBLEMS["llama-65b on 2,048"]
    planner.search(**request, driver="optuna", trials=2000, sampler=sampler, progress=note)
    early, late = ((times[end] - times[end - 500]) * 2 for end in (500, 2000))
    print(f"{sampler}: {early:.2f} ms a trial from 0 to 500, {late:.2f} from 1,500 to 2,000")


def main() -> None:
    """Run everything."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    for name, request in PROBLEMS.items():
        report(name, request, seeds)
    for sampler in ("nsga2", "tpe"):
        cost_of_a_trial(sampler)


if __name__ == "__main__":
    main()
