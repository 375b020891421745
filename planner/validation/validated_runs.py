"""Measured runs of one or several tables with their predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeAlias

from planner.base.records import record
from planner.validation.accuracy import ComparedRun, Progress, joined, predict
from planner.validation.run_tables import (
    SHIPPED,
    SHIPPED_INFERENCE,
    SHIPPED_RL,
    Runs,
    read_runs,
)
from planner.validation.select_runs import select_runs
from planner.validation.spec_library import Library

Bar: TypeAlias = "Callable[[int, str], AbstractContextManager[Progress | None]]"
"""Shows the progress of a number of steps with this name; yields a function for the steps done."""


@record(kw_only=True)
class ValidatedRuns:
    """Tables of runs, and each of their runs with its prediction, in the order of the rows."""

    tables: tuple[tuple[Runs, Sequence[ComparedRun]], ...]

    @property
    def runs(self) -> list[ComparedRun]:
        """The runs of all tables."""
        return [run for _, rows in self.tables for run in rows]

    @property
    def is_compared(self) -> bool:
        """Whether any run has both a measurement and a prediction."""
        return any(run.compared for run in self.runs)


def predict_runs(
    path: Path | None, where: Sequence[str], library: Library, bar: Bar
) -> ValidatedRuns:
    """Predict the runs of a table that meet conditions.

    Raises SpecError if the table has errors, SearchSpaceError if a condition is invalid or no run
    meets it.

    Parameters
    ----------
    path : a CSV file of runs; None: the published runs
    where : pandas expressions over the columns, see `planner.validation.select_runs`
    """
    files = (SHIPPED, *SHIPPED_INFERENCE, SHIPPED_RL) if path is None else (path,)
    tables = select_runs([read_runs(file) for file in files], where, library)
    compared: list[tuple[Runs, Sequence[ComparedRun]]] = []
    for table in tables:
        with bar(len(table.rows), "runs") as progress:
            compared.append((table, joined(table, predict(table, library, progress=progress))))
    return ValidatedRuns(tables=tuple(compared))
