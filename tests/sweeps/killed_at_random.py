"""Kill commands at random moments while they write, and let the same command go on.

    PLANNER_SEED=7 python tests/sweeps/killed_at_random.py FOLDER KILLS

Every command is a process of its own, forked from this one, which has imported everything: most
of its time is work and writes. In the end its files have the bytes that nobody disturbed, and
nothing else is left in their folder. Prints the seed, and by command how often it was ended and how
often that left a file half-written.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle
from pathlib import Path

import psutil

from planner import __main__ as planner
from planner.base.signals import install_handlers

SEED = "PLANNER_SEED"
PATIENCE_S = 120.0
MOST_IN_A_ROW = 3
# So many kills wait until a file is being written, and then as long as a write may take.
AMID_A_WRITE, A_WRITE_S = 0.7, 0.005
PLAN = """
model = "llama-7b"
gpu = ["a100-sxm-80gb", "h100-sxm-80gb"]
num_gpus = [8, 16]
global_batch_size = [256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1664]
space = "single"
framework = "fsdp"
"""
TRAINED = ("--model", "llama-7b", "--global-batch-size", "256")
COMMANDS: dict[str, tuple[str, ...]] = {
    "sweep": ("sweep", "../plan.toml", "--output", "out", "--workers", "2", "--quiet"),
    "search": ("search", *TRAINED, "--gpus", "8,16", "--space", "small", "--all",
               "--csv", "rows.csv", "--json", "rows.json"),
    "size": ("size", *TRAINED, "--gpu", "a100,h100", "--tokens", "10B", "--space", "small",
             "--calendar-time", "30d", "--csv", "sizes.csv", "--json", "sizes.json"),
    "launch": ("launch", "megatron-lm", *TRAINED, "--gpus", "8", "--space", "small",
               "--output", "launch"),
}  # fmt: skip
# What differs between two undisturbed runs, too.
_OF_THE_RUN = re.compile(rb'"(created|search_time_s)": [^,\n]*')


def kill_a_worker(pid: int) -> None:
    """End a process that works for another."""
    for worker in psutil.Process(pid).children()[:1]:
        worker.kill()


ENDS: dict[str, Callable[[int], None]] = {
    "kill": lambda pid: os.kill(pid, signal.SIGKILL),
    "terminate": lambda pid: os.kill(pid, signal.SIGTERM),
    "interrupt": lambda pid: os.kill(pid, signal.SIGINT),
    "kill a worker": kill_a_worker,
}
OF_SWEEPS = (*ENDS,)
OF_OTHERS = ("kill", "kill", "kill", "terminate")


@dataclass
class Told:
    """What happened, to be read where something is wrong."""

    lines: list[str] = field(default_factory=list)

    def refuse(self, words: str) -> None:
        """End this program, telling all."""
        raise SystemExit("\n".join([*self.lines, words]))


def started(words: tuple[str, ...], folder: Path, log: Path) -> int:
    """The process of a command."""
    child = os.fork()
    if child:
        return child
    try:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        install_handlers()
        os.chdir(folder)
        os._exit(planner.run(words))
    except BaseException:
        traceback.print_exc()
        os._exit(99)


def ended(pid: int) -> int | None:
    """The code of a process that has ended."""
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def awaited(pid: int, until: float, is_so: Callable[[], bool] = bool) -> int | None:
    """The code of a process; None where it goes on until then, or until something is so."""
    end = time.monotonic() + until
    while (code := ended(pid)) is None and time.monotonic() < end and not is_so():
        time.sleep(0.002)
    return code


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, without when it was made."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): _OF_THE_RUN.sub(b"", path.read_bytes()) for path in files
    }


def half_written(folder: Path) -> bool:
    """Whether files are there that are not whole."""
    return any(folder.rglob(".planner-*.tmp"))


def main(base: Path, kills: int, seed: int) -> None:
    """End commands so often, one command after the other."""
    chance = random.Random(seed)
    (base / "plan.toml").write_text(PLAN)
    told = Told([f"{SEED}={seed}"])
    whole = {name: undisturbed(base / f"whole {name}", COMMANDS[name]) for name in COMMANDS}
    counts: Counter[str] = Counter()
    amid: Counter[str] = Counter()
    for name in cycle(COMMANDS):
        if sum(counts.values()) == kills:
            break
        folder, log = base / "now", base / "log.txt"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        code, goal = None, min(sum(counts.values()) + chance.randint(1, MOST_IN_A_ROW), kills)
        while code != 0:
            how = chance.choice(OF_SWEEPS if name == "sweep" else OF_OTHERS)
            begun, pid = time.monotonic(), started(COMMANDS[name], folder, log)
            going = sum(counts.values()) < goal
            code = awaited(pid, chance.random() * whole[name].takes * going)
            if going and code is None and chance.random() < AMID_A_WRITE:
                code = awaited(pid, whole[name].takes, partial(half_written, folder))
                code = awaited(pid, chance.random() * A_WRITE_S) if code is None else code
            was_ended = going and code is None
            if was_ended:
                ENDS[how](pid)
                counts[name] += 1
            code = awaited(pid, PATIENCE_S) if code is None else code
            amid[name] += half_written(folder)
            told.lines.append(f"{name}, {how if was_ended else 'undisturbed'}: {code}")
            if code is None or "internal error" in log.read_text() or not (was_ended or code == 0):
                told.refuse(log.read_text())
            if code == 0:
                whole[name].takes = min(time.monotonic() - begun, whole[name].takes)
        found, expected = contents(folder), whole[name].files
        if found != expected:
            names = [n for n in {*found, *expected} if found.get(n) != expected.get(n)]
            told.refuse(f"{name}: other files or bytes: {names}")
    print(f"{SEED}={seed}")
    for name, number in counts.items():
        print(f"{name}: ended {number} times, {amid[name]} of them amid a write")


@dataclass
class Whole:
    """What a command that nobody ends writes, and the seconds it takes at most."""

    files: dict[str, bytes]
    takes: float


def undisturbed(folder: Path, words: tuple[str, ...]) -> Whole:
    """A command run in this process, which then has imported all that it needs."""
    folder.mkdir()
    os.chdir(folder)
    begun = time.monotonic()
    with (folder.parent / "log.txt").open("w") as log, redirect_stdout(log):
        if planner.run(words) != 0:
            raise SystemExit(f"{' '.join(words)} fails")
    return Whole(contents(folder), time.monotonic() - begun)


if __name__ == "__main__":
    given = os.environ.get(SEED)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(given) if given else random.randrange(10**6))
