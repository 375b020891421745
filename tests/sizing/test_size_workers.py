"""The processes of a size: they end with their parent, and one that is killed is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil
import pytest

from planner.base.worker_processes import TRIES, WorkersEnded, run_on_workers
from planner.decide.sizing import size_all as sizing
from planner.errors import WorkersLost
from planner.workloads.build_request import make_request

SIZE = (
    "size", "--model", "llama-65b", "--tokens", "1T", "--deadline", "30d",
    "--gpu", "h100,h200,b200,a100,mi300x", "--workers", "2",
)  # fmt: skip
PATIENCE_S = 60


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGKILL, -9)]
)
def test_workers_end_with_their_parent(number, code):
    with subprocess.Popen(
        [sys.executable, "-m", "planner", *SIZE],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        parent = psutil.Process(process.pid)
        until(lambda: len(parent.children()) == 2)
        workers = parent.children()
        process.send_signal(number)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code
    assert err.count("\n") <= 1
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE_S)
    assert not alive


_SLOW_START = """
import os, signal, threading, time

from planner.base import worker_processes

start = worker_processes._start_worker


def start_late(*arguments):
    time.sleep(1)
    start(*arguments)


class SlowToSend:
    def __reduce__(self):
        time.sleep(60)


worker_processes._start_worker = start_late
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
list(worker_processes.run_on_workers(print, [SlowToSend(), SlowToSend()], 2))
"""


def test_workers_end_if_their_parent_is_killed_before_they_begin():
    """A worker holds its parent's error stream, so the stream closes when all have ended."""
    with subprocess.Popen([sys.executable, "-c", _SLOW_START], stderr=subprocess.PIPE) as process:
        _, err = process.communicate(timeout=PATIENCE_S / 2)
    assert (process.returncode, err) == (-signal.SIGKILL, b"")


def _square_or_die(once: Path, number: int) -> int:
    if number == 3 and not once.exists():
        once.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_what_a_killed_worker_had_is_done_by_another(tmp_path):
    work = partial(_square_or_die, tmp_path / "died")
    assert dict(run_on_workers(work, range(20), 2)) == {n: n * n for n in range(20)}
    assert (tmp_path / "died").exists()


def _die(number: int) -> int:
    if number == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_work_that_always_kills_its_worker_is_given_up():
    done = set()
    with pytest.raises(WorkersEnded) as error:
        done |= {number for number, _ in _noted(run_on_workers(_die, range(8), 2), done)}
    assert 7 in error.value.tasks
    assert not done & set(error.value.tasks)


def _noted(found, done):
    for number, result in found:
        done.add(number)
        yield number, result


def test_sizes_without_workers_are_an_error_of_the_user(monkeypatch):
    monkeypatch.setattr(
        sizing, "_size_under_contracts", lambda task: os.kill(os.getpid(), signal.SIGKILL)
    )
    asked = {"model": "llama-7b", "gpu": ["h100", "h200", "b200"], "total_tokens": "1B"}
    request = make_request({**asked, "constraints": {"calendar_time": "1d"}})
    with pytest.raises(WorkersLost, match=f"Workers ended {TRIES} times without a result"):
        sizing.size_all(request, workers=2)


def test_what_looks_on_ends_the_work():
    class Enough(Exception):
        pass

    def look() -> None:
        raise Enough

    with pytest.raises(Enough):
        list(run_on_workers(time.sleep, [5.0, 6.0], 2, look))


_LARGE = """
import time
from multiprocessing.connection import Connection

from planner.base.worker_processes import run_on_workers

send = Connection._send


def in_pieces(self, data):
    for start in range(0, len(data), 2**21):
        send(self, data[start : start + 2**21])
        time.sleep(0.3 if len(data) > 2**21 else 0)


Connection._send = in_pieces
for _ in run_on_workers(lambda n: bytes(10 * 2**21), range(9), 2):
    raise SystemExit(3)
"""


@pytest.mark.slow
def test_work_ends_while_workers_send_large_results():
    """A result that was cut off while it was sent would be waited for without end."""
    done = subprocess.run([sys.executable, "-c", _LARGE], capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (3, b"")
