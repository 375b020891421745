"""How many ways to serve per second, and how long the command line takes from cold.

    python benchmarks/serving_speed.py

Uses the helpers of search_speed.py. Prints cold starts of the command line, and the median of
several runs on one core, in CPU seconds: plans per second through enumeration, rules, memory, time
and front. Timings depend on the machine.
"""

from __future__ import annotations

import statistics
import time

from search_speed import REPEATS, cpu_seconds, pin_to_one_core

MODELS = ("llama-3.1-70b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-120b")
GPUS = 32
LIMITS = {"time_to_first_token": 1.0, "time_per_output_token": 0.04}
QUESTION = (
    "search", "--workload", "serve", "--gpu", "h200-sxm-141gb", "--gpus", str(GPUS),
    "--input-tokens", "4000", "--output-tokens", "1000", "--ttft", "1000ms", "--tpot", "40ms",
)  # fmt: skip


def serving_rate(model: str) -> tuple[int, float]:
    """Distinct plans of a search, and how many of them per second."""
    import planner

    started = time.process_time()
    result = planner.search(
        workload="serve",
        model=model,
        gpu="h200-sxm-141gb",
        num_gpus=GPUS,
        input_tokens=4000,
        output_tokens=1000,
        constraints=LIMITS,
    )
    seconds = time.process_time() - started
    return result.configurations_evaluated, result.configurations_evaluated / seconds


def main() -> None:
    """Run everything and print one line per figure."""
    for model in MODELS:
        command = ("-m", "planner", *QUESTION, "--model", model)
        seconds = statistics.median(cpu_seconds(*command) for _ in range(REPEATS))
        print(f"{model:20} cold {seconds:7.2f} CPU s")
    pin_to_one_core()
    for model in MODELS:
        runs = [serving_rate(model) for _ in range(REPEATS)]
        rate = statistics.median(rate for _, rate in runs)
        print(f"{model:20} {runs[0][0]:10,} plans {rate:12,.0f} plans/s")


if __name__ == "__main__":
    main()
