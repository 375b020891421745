"""End sweeps and other writers at each of their writes, in a process of its own, and go on.

    python tests/sweeps/killed_at_writes.py FOLDER

Prints how often it was ended: a process sends itself SIGKILL, so that nothing is cleaned up.
"""

from __future__ import annotations

import fcntl
import io
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import planner.sweeps.run_sweep as run_module
from planner.launch.write.write_launch import make_launch, save_launch
from planner.show.presenters.row_tables import row_files
from planner.sweeps import scenario_batches, sweep_folder
from planner.sweeps.find_plan import make_sweep
from planner.sweeps.plan import SweepPlan
from planner.sweeps.run_sweep import Done, Run, run_sweep
from planner.sweeps.scenario_batches import ScenarioBatch, run_part
from planner.workloads.build_request import make_request

# Who is killed at an fsync leaves what one leaves that is killed at the replace after it.
WRITES = ((os, "replace"), (os, "unlink"))
BEGINNINGS = ((fcntl, "flock"), (io, "open"))
ENDED = -signal.SIGKILL
io_open = io.open
TABLE = {
    "model": "llama-7b",
    "num_gpus": [8, 16],
    "space": "single",
    "framework": "fsdp",
}


def ended_at(
    number: int, work: Callable[[], object], writes: Sequence[tuple[Any, str]] = WRITES
) -> bool:
    """Whether a process that does the work was ended at that write, for there was one."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        if code not in (0, ENDED):
            raise SystemExit(f"write {number}: ended with {code}")
        return code == ENDED
    left = [number]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **extra: Any) -> Any:
            left[0] -= function is not io_open or "x" in args[1]
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **extra)

        return call

    for module, name in writes:
        setattr(module, name, counted(getattr(module, name)))
    try:
        work()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a directory but the lock."""
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != sweep_folder.LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def main(folder: Path) -> None:
    """End it at the first write, at the second of what is left, and so on."""
    plan = make_sweep(TABLE)
    same = sweep_folder.identity(plan)  # which takes longer than all writes
    sweep_folder.identity = run_module.identity = lambda plan: same
    scenario_batches.SCENARIOS_OF_A_PART = 1
    known: dict[ScenarioBatch, bytes] = {}

    def run(plan: SweepPlan, parts: Iterable[ScenarioBatch]) -> Iterator[Done]:
        for part in parts:
            known[part] = known.get(part) or run_part(plan, part)
            yield part, known[part]

    run_sweep(plan, folder / "whole", run=run)
    expected = contents(folder / "whole")
    found = sum(kills(plan, folder, run, expected, fresh) for fresh in (False, True))
    launch = make_launch(make_request({"model": "llama-7b", "num_gpus": 8}), "megatron-lm", "slurm")
    launched = partial(save_launch, launch=launch)
    print(found + other_kills(folder / "rows", rows) + other_kills(folder / "launch", launched))


def rows(folder: Path) -> None:
    """Write rows, as a search does."""
    with row_files(folder / "rows.csv", folder / "rows.json") as files:
        files.add([{"gpu": ["a100", "h100"], "cost_usd": [1.5, 2.0]}])
        files.finish({"version": "1"})


def other_kills(folder: Path, work: Callable[[Path], object]) -> int:
    """How often a writer was ended; the next one finds the folder as if it had not been."""
    for number in count(1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        was_ended = ended_at(number, partial(work, folder), (*WRITES, *BEGINNINGS))
        ended_at(10**9, partial(work, folder))
        if number == 1:
            expected = contents(folder)
        if contents(folder) != expected:
            raise SystemExit(f"{folder.name} ended at write {number}: {[*contents(folder)]}")
        if not was_ended:
            return number - 1
    return 0


def kills(plan: SweepPlan, folder: Path, run: Run, expected: dict[str, bytes], fresh: bool) -> int:
    """How often a sweep was ended: once at each of its writes."""
    target = folder / "ended"
    work = partial(run_sweep, plan, target, run=run)
    for number in count(1):
        shutil.rmtree(target, ignore_errors=True)
        if fresh:
            shutil.copytree(folder / "whole", target)
        if not ended_at(number, partial(work, fresh=fresh)):
            return number - 1
        work(fresh=fresh and not (target / "plan.json").exists())
        if contents(target) != expected:
            raise SystemExit(f"ended at write {number}, fresh={fresh}: other bytes")
    return 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
