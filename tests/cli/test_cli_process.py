"""What only a process of its own can show."""

from __future__ import annotations

import subprocess
import sys

import pytest

from planner.cli.app import COMMANDS

PLANNER = [sys.executable, "-m", "planner"]
HEAVY = {"numpy", "pandas", "pydantic", "optuna", "rich"}


NAMES = [name.replace("-", "_") for name in COMMANDS]
MODULES = {f"planner.{part}.{name}" for part in ("cli", "commands") for name in NAMES}


def imported(*words: str) -> set[str]:
    """The modules that a command of a process of its own imports."""
    code = (
        f"import sys; from planner.__main__ import run; code = run({list(words)});"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert words[0].strip("-") in ran.stdout
    return {*ran.stderr.split()}


def test_the_list_of_commands_imports_none_of_them():
    modules = imported("--help")
    own = {name for name in modules if name.startswith("planner.cli.")}
    assert own == {"planner.cli.app", "planner.cli.text_options"}
    assert not modules & HEAVY


@pytest.mark.parametrize(("name", "own"), [("specs", {"planner.cli.specs"}), ("size", set())])
def test_a_command_imports_no_other(name, own):
    modules = imported(name, "--help")
    assert modules & MODULES == own
    assert not modules & (HEAVY - {"pydantic"})


def test_the_module_runs_as_planner():
    ran = subprocess.run([*PLANNER, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout.startswith("planner ")


@pytest.mark.few(1)
@pytest.mark.parametrize("rows", [[], ["--all", "--csv", "-", "--quiet"]], ids=["table", "csv"])
def test_a_closed_pipe_ends_quietly(rows):
    command = [*PLANNER, "search", "--model", "llama-65b", "--gpus", "2048", *rows]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141
