from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from planner.optimize import exhaustive

FAULTS = """
import resource
from contextlib import nullcontext
import numpy as np
from planner.optimize.exhaustive import reuse_freed_pages

def round_of_arrays():
    arrays = [np.ones(2**20) for _ in range(12)]
    del arrays

with {context}():
    round_of_arrays()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        round_of_arrays()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(context: str) -> int:
    program = FAULTS.format(context=context)
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="what glibc does")
def test_pages_of_freed_arrays_are_not_faulted_again() -> None:
    assert faults("reuse_freed_pages") < faults("nullcontext") / 10


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(exhaustive.ctypes, "CDLL", None)
    with exhaustive.reuse_freed_pages():
        pass
