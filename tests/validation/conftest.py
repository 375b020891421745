from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from planner.validation.run_tables import Runs, read_runs
from planner.validation.spec_library import Library


@pytest.fixture
def write_runs(tmp_path: Path) -> Callable[..., Path]:
    """Write rows to a CSV file."""

    def write(*rows: Mapping[str, str]) -> Path:
        path = tmp_path / "runs.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
        return path

    return write


@pytest.fixture(scope="session")
def shipped() -> Runs:
    """The runs that ship."""
    return read_runs()


@pytest.fixture(scope="module")
def library() -> Library:
    """Specs as they are loaded, once for the tests of a file."""
    return Library()
