"""What large questions take: memory that does not grow with them, and CPU time for each part.

    python -m pytest -n 0 -m scale -s

Figures are printed; limits are twice what was measured. Lost workers, full disks, other writers and
interruptions are in `tests/sweeps/test_kills.py`, which is part of every run.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MIB_OF_BILLIONS = 400
MIB_MORE = 20
CPU_S_A_SCENARIO = 0.06
"""20,000 scenarios in 10 minutes on two cores."""

pytestmark = pytest.mark.scale


def run(*arguments: str, **options: Any) -> tuple[subprocess.CompletedProcess[str], float, float]:
    """Run planner; also its CPU time [s] and the most memory of any command so far [MiB]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        (sys.executable, "-m", "planner", *arguments), capture_output=True, text=True, **options
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done, cpu, after.ru_maxrss / 1024


def test_a_home_that_cannot_be_written_changes_nothing() -> None:
    question = ("estimate", "--model", "llama-7b", "--gpus", "8")
    expected, *_ = run(*question)
    homeless = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    done, *_ = run(*question, env={**homeless, "HOME": os.devnull})
    assert done.returncode == expected.returncode == 0, done.stderr
    assert done.stdout == expected.stdout
    assert "Traceback" not in done.stderr


def test_billions_of_configurations_fit_in_a_little_memory() -> None:
    counts = (",".join(map(str, range(1, 33))), ",".join(map(str, range(512, 57345, 512))))
    done, cpu, peak = run(
        "search", "--model", "llama-65b", "--gpus", "512,1024,2048,4096,8192,16384",
        "--space", str(ROOT / "benchmarks" / "wide.toml"), "--quiet", "--csv", "-",
        "--set", f"micro_batch_size={counts[0]}", "--set", f"global_batch_size={counts[1]}",
    )  # fmt: skip
    print(f"2.9e9 configurations: {cpu:.0f} CPU s, {peak:.0f} MiB")
    assert done.returncode == 0, done.stderr
    assert peak < MIB_OF_BILLIONS


def _peak(scenarios: int, queue: Any) -> None:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    import sweeps

    sweeps.seconds(sweeps.plan_of(scenarios), sweeps.copied)
    queue.put(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def test_the_memory_of_a_sweep_does_not_grow_with_its_scenarios() -> None:
    context, peaks = multiprocessing.get_context("spawn"), []
    for scenarios in (500, 5_000):
        queue = context.SimpleQueue()
        process = context.Process(target=_peak, args=(scenarios, queue))
        process.start()
        process.join()
        peaks.append(queue.get())
    print(f"a sweep of 500 scenarios: {peaks[0]:.0f} MiB, of 5,000: {peaks[1]:.0f} MiB")
    assert peaks[1] < peaks[0] + MIB_MORE


def test_scenarios_and_their_tables_take_little_time(tmp_path: Path) -> None:
    scenarios = 5 * 4 * 20
    tokens = ",".join(f"{at}B" for at in range(1000, 1020))
    done, cpu, _ = run(
        "sweep", "--model", "llama-65b", "--framework", "megatron-lm", "--quiet",
        "--gpu", "a100-sxm-80gb,h100-sxm-80gb,h200-sxm-141gb,b200-sxm-180gb,mi300x-192gb",
        "--gpus", "256,512,1024,2048", "--global-batch-size", "1024", "--workers", "2",
        "--tokens", tokens, "--output", str(tmp_path / "out"),
    )  # fmt: skip
    print(f"{scenarios} scenarios: {1e3 * cpu / scenarios:.0f} CPU ms each")
    assert done.returncode == 0, done.stderr
    assert cpu / scenarios < CPU_S_A_SCENARIO
