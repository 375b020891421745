"""The README's commands run, and print what the README shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Times differ from run to run.
TIMED = re.compile(r"evaluated in .* per second")


def sessions() -> list[tuple[str, list[str]]]:
    """Command and shown lines of every console block that runs planner."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, flags=re.DOTALL):
        for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = session.partition("\n")
            found.append((command, output.splitlines()))
    return [session for session in found if session[0].startswith("planner")]


def test_the_readme_shows_runs() -> None:
    assert len(sessions()) >= 3


@pytest.mark.parametrize(("command", "shown"), sessions(), ids=lambda value: str(value)[:60])
def test_command_prints_what_is_shown(command: str, shown: list[str], tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", *shlex.split(command)]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    printed = [line.rstrip() for line in (done.stdout + done.stderr).splitlines()]
    expected = [line.rstrip() for line in shown if line.strip() and line.strip() != "..."]
    missing = [line for line in expected if line not in printed and not TIMED.search(line)]
    assert missing == []
    assert done.returncode in (0, 4), done.stderr


def test_set_up_commands_are_those_of_the_gate() -> None:
    commands = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert any("planner search --model llama-65b --gpus 2048" in text for text in commands)
    for needed in ("pip install -e '.[test]'", "python -m pytest"):
        assert any(needed in text for text in commands)
    assert "'.[test]'" in gate
    assert "python -m pytest" in gate
