"""How long it takes to write launch files, to read one, and to find its best change.

    python benchmarks/launch.py

Prints the median of some runs in one process, and each as a share of one search for the same
question, which does not depend on the machine.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

import planner
from planner.decide.suggestions.changes import best_changes
from planner.launch.read.launch_file import evaluate_launch
from planner.launch.read.read_launch import read_launch
from planner.launch.write.write_launch import make_launch

SAMPLE = Path(__file__).parents[1] / "docs" / "samples" / "pretrain.sh"
RUNS = 9


def median(action: Callable[[], object]) -> float:
    """Seconds of one run, after one that is not counted."""
    action()
    times = []
    for _ in range(RUNS):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    question = planner.read_launch(SAMPLE, gpu="h100")
    plan, found, _ = evaluate_launch(question)
    searched = median(lambda: planner.search(base=question))
    actions: dict[str, Callable[[], object]] = {
        "read the file": lambda: read_launch(SAMPLE, gpu="h100"),
        "judge it": lambda: evaluate_launch(question),
        "find its best change": lambda: best_changes(plan, found),
        "write launch files": lambda: make_launch(question, "megatron-lm", "slurm"),
    }
    print(f"{'a search for the same question':32} {1e3 * searched:8.1f} ms")
    for name, action in actions.items():
        taken = median(action)
        print(f"{name:32} {1e3 * taken:8.1f} ms {taken / searched:6.2f} of a search")


if __name__ == "__main__":
    main()
