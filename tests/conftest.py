from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings

from planner.__main__ import run
from planner.validation.compare import Row

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@dataclass(frozen=True)
class Ran:
    """What a command printed and how it ended."""

    exit_code: int
    out: str
    err: str


Command = Callable[..., Ran]


@pytest.fixture(scope="session")
def shipped_tables() -> Sequence[Sequence[Row]]:
    """The published runs of training, static batches and serving with their predictions."""
    from make_accuracy import shipped_rows

    return shipped_rows()


@pytest.fixture
def planner(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run ``planner`` in this process, 80 columns wide, its output a pipe."""
    monkeypatch.setenv("COLUMNS", "80")

    def command(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        exit_code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        return Ran(exit_code, printed.out, printed.err)

    return command
