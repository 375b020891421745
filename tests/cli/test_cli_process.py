"""What only a process of its own can show."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLANNER = [sys.executable, "-m", "planner"]
HEAVY = ("numpy", "pandas", "pydantic", "optuna", "rich")


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from planner.__main__ import run; code = run(['--help']);"
        f"print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr);"
        "sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "search" in ran.stdout
    assert ran.stderr == "[]\n"


def test_the_module_runs_as_planner():
    ran = subprocess.run([*PLANNER, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("planner ")


@pytest.mark.parametrize("rows", [[], ["--all", "--csv", "-", "--quiet"]], ids=["table", "csv"])
def test_a_closed_pipe_ends_quietly(rows):
    command = [*PLANNER, "search", "--model", "llama-65b", "--gpus", "2048", *rows]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
