"""Signals and broken streams: what a real process does with them."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PLANNER = [sys.executable, "-m", "planner"]
SMALL = ("search", "--model", "llama-7b", "--gpus", "8", "--space", "small")
# Some seconds of work, in a dozen blocks.
LARGE = (
    "search", "--model", "llama-65b", "--gpus", "1024,2048,4096", "--all",
    "--set", f"micro_batch_size={','.join(map(str, range(1, 17)))}",
    "--set", "global_batch_size=256,512,1024,2048,4096,8192",
)  # fmt: skip
SERVED = (
    "search", "--workload", "serve", "--model", "llama-3.1-8b", "--gpu", "all", "--gpus", "64",
    "--mode", "aggregated", "--all", "--engine", "vllm", "--set", "concurrency=1,64",
)  # fmt: skip

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs /proc and the signals of Unix"
)


def started(*arguments: str, sigint: object = signal.default_int_handler) -> subprocess.Popen[str]:
    """A planner that takes signals as if it had been started by hand, whoever runs the tests."""
    return subprocess.Popen(
        [*PLANNER, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, sigint),  # type: ignore[arg-type]
    )


def wait_until(is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert process.poll() is None, "it ended before the signal"
        assert time.monotonic() < deadline
        time.sleep(0.001)


def listens(process: subprocess.Popen[str]) -> bool:
    """Whether it has a handler of SIGTERM; Python itself installs none."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if "SigCgt" in line).split()[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


@pytest.mark.few(1)
@pytest.mark.parametrize("delay", [0.0, 0.05, 0.1, 0.2, 0.4])
@pytest.mark.parametrize(
    ("number", "ends"), [(signal.SIGINT, (130, "Interrupted.\n")), (signal.SIGTERM, (143, "Term"))]
)
def test_a_signal_ends_a_command_without_a_traceback(number, ends, delay):
    with started(*LARGE, "--csv", "/dev/null") as process:
        wait_until(lambda: listens(process), process)
        time.sleep(delay)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    exit_code, words = ends
    assert process.returncode == exit_code
    assert err.startswith(words.removesuffix(".\n"))
    assert err.count("\n") == 1


def test_it_listens_before_it_imports_anything_large():
    code = "import sys, planner.__main__; print(*{*sys.modules} & {'typing', 'typer', 'numpy'})"
    # -S: what an installation of its own imports at the start is not ours.
    path = str(Path(__file__).parents[2])
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, cwd=path, check=True
    )
    assert ran.stdout == "\n"


def test_sigterm_leaves_no_file(tmp_path):
    with started(*LARGE, "--csv", str(tmp_path / "a.csv")) as process:
        wait_until(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), process)
        assert all(path.suffix == ".tmp" for path in tmp_path.iterdir())
        process.terminate()
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (143, "Terminated.\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("question", [LARGE, SERVED], ids=["train", "serve"])
def test_what_an_interrupted_search_found_is_shown_and_written(tmp_path, question):
    table, document = tmp_path / "a.csv", tmp_path / "b.json"
    with started(*question, "--csv", str(table), "--json", str(document)) as process:
        wait_until(lambda: any(path.stat().st_size for path in tmp_path.iterdir()), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("Interrupted after ")
    assert "RECOMMENDED  " in out
    assert "Interrupted after " in out
    content = json.loads(document.read_text())
    manifest = json.loads((tmp_path / "a.manifest.json").read_text())
    assert manifest == content["manifest"]
    assert manifest["interrupted"] is True
    with table.open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == len(content["rows"])
    assert len(content["rows"]) == manifest["configurations_feasible"] > 0
    assert sorted(tmp_path.iterdir()) == [
        tmp_path / "a.csv",
        tmp_path / "a.manifest.json",
        document,
    ]


def test_a_second_interrupt_ends_it_at_once(tmp_path):
    path = tmp_path / "a.tmp"
    code = f"""
import os, signal
from planner.base.signals import (defer_interrupt, install_handlers, is_stop_requested,
    remove_on_exit)
signal.signal(signal.SIGINT, signal.default_int_handler)
install_handlers()
with remove_on_exit({str(path)!r}), open({str(path)!r}, "w"), defer_interrupt():
    assert not is_stop_requested()
    os.kill(os.getpid(), signal.SIGINT)
    print(is_stop_requested(), flush=True)
    os.kill(os.getpid(), signal.SIGINT)
    print("still here", flush=True)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (130, "True\n", "Interrupted.\n")
    assert not path.exists()


def test_a_finished_search_is_not_marked(tmp_path):
    with started(*SMALL, "--csv", str(tmp_path / "a.csv"), "--quiet") as process:
        process.communicate(timeout=60)
    assert json.loads((tmp_path / "a.manifest.json").read_text())["interrupted"] is False


def test_an_ignored_interrupt_stays_ignored():
    with started(*SMALL, "--quiet", sigint=signal.SIG_IGN) as process:
        wait_until(lambda: listens(process), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


FULL, BAD = "No space left on device", "Bad file descriptor"
STREAMS = {
    "full disk": (SMALL, ">/dev/full", 8, FULL),
    "full disk of rows": ((*SMALL, "--all", "--csv", "-", "--quiet"), ">/dev/full", 8, FULL),
    "full disk of json": ((*SMALL, "--json", "-", "--quiet"), ">/dev/full", 8, FULL),
    "full disk of help": (("--help",), ">/dev/full", 8, FULL),
    "full disk of a list": (("specs", "list", "gpus"), ">/dev/full", 8, FULL),
    "closed": (SMALL, ">&-", 8, BAD),
    "closed for rows": ((*SMALL, "--csv", "-", "--quiet"), ">&-", 8, BAD),
    "closed and not used": ((*SMALL, "--quiet"), ">&- <&-", 0, ""),
    "no room for the report": ((*SMALL, "--csv", "-"), ">/dev/null 2>/dev/full", 8, ""),
    "no report": ((*SMALL, "--csv", "-"), ">/dev/null 2>&-", 8, ""),
    "no room for the error": ((*SMALL, "--gpu", "x"), "2>/dev/full", 2, ""),
    "nowhere": ((*SMALL, "--gpu", "x"), ">&- 2>&- <&-", 2, ""),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("arguments", "redirection", "exit_code", "reason"), STREAMS.values(), ids=STREAMS.keys()
)
def test_a_stream_that_cannot_be_written_is_told_in_one_line(
    monkeypatch, arguments, redirection, exit_code, reason, unbuffered
):
    if "/dev/full" in redirection and not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    shell = ["sh", "-c", f'"$@" {redirection}', "sh"]
    ran = subprocess.run([*shell, *PLANNER, *arguments], capture_output=True, text=True)
    assert ran.returncode == exit_code
    assert ran.stdout == ""
    assert ran.stderr == (f"stdout: cannot be written ({reason}).\n" if reason else "")


def test_a_result_file_never_takes_the_place_of_a_closed_stream(tmp_path):
    path = tmp_path / "a.json"
    shell = ["sh", "-c", '"$@" >&-', "sh", *PLANNER, *SMALL, "--json", str(path)]
    assert subprocess.run(shell, capture_output=True).returncode == 8
    assert json.loads(path.read_text())["rows"]


@pytest.mark.slow
def test_a_terminal_shows_once_that_a_search_was_interrupted(tmp_path):
    main, side = pty.openpty()
    process = subprocess.Popen(
        [*PLANNER, *SERVED, "--csv", str(tmp_path / "a.csv")],
        stdout=side,
        stderr=side,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    os.close(side)
    sent, is_stopped = b"", False
    while piece := read_terminal(main):
        sent += piece
        if not is_stopped and any(path.stat().st_size for path in tmp_path.iterdir()):
            process.send_signal(signal.SIGINT)
            is_stopped = True
    os.close(main)
    assert process.wait(60) == 130
    assert b"RECOMMENDED  " in sent
    assert sent.count(b"Interrupted after ") == 1


def read_terminal(main: int) -> bytes:
    """What comes next; nothing where the other side is closed."""
    try:
        return os.read(main, 2**16)
    except OSError:
        return b""
