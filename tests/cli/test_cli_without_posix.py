"""The command line where the modules that only POSIX has are missing, as on Windows."""

from __future__ import annotations

import subprocess
import sys

import pytest
from rows import each

# The standard library is imported first: with an msvcrt it takes the system for Windows.
_WITHOUT_POSIX = """
import multiprocessing.context, multiprocessing.util, os, pathlib, shutil, subprocess, sys, tempfile
from types import SimpleNamespace

locked = []
for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in ("O_NOFOLLOW", "O_NONBLOCK", "register_at_fork", "sched_getaffinity"):
    if hasattr(os, name):
        delattr(os, name)
sys.modules["msvcrt"] = SimpleNamespace(LK_NBLCK=2, locking=lambda *byte: locked.append(byte))
from planner.__main__ import run

code = run(sys.argv[1:])
print(len(locked), "locks")
sys.exit(code)
"""


@pytest.mark.slow
@each(
    ("command", "locks"),
    [
        ("estimate --model llama-65b --gpus 2048 --set tp=8 --set pp=8 --json {}/one.json", 0),
        ("search --model llama-7b --gpus 8 --csv {}/front.csv", 0),
        ("sweep --model llama-7b --gpus 8 --tokens 1T --workers 1 --output {}/sweep", 1),
    ],
)
def test_files_are_written(command, locks, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    arguments = [*command.format(folder).split(), "--quiet"]
    program = [sys.executable, "-c", _WITHOUT_POSIX, *arguments]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr, ran.stdout) == (0, "", f"{locks} locks\n")
    assert [*folder.iterdir()]
    assert not [*folder.rglob(".planner-*.tmp")]


def test_a_folder_that_another_sweep_has_locked_is_refused(tmp_path):
    refuses = _WITHOUT_POSIX.replace("locked.append(byte)", "(_ for _ in ()).throw(error)")
    refuses = f"error = PermissionError(13, 'Permission denied')\n{refuses}"
    arguments = "sweep --model llama-7b --gpus 8 --tokens 1T --workers 1 --output"
    program = [sys.executable, "-c", refuses, *arguments.split(), str(tmp_path / "sweep")]
    ran = subprocess.run(program, capture_output=True, text=True, check=False)
    assert ran.returncode == 8
    assert "another sweep is writing there" in ran.stderr


def test_the_server_has_no_limits_of_posix():
    code = "from planner.ui.request_limits import Limits, within_files\n"
    program = f"import sys\nsys.modules['resource'] = None\n{code}assert within_files(Limits())"
    subprocess.run([sys.executable, "-c", program], check=True)
